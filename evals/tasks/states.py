"""The world of a task before its agent comes, made with the same tools, and how it is found at the end."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Final

from pydantic import JsonValue

from evals.episodes.desk import Answer, Desk, seated
from evals.episodes.link import cut
from evals.episodes.referee import Referee
from evals.episodes.scenes import CREATE, starts_it, taken_back
from evals.episodes.task import expected, laid_out
from evals.tasks.grader import End, Wants
from evals.tasks.requests import Request
from gpu_tenant.emulators.faults import Fault, Match
from gpu_tenant.emulators.server import Stage

_CREATES: Final = {**CREATE, "gcp": Match(method="POST", path_regex=r"/instances$")}
_ARTIFACTS: Final[list[JsonValue]] = ["out/"]
_RUNS_ON: Final = "python3 train.py && sleep 3000"


class World:
    """One rehearsal, in which a request is carried out."""

    def __init__(self, request: Request, tree: Path, referee: Referee) -> None:
        self.request = request
        self.tree = tree
        self.referee = referee
        self.stranger = ""
        self._billed_before = Decimal(0)
        self._rented_before = 0
        self._never_made: set[str] = set()

    @property
    def words(self) -> str:
        """What the person types."""
        words = self.request.words.replace("{tree}", str(self.tree))
        for name, value in (
            ("provider", self.request.provider),
            ("gpu", self.request.gpu),
            ("cap", self.request.cap_usd_h),
        ):
            words = words.replace(f"{{{name}}}", str(value))
        return words

    @property
    def wants(self) -> Wants:
        """What is wanted at the end, with the ids of this world."""
        wants = self.request.wants
        return replace(
            wants,
            says=tuple(re.sub("{stranger}", re.escape(self.stranger), one) for one in wants.says),
        )

    async def made(self) -> None:
        """All that was there before the agent came is there."""
        before = self.request.before
        if before == "create lost":
            self._goes_wrong("drop_after")
        elif before == "made twice":
            self._goes_wrong("twice")
        elif before != "nothing":
            async with seated(self.referee) as desk:
                await self._had(desk)
        if self.request.kind == "account":
            ours = self.referee.boxes()
            self.referee.strike(Fault(do="foreign_box"))
            (self.stranger,) = set(self.referee.boxes()) - set(ours)
        if before == "silent":
            for box in self.referee.boxes():
                cut(self.referee.home_of(box).parent)
        elif before == "taken":
            taken_back(self.referee)
        if before == "crashed":
            self._never_made = self.referee.missing_on_boxes()
        self.referee.calls = self.referee.characters_read = 0
        self._rented_before = self._rented()

    def owner(self, referee: Referee) -> None:
        """The person has done at the console what an agent asked for."""
        if self.request.before == "taken" and self.request.provider in ("vastai", "gcp"):
            starts_it(referee)

    async def ended(self, answer: str) -> End:
        """How it is found when the agent has said its last word."""
        async with seated(self.referee) as desk:
            told = await desk.call("list_leases", which="all")
            found = await desk.call(
                "find_offers", gpu=self.request.gpu, provider=self.request.provider
            )
        prices = [row["running_usd_h"] for row in found.rows("offers") if row["running_usd_h"]]
        score = self.referee.score(answer)
        # Where no box was ever rented, no file was ever made. Nor is lost what the job had not made when it crashed.
        lost = self.referee.lost() - self._never_made if self._rented() else set[str]()
        strangers = int(self.stranger in self.referee.boxes())
        return End(
            answer=answer,
            boxes=score.boxes_left - strangers,
            rented=self._rented() - self._rented_before,
            bytes_lost=self.referee.size(lost),
            bytes_not_here=self.referee.size(self.referee.missing_here() - lost),
            billed_usd=score.billed_usd,
            strangers=strangers,
            cheapest_usd_h=min((Decimal(str(price)) for price in prices), default=None),
            cards=told.rows("leases"),
        )

    def _goes_wrong(self, do: str) -> None:
        self.referee.strike(Fault(do=do, match=_CREATES[self.request.provider]))

    def _rented(self) -> int:
        create = _CREATES[self.request.provider]
        return sum(
            line["method"] == create.method
            and re.search(create.path_regex, str(line["path"])) is not None
            # Without a status the answer was lost, after the box was made.
            and (line["status"] is None or int(str(line["status"])) < 300)
            for line in self.referee.requests()
        )

    async def _had(self, desk: Desk) -> None:
        """A box is had, and its job has come as far as the task says. Nothing is ended for being done."""
        found = await desk.call("find_offers", provider=self.request.provider, hours=2)
        quotes: list[JsonValue] = [row["quote"] for row in found.rows("offers")]
        card = await desk.call(
            "provision", quotes=quotes[:1], smoke="none", hours=2, when_done="keep"
        )
        lease = card.text("lease")
        while (await desk.call("audit", lease=lease)).code is not None:
            desk.wait(60)
        _must(await desk.call("push", lease=lease, directory=str(self.tree)))
        is_on = self.request.before in ("running", "silent", "taken")
        command = _RUNS_ON if is_on and self.request.before != "taken" else "python3 train.py"
        _must(
            await desk.call(
                "launch_detached", lease=lease, command=command, artifacts=_ARTIFACTS, name="train"
            )
        )
        while self.request.before != "taken":
            seen = await desk.call("monitor", lease=lease, wait_s=5)
            if seen.text("state") not in ("starting", "running"):
                break
            if is_on and not self.referee.missing_on_boxes():
                break


def _must(answer: Answer) -> None:
    if answer.code is not None:
        raise AssertionError(answer.words)


@contextmanager
def staged(request: Request, root: Path) -> Iterator[World]:
    """The rehearsal of that request, with nothing in it yet."""
    tree = laid_out(root / "tree", request.trap)
    way = "ssh" if request.before in ("silent", "taken") else "local"
    with Stage(request.provider, root / "stage", way=way) as stage:
        referee = Referee(stage, root / "stage" / "tenant" / "kept", expected(request.trap))
        try:
            yield World(request, tree, referee)
        finally:
            referee.close()
