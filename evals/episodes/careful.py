"""A scripted agent with the skill's discipline: it reacts to codes and to `next`, whatever the episode."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from pydantic import JsonValue

from evals.episodes.desk import Answer, Desk
from evals.episodes.task import Task

_AGAIN: Final = {
    "BOX_UNREACHABLE",
    "BOX_TROUBLE",
    "STILL_BOOTS",
    "LEASE_HELD",
    "PROVIDER_SILENT",
    "RATE_LIMITED",
    "PROVIDER_TROUBLE",
    "CARETAKER_FAILED",
    "REJECTED",
    "INTERNAL",
}
"""What time may mend: nothing is concluded from it, and the same call is made again."""

_ANOTHER_OFFER: Final = {"NO_CAPACITY", "NO_QUOTA", "PRICE_MOVED", "NOT_READY", "REFUSED"}
_TEARDOWN: Final = re.compile(r"`gpu-tenant teardown (\S+)`")
_TRIES: Final = 12
_PAUSE_S: Final = 60.0
_LOOKS: Final = 60
_AGAIN_AT_MOST: Final = 2


class GaveUp(Exception):
    """What the skill has no answer to: it is told to the person, with the lease as it is."""


class Careful:
    """One lease from the smoke test to the receipt."""

    def __init__(
        self, desk: Desk, task: Task, terms: Mapping[str, JsonValue] = MappingProxyType({})
    ) -> None:
        """`terms` are further arguments of `provision`."""
        self._desk = desk
        self._task = task
        self._terms = terms

    async def run(self) -> str:
        """The last word to the person."""
        try:
            ended = await self._done()
        except GaveUp as why:
            return f"gave up: {why}"
        return f"ended: {ended.text('state')}"

    async def brought_home(self, lease: str) -> str:
        """A job that was launched before has come to its end, and all it wrote is here. Returns the last word."""
        try:
            seen = await self._asked("monitor", lease, wait_s=0)
            if seen.text("state") in ("starting", "running", "lingering"):
                await self._watched(lease, seen.text("job"))
            elif seen.text("state") != "finished":
                await self._run_to_its_end(lease)
            ended = await self._ended(lease)
        except GaveUp as why:
            return f"gave up: {why}"
        return f"ended: {ended.text('state')}"

    async def run_again(self, lease: str) -> str:
        """The job has run once more on the same box, and the box is ended. Returns the last word."""
        try:
            await self._run_to_its_end(lease)
            ended = await self._ended(lease)
        except GaveUp as why:
            return f"gave up: {why}"
        return f"ended: {ended.text('state')}"

    async def _done(self) -> Answer:
        smoked = await self._call(
            "smoke_test", directory=str(self._task.directory), command=self._task.smoke_command
        )
        if smoked.body.get("passed") is not True:
            raise GaveUp("the smoke test failed")
        lease = await self._rented(smoked.text("id"))
        await self._asked("audit", lease)
        await self._asked("push", lease, directory=str(self._task.directory))
        await self._run_to_its_end(lease)
        ended = await self._ended(lease)
        await self._nothing_else_bills()
        return ended

    async def _call(self, tool: str, **arguments: JsonValue) -> Answer:
        return await self._desk.call(tool, **arguments)

    # --- a box

    async def _rented(self, smoke: str) -> str:
        for _ in range(_TRIES):
            found = await self._call(
                "find_offers", hours=self._task.hours, provider=self._task.provider
            )
            quotes = [str(offer["quote"]) for offer in found.rows("offers") if offer.get("quote")]
            if found.code is not None or not quotes:
                self._desk.wait(_PAUSE_S)
                continue
            card = await self._call(
                "provision",
                quotes=list(quotes[:2]),
                smoke=smoke,
                hours=self._task.hours,
                **self._terms,
            )
            if card.code is None:
                return card.text("lease")
            if card.code == "PROVIDER_SILENT":
                # A box may exist: nothing else is rented until the list has said so.
                lease = await self._settled()
                if lease is not None:
                    return lease
            elif card.code not in _ANOTHER_OFFER | _AGAIN:
                raise GaveUp(card.words)
            self._desk.wait(_PAUSE_S)
        raise GaveUp("no box could be had")

    async def _settled(self) -> str | None:
        """The lease of a box that turned out to exist; None when it is certain that none does."""
        for _ in range(_TRIES):
            cards = (await self._call("list_leases")).rows("leases")
            standing = [card for card in cards if card["state"] == "active"]
            if standing:
                return str(standing[0]["lease"])
            if not cards:
                return None
            self._desk.wait(_PAUSE_S)
        raise GaveUp("the provider does not say whether there is a box")

    # --- a call on a lease

    async def _asked(
        self, tool: str, lease: str, *, but: Sequence[str] = (), **arguments: JsonValue
    ) -> Answer:
        """The answer, once box and provider give one; a refusal with a code of `but` is one."""
        for _ in range(_TRIES):
            answer = await self._call(tool, lease=lease, **arguments)
            if answer.code is None or answer.code in but:
                return answer
            if answer.code not in _AGAIN and "resume" not in answer.words:
                raise GaveUp(answer.words)
            await self._stands_again(lease)
        raise GaveUp(f"{tool} was refused {_TRIES} times: {answer.words}")

    async def _stands_again(self, lease: str) -> None:
        """Time has passed, and a box that somebody stopped was asked to run again."""
        told = await self._call("list_leases")
        card = next((c for c in told.rows("leases") if c["lease"] == lease), None)
        if told.code is None and card is None:
            raise GaveUp(f"{lease} is gone: {told.words}")
        words = f"{card['alarm'] or ''} {card['next']}" if card else ""
        if "resume" in words or "has stopped it" in words:
            resumed = await self._call("change_lease", lease=lease, action="resume")
            if resumed.code == "REFUSED":
                # The platform stopped it, so only its console starts it: the person's to do.
                self._desk.tell_owner(f"please start the box of {lease} in the console: {words}")
        self._desk.wait(_PAUSE_S)

    # --- a job

    async def _run_to_its_end(self, lease: str) -> None:
        """A run has finished by its own exit; one that was cut short was started again."""
        for life in range(1, 5):
            # Named, so that asking twice starts it once.
            launched = await self._asked(
                "launch_detached",
                lease,
                command=self._task.command,
                name=f"train-{life}",
                artifacts=list(self._task.artifacts),
            )
            if await self._watched(lease, launched.text("job")) == "finished":
                return
        raise GaveUp(f"the job on {lease} does not come to its end")

    async def _watched(self, lease: str, job: str) -> str:
        """How the job ended."""
        cursor: int | None = None
        for _ in range(_LOOKS):
            seen = await self._asked("monitor", lease, job=job, cursor=cursor, wait_s=20)
            cursor = int(seen.text("cursor"))
            if seen.text("state") not in ("starting", "running", "lingering"):
                return seen.text("state")
        raise GaveUp(f"{job} on {lease} never ends")

    # --- the end

    async def _ended(self, lease: str) -> Answer:
        """The receipt; before it, whatever a refusal asked for was done."""
        for _ in range(_AGAIN_AT_MOST):
            if (await self._collected(lease)).text("work").split(":")[0] in ("", "done"):
                break
            # The box is still warm: what is missing or does not load is made again there.
            await self._again(lease)
        for _ in range(_TRIES):
            answer = await self._asked(
                "verify_and_teardown", lease, but=["UNVERIFIED", "JOB_RUNNING"]
            )
            if answer.code is None:
                return answer
            if answer.code == "JOB_RUNNING" or "still running" in answer.words:
                self._desk.wait(_PAUSE_S)
            await self._collected(lease)
        raise GaveUp(f"the teardown is refused: {answer.words}")

    async def _again(self, lease: str) -> None:
        """The job has run once more, and made what it owed."""
        launched = await self._asked(
            "launch_detached",
            lease,
            command=self._task.command,
            artifacts=list(self._task.artifacts),
        )
        await self._watched(lease, launched.text("job"))

    async def _collected(self, lease: str) -> Answer:
        """Everything that the box holds of worth is here; what nobody had claimed is kept, too."""
        claims: list[str] = []
        for _ in range(_TRIES):
            got = await self._asked("collect", lease, but=["JOB_RUNNING"], artifacts=list(claims))
            if got.code is not None:
                self._desk.wait(_PAUSE_S)
                continue
            unclaimed = got.texts("unclaimed_largest")
            if not unclaimed:
                return got
            # The person is away and nothing may be given up: so it is kept, by its name.
            claims = [named(path) for path in unclaimed]
        raise GaveUp(f"what is on {lease} does not come home: {got.words}")

    async def _nothing_else_bills(self) -> None:
        for _ in range(_TRIES):
            told = await self._call("list_leases")
            if told.code is None and not told.rows("leases"):
                return
            for named_by_an_alarm in _TEARDOWN.findall(" ".join(told.texts("alarms"))):
                await self._call("verify_and_teardown", lease=named_by_an_alarm)
            self._desk.wait(_PAUSE_S)
        raise GaveUp(f"something still stands: {told.words}")


def named(path: str) -> str:
    """The pattern for exactly that path."""
    return re.sub(r"([*?\[\]\\])", r"\\\1", path)
