"""An errand for the tests: a small job, and somebody who asked for it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_tenant.domain.errand import ErrandRequest
from gpu_tenant.errands.answers import ErrandStatus, RentalPlan, Unanswered
from gpu_tenant.errands.drive import Answers, Drive, begin
from gpu_tenant.errands.requests import errand_of
from gpu_tenant.jobs.monitor import Watched
from gpu_tenant.service import Tenancy

MODEL = '{"weights": [1, 2, 3]}'
COMMAND = "sh train.sh"


def a_tree(directory: Path, job: str = "") -> Path:
    """A work tree whose job writes a model, and a line that says that it ran, outside of every box."""
    directory.mkdir(parents=True)
    ran = directory.parent / "ran"
    (directory / "train.sh").write_text(
        f'[ -n "$SMOKE" ] && exit 0\necho ran >> {ran}\nmkdir -p out\n'
        f"echo '{MODEL}' > out/model.json\n{job}\n",
        encoding="utf-8",
    )
    return directory


def an_errand(tenancy: Tenancy, tree: Path, **said: Any) -> ErrandRequest:
    usual = {"command": COMMAND, "artifacts": ("out/",), "smoke": f"SMOKE=1 {COMMAND}"}
    return errand_of(tenancy.context, tree, {**usual, **said})


class Asker:
    """Somebody who agrees, or does not, and says what becomes of files that nobody has claimed."""

    tenancy: Tenancy

    def __init__(
        self,
        agrees: str | None = "person",
        *,
        keep: Sequence[str] = (),
        discard: Sequence[str] = (),
        keeps_all: bool = False,
    ) -> None:
        self.agrees, self.keep, self.discard = agrees, tuple(keep), tuple(discard)
        self._keeps_all = keeps_all
        self.heard: list[str] = []
        self.plans: list[RentalPlan] = []
        self.asked: list[Unanswered] = []

    def hear(self, words: str) -> None:
        self.heard.append(words)

    @property
    def agrees_ahead(self) -> bool:
        return self.agrees in ("yes", "agent")

    async def agree(self, plan: RentalPlan) -> str | None:
        self.plans.append(plan)
        return self.agrees

    async def follow(self, lease: str, job: str) -> Watched:
        return await self.tenancy.follow(lease, job, cursor=None, wait_s=1, limit_bytes=4096)

    async def answer(self, asks: Unanswered) -> Answers | None:
        self.asked.append(asks)
        if self._keeps_all:
            return Answers(asks.keeps)
        return Answers(self.keep, self.discard) if self.keep or self.discard else None


async def goes_on(
    tenancy: Tenancy, errand: ErrandRequest, asker: Asker | None = None
) -> ErrandStatus:
    """How the errand stands after a call that had all the time that it needed, and showed its end."""
    asker = asker or Asker()
    asker.tenancy = tenancy
    drive = Drive(tenancy, begin(tenancy, errand), asker)
    standing = await drive.go_on()
    drive.note_shown(standing)
    return standing
