"""Reads the judgement of `activity.py`, a script on the box, on whether the box is working or idle."""

from typing import Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from gpu_tenant.box.script_replies import reply_of
from gpu_tenant.domain.errors import CaretakerFailed
from gpu_tenant.domain.ports import Finished
from gpu_tenant.domain.record import Line
from gpu_tenant.domain.untrusted_text import quote_text

Phase = Literal["setup", "data", "training", "flush", "evaluation", "idle", "suspicious", "unknown"]


class Activity(BaseModel):
    """The reply of `activity.py judge`. Fields that this version does not know are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    phase: Phase
    """The estimated kind of work, or `idle`, or `suspicious` (a GPU is fully used without effect), or `unknown`."""
    busy: bool
    idle_s: float = Field(ge=0, allow_inf_nan=False)
    """For how many seconds the box had done nothing at the last check. 0 while it works."""
    suspicious_s: float = Field(default=0, ge=0, allow_inf_nan=False)
    since: AwareDatetime
    """When the phase began, by the box's clock."""
    words: Line

    @classmethod
    def parse(cls, stdout: bytes) -> Self:
        """Read the box's answer from the last line of its output. A login script may have printed something before it.

        Raises:
            CaretakerFailed: the box gave no answer, or one that cannot be understood.
        """
        reply = reply_of(Finished(0, stdout, b""))
        try:
            return cls.model_validate(reply)
        except ValidationError as error:
            said = reply.get("message") if reply else None
            raise CaretakerFailed(
                f"the box does not say whether it is idle: {quote_text(str(said or error.errors()[0]['msg']))}",
                remedy="look at the box yourself before you believe that it is idle",
            ) from error
