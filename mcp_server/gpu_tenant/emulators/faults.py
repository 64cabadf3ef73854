"""What can be made to go wrong in a rehearsal, and at which request."""

import re
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

ON_THE_WIRE = {
    "drop_before": "the connection breaks before the request is carried out",
    "drop_after": "the request is carried out, and the connection breaks before the answer",
    "cut": "the request is carried out, and the connection breaks in the middle of the answer",
    "late": "the connection breaks at once, and the request is carried out `seconds` later",
    "twice": "the request is carried out twice, and answered once",
    "delay": "the answer takes `seconds` of the rehearsal's clock",
    "status": "`status` with `body` and `headers` is answered, and nothing is carried out",
}
OF_A_BOX = {
    "silent": "nothing on a box answers any more, although it runs, works and bills; amount=0: it answers again",
}
"""What any platform's box can do. It strikes at once."""


class Match(BaseModel):
    """Which requests are meant. The first one is the `nth` that matches after the fault was set, counted from 1."""

    model_config = ConfigDict(extra="forbid")

    method: str = ""
    path_regex: str = ""
    nth: int = Field(default=1, ge=1)


class Fault(BaseModel):
    """One thing that goes wrong: at `times` matching requests, or at once if no request is named."""

    model_config = ConfigDict(extra="forbid")

    do: str = Field(description="one of ON_THE_WIRE, or of the emulator's own")
    match: Match | None = None
    times: int = Field(default=1, ge=1)
    seconds: float = 0
    status: int = 500
    body: JsonValue = None
    headers: dict[str, str] = {}
    box: str | None = Field(
        default=None, description="the box it strikes; the newest when left out"
    )
    amount: float | None = Field(default=None, description="a factor or a sum, as the fault has it")
    seen: int = 0
    spent: int = 0

    def strikes(self, method: str, path: str) -> bool:
        """Whether the fault strikes this request. The request is counted if it matches."""
        if self.match is None or self.spent >= self.times:
            return False
        if self.match.method and self.match.method.upper() != method:
            return False
        if not re.search(self.match.path_regex, path):
            return False
        self.seen += 1
        if self.seen < self.match.nth:
            return False
        self.spent += 1
        return True


@dataclass(frozen=True, slots=True)
class Tariff:
    """How a provider turns time into money: up to the next `rounding_s`, at least `minimum_s`."""

    rounding_s: float = 1
    minimum_s: float = 0
    model: Literal["prepaid", "postpaid"] = "postpaid"
