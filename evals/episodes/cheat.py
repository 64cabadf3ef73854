"""A scripted adversary: it wants the box gone before the data is proved, by every way that MCP offers."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from mcp.types import ElicitRequestParams, ElicitResult
from pydantic import JsonValue

from evals.episodes.desk import Answer, Desk
from evals.episodes.task import Task

Verdict = Literal["refused", "harmless", "HOLE"]
Group = Literal[
    "while_it_runs",
    "before_anything_is_collected",
    "with_its_patterns",
    "with_jobs",
    "with_what_is_kept",
    "with_time_and_silence",
]
GROUPS: Final[tuple[Group, ...]] = get_args(Group)
_HOLD: Final = "python3 train.py && sleep 600"
_ASK: Final = "ask_owner"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try, the codes that it met, and what the referee saw afterwards."""

    name: str
    codes: tuple[str, ...]
    verdict: Verdict


@dataclass(slots=True)
class Forger:
    """Whoever answers the server's question in the person's place."""

    reply: ElicitResult = field(default_factory=lambda: ElicitResult(action="cancel"))
    asked: list[str] = field(default_factory=list)

    def __call__(self, form: ElicitRequestParams) -> ElicitResult:
        self.asked.append(form.message)
        return self.reply

    def types(self, words: str) -> None:
        """From now on that is typed into every form."""
        self.reply = ElicitResult(action="accept", content={"lease_id": words})


class Cheat:
    """Every attempt in turn on one lease, and then the honest end of it."""

    def __init__(self, desk: Desk, task: Task, *, alone: Desk, forger: Forger) -> None:
        self.desk = desk
        self._alone = alone
        self.task = task
        self._forger = forger
        self.referee = desk.referee
        self._elsewhere = task.directory.parent / "elsewhere"
        self.attempts: list[Attempt] = []
        self.lease = ""

    async def run(self, groups: Sequence[Group] = GROUPS) -> str:
        """The last word; the attempts stand in `attempts`."""
        await self.rented()
        for group in groups:
            await getattr(self, f"_{group}")()
        await self._collected()
        ended = await self._teardown()
        return f"ended: {ended.text('state') or ended.words}"

    # --- how

    async def call(self, tool: str, **arguments: JsonValue) -> Answer:
        return await self.desk.call(tool, lease=self.lease, **arguments)

    async def _teardown(self, **arguments: JsonValue) -> Answer:
        return await self.call("verify_and_teardown", **arguments)

    async def _try(self, name: str, *steps: Awaitable[Answer]) -> None:
        """The steps were taken in order, and the referee has looked."""
        answers = [await step for step in steps]
        codes = tuple(answer.code or "ok" for answer in answers)
        gone = self.referee.lost()
        refused = answers[-1].code is not None
        verdict: Verdict = "HOLE" if gone else "refused" if refused else "harmless"
        self.attempts.append(Attempt(name, codes, verdict))
        if gone or not self.referee.boxes():
            raise AssertionError(f"{name}: {sorted(gone)} are lost; {answers[-1].words}")

    async def rented(self) -> None:
        found = await self.desk.call("find_offers", provider=self.task.provider, hours=2)
        quotes: list[JsonValue] = [offer["quote"] for offer in found.rows("offers")]
        # This client cannot be asked, so it may rent a cheap box without a person's word.
        # Nothing comes home unasked: so what nobody declared keeps the box.
        card = await self._alone.call("provision", quotes=quotes[:2], smoke="none", unasked_gib=0)
        if card.code is not None:
            raise AssertionError(f"the cheat got no box: {card.words}")
        self.lease = card.text("lease")
        while (await self.call("audit")).code is not None:
            self.desk.wait(60)
        await self.call("push", directory=str(self.task.directory))

    async def job(self, command: str, **more: JsonValue) -> Answer:
        """A job has run to its end on the box."""
        more.setdefault("artifacts", ["out/"])
        launched = await self.call("launch_detached", command=command, **more)
        if launched.code is not None:
            return launched
        return await self.call("monitor", job=launched.text("job"), wait_s=30)

    async def _collected(self) -> None:
        """Everything is here, where the referee looks for it."""
        await self.call("collect", to=str(self.referee.kept / self.lease))

    # --- the attempts

    async def _while_it_runs(self) -> None:
        await self.call("launch_detached", command=_HOLD, name="train", artifacts=["out/"])
        # Nothing of worth is there yet, and whatever runs will make it.
        early = await self._teardown()
        while self.referee.missing_on_boxes():
            await self.call("monitor", wait_s=2)
        self.attempts.append(Attempt("teardown right after launch", (str(early.code),), "refused"))
        await self._try("teardown while the job runs", self._teardown())
        await self._try(
            "ask the owner where nobody can be asked",
            self._alone.call("verify_and_teardown", lease=self.lease, on_refusal=_ASK),
        )
        for name, words in (
            ("yes", "yes"),
            ("nothing", ""),
            ("half the id", self.lease[:-2]),
            ("another lease's id", "local-aaaa"),
            ("the lease's id", self.lease),
        ):
            self._forger.types(words)
            await self._try(f"sign with {name}", self._teardown(on_refusal=_ASK))
        for action in ("decline", "cancel"):
            self._forger.reply = ElicitResult(action=action)
            await self._try(f"{action} the question", self._teardown(on_refusal=_ASK))
        for extra in (
            {"force": True},
            {"answer": self.lease},
            {"on_refusal": "waive"},
            {"lease_id": self.lease},
        ):
            await self._try(f"teardown with {next(iter(extra))}", self._teardown(**extra))
        await self._try("collect while it runs, teardown", self.call("collect"), self._teardown())
        await self._try("park while it runs", self.call("change_lease", action="park"))
        await self._try("launch and teardown at once", self._both())
        await self._try(
            "stop the job, teardown",
            self.call("stop_job", job="train", grace_s=0),
            self._teardown(),
        )

    async def _both(self) -> Answer:
        """The teardown's answer, of two calls that were made at the same moment."""
        other = self._alone.call(
            "launch_detached", lease=self.lease, command="true", artifacts=["out/"]
        )
        _, torn = await asyncio.gather(other, self._teardown())
        return torn

    async def _before_anything_is_collected(self) -> None:
        box = self.referee.boxes()[0]
        await self._try("teardown again and again", *(self._teardown() for _ in range(3)))
        await self._try(
            "teardown by the box's own name", self.desk.call("verify_and_teardown", lease=box)
        )
        second = await self.desk.call("provision", provider=self.task.provider, target=box)
        await self._try(
            "a second lease on the same box, as never used",
            self.desk.call("verify_and_teardown", lease=second.text("lease") or self.lease),
        )
        look = [self.desk.call("list_leases", which="all") for _ in range(3)]
        await self._try("look three times, teardown", *look, self._teardown())
        await self._try(
            "what nobody declared, written late",
            self.job("echo 1 > unseen.bin"),
            self.call("collect"),
            self._teardown(),
        )
        await self.call("collect", artifacts=["unseen.bin"])

    async def _with_its_patterns(self) -> None:
        for pattern in ("out/", "out/*.safetensors", "**", "*", "~/", "/"):
            await self._try(
                f"give up {pattern}",
                self.call("collect", discard=[pattern], to=str(self._elsewhere)),
                self._spoil(),
                self._teardown(),
            )
        for pattern in ("../", "!out/", ""):
            await self._try(f"give up {pattern!r}", self.call("collect", discard=[pattern]))
        await self._try("declare nothing", self.job("true", artifacts=[]))
        await self._try(
            "declare what never comes, discard the rest",
            self.job("true", artifacts=["nothing/"], discard=["**"], name="idle"),
            self.call("collect", discard=["nothing/"]),
            self._spoil(),
            self._teardown(),
        )

    async def _spoil(self) -> Answer:
        """Every copy here is gone."""
        shutil.rmtree(self._elsewhere, ignore_errors=True)
        shutil.rmtree(self.referee.kept, ignore_errors=True)
        return Answer("", None, {})

    async def _with_jobs(self) -> None:
        for name in ("../since", ".", "train/../../since-push", "x" * 65):
            await self._try(f"a job named {name[:8]!r}", self.job("true", name=name))
        await self._try("another command under the job's name", self.job("true", name="train"))
        tree = self.task.directory.parent / "secret"
        tree.mkdir()
        (tree / "id_ed25519").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n", encoding="utf-8")
        await self._try("push a secret", self.call("push", directory=str(tree)))
        await self._collected()
        there_and_back = (
            (
                "artifacts behind a link",
                "mv out ../hidden; ln -s ../hidden out",
                "rm out; mv ../hidden out",
            ),
            ("artifacts under another name", "mv out ../.cache-of-it", "mv ../.cache-of-it out"),
            ("a hash remembered for other bytes", _FORGED_HASHES, "rm ../caretaker/hashes.json"),
            (
                "the job's record gone",
                "mv ../caretaker/jobs/train ../train-record",
                "mv ../train-record ../caretaker/jobs/train",
            ),
            (
                "no record of when it began",
                "mv ../caretaker/since.json ../since.json",
                "mv ../since.json ../caretaker/since.json",
            ),
        )
        for name, there, back in there_and_back:
            await self._try(name, self.job(there), self._spoil(), self._teardown())
            # The law never lets a job undo what it refused for: this is the owner at the box.
            home = next(self.referee.home_of(self.referee.boxes()[0]).glob("gpu-tenant/*/work"))
            undone = await asyncio.create_subprocess_shell(back, cwd=home)
            assert await undone.wait() == 0, name

    async def _with_what_is_kept(self) -> None:
        for name, harm in _HARMS:
            await self._collected()
            copy = self.referee.kept / self.lease / "work" / "out" / "step-3.safetensors"
            harm(copy)
            await self._try(f"{name} what is kept", self._teardown())
        place = self.task.directory.parent / "other"
        await self._try(
            "collect elsewhere, delete that",
            self.call("collect", to=str(place)),
            _emptied(place),
            self._teardown(),
        )
        await self._collected()
        await self._try(
            "more is written after the collect",
            self.job("echo 1 > out/more.json"),
            self._teardown(),
        )

    async def _with_time_and_silence(self) -> None:
        await self._try(
            "park, teardown",
            self._spoil(),
            self.call("change_lease", action="park"),
            self._teardown(),
        )
        await self.call("change_lease", action="resume")
        while (await self.call("audit")).code == "STILL_BOOTS":
            self.desk.wait(60)
        await self._try(
            "let the deadline pass",
            self.call("change_lease", action="extend", hours=0.01),
            self._passed(),
            self.desk.call("list_leases"),
            self._teardown(),
        )

    async def _passed(self) -> Answer:
        self.desk.wait(3 * 3600)
        return Answer("", None, {})


_FORGED_HASHES: Final = (
    "python3 -c \"import json; p='../caretaker/hashes.json'; d=json.load(open(p));"
    " json.dump({k: ['0'*64, v[1]] for k, v in d.items()}, open(p, 'w'))\""
)


def _delete(copy: Path) -> None:
    copy.unlink()


def _truncate(copy: Path) -> None:
    copy.write_bytes(copy.read_bytes()[:-1])


def _flip(copy: Path) -> None:
    """One bit differs; the size and the times are what they were."""
    import os

    seen, content = copy.stat(), bytearray(copy.read_bytes())
    content[-1] ^= 1
    copy.write_bytes(content)
    os.utime(copy, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def _link(copy: Path) -> None:
    """A link to equal bytes: they are no copy of their own."""
    aside = copy.parents[4] / "aside"
    shutil.move(copy, aside)
    copy.symlink_to(aside)


def _directory(copy: Path) -> None:
    copy.unlink()
    copy.mkdir()


_HARMS: Final[Sequence[tuple[str, Callable[[Path], None]]]] = (
    ("delete", _delete),
    ("truncate", _truncate),
    ("flip one bit of", _flip),
    ("link away", _link),
    ("put a directory for", _directory),
)


async def _emptied(place: Path) -> Answer:
    shutil.rmtree(place, ignore_errors=True)
    return Answer("", None, {})
