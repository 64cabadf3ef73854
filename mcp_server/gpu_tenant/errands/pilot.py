"""A first, small rental on a real account, which compares what the provider does with what this program believes of it.

The rental is an errand like any other, so its law, its deadline and its budget are those of any errand. Around it, this
module only reads.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import AwareDatetime, Field

from gpu_tenant import __version__
from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errand import ErrandRequest
from gpu_tenant.domain.errors import BadRequest, ProviderTrouble, TenantError
from gpu_tenant.domain.job_state import ENDED
from gpu_tenant.domain.model import Box, BoxState, Lease, Profile
from gpu_tenant.domain.ports import (
    Accounted,
    Billing,
    Chronicling,
    Connector,
    Findable,
    Funded,
    Market,
    Parking,
    Prechecking,
    Residue,
    Storing,
)
from gpu_tenant.domain.record import Record, Usd
from gpu_tenant.domain.wording import some, usd_words
from gpu_tenant.errands.answers import ErrandStatus, RentalPlan, Unanswered
from gpu_tenant.errands.drive import Answers, Drive, begin
from gpu_tenant.errands.verbs import Verbs
from gpu_tenant.jobs.monitor import Watched
from gpu_tenant.leases.offers import Found
from gpu_tenant.providers.drift import Drifted, read_drift, without_names
from gpu_tenant.providers.open_questions import questions_of

T = TypeVar("T")

_HOURS = 0.1
"""The work takes seconds. The rest is for starts and stops."""
_LEAST_USD_H, _MOST_USD_H = Decimal("0.02"), Decimal(25)
"""Nobody offers a GPU for less or for more an hour. Such a price is in another unit."""
_AGAIN_S = 15.0
_ENDS_AGAIN_S, _ENDS_TRIES = 60.0, 5
_BILL_S, _BILL_LOOKS = 300.0, 12
_SAME_PRICE = Decimal("0.02")
_JOB = """mkdir -p out
(nvidia-smi -L 2>/dev/null || echo none) > out/gpus
date -u > out/ran
"""

Verdict = Literal["agrees", "differs", "not tried"]


class PilotCheck(Record):
    """One thing that was compared with what the profile and the connector say."""

    name: str
    verdict: Verdict
    believed: str
    seen: str
    fact: str | None = Field(default=None, description="the profile's fact that it is about")


class PilotAnswer(Record):
    """An open question about the provider that this pilot answered."""

    id: str
    asks: str
    seen: str


class PilotReport(Record):
    """What a pilot found. It has no key, no name and no id of the account in it."""

    provider: str
    title: str
    version: str
    at: AwareDatetime
    rehearsed: bool = Field(
        description="it was a rehearsal, which proves nothing about the provider"
    )
    most_usd: Decimal
    cost_usd: Usd
    billed_usd: Usd
    ended: Literal["gone", "nothing was rented", "not proved gone"]
    checks: tuple[PilotCheck, ...]
    drift: tuple[Drifted, ...] = Field(description="what the provider answered and is not known")
    answers: tuple[PilotAnswer, ...]
    open_questions: tuple[str, ...] = Field(description="the ids of those that stay open")
    next: str

    @property
    def differs(self) -> tuple[PilotCheck, ...]:
        """What is not as it is believed to be."""
        return tuple(check for check in self.checks if check.verdict == "differs")

    @property
    def agrees(self) -> bool:
        """Whether everything that was compared is as believed, and the box is gone."""
        return not self.differs and not self.drift and self.ended == "gone"


class Pilot:
    """One pilot at one provider."""

    def __init__(
        self,
        tenancy: Verbs,
        provider: str,
        max_usd: Decimal,
        *,
        hear: Callable[[str], None],
        agree: Callable[[RentalPlan], Awaitable[str | None]],
        agrees_ahead: Literal["", "yes"] = "",
        stage: Literal["real", "rehearsed"],
    ) -> None:
        """`agree` asks who agrees to the rental, once."""
        self._tenancy, self._provider, self._max_usd = tenancy, provider, max_usd
        self._hear, self._agree, self.agrees_ahead = hear, agree, agrees_ahead == "yes"
        self._stage = stage
        context = tenancy.context
        context.set_up(provider)
        self._profile: Profile = context.profile(provider)
        self._connector: Connector = context.connectors[provider]
        if not isinstance(self._connector, Market):
            raise BadRequest(
                f"{self._profile.title} rents nothing by a quote, so there is nothing to try",
                remedy=str(Command("profiles", provider)),
            )
        self._checks: list[PilotCheck] = []
        self._has_parked = False
        self._run: str | None = None
        self._balance: Decimal | None = None
        self._known_drift = {(d.kind, d.what) for d in self._drift()}

    async def go(self) -> PilotReport:
        """Do all of it, and return the report, whatever happens in between. What was rented is ended.

        If this is cancelled, the lease stands under its deadline and its budget, as after any other command.
        """
        begun_at = self._tenancy.clock.now()
        is_fit = await self._read()
        status: ErrandStatus | None = None
        if is_fit:
            status = await self._rent()
        ended, lease = await self._end(status)
        if lease is not None:
            await self._look_at_the_end(lease)
        return self._report(begun_at, ended, lease, status)

    # --- reading

    async def _read(self) -> bool:
        """Compare everything that can be read without a rental. Return whether a rental may rest on it."""
        connector = self._connector
        self._hear(f"reads the account at {self._profile.title}; nothing is rented yet")
        boxes = await self._try("list of boxes", "it can be read whole", connector.list_boxes())
        if boxes is None:
            return False
        self._note("list of boxes", "it can be read whole", some(len(boxes), "box"), is_so=True)
        if not boxes:
            self._note("an empty list", "it is read as empty", "it is", is_so=True)
        odd = [box for box in boxes if box.state is BoxState.UNKNOWN]
        self._note("states", "each is known", f"{len(odd)} unknown", is_so=not odd, fact="states")
        found = await self._offers()
        await self._read_account()
        return found

    async def _offers(self) -> bool:
        found: Found | None = await self._try("offers", "they can be read", self._search())
        if found is None:
            return False
        trouble = found.troubles.get(self._provider)
        if trouble is not None:
            self._note("offers", "they can be read", trouble, is_so=False)
            return False
        self._note("offers", "they can be read", some(len(found.offers), "offer"), is_so=True)
        each = [
            offer.running_usd_h / offer.gpu_count if offer.running_usd_h is not None else None
            for offer in found.offers
        ]
        odd = [usd for usd in each if usd is None or not _LEAST_USD_H <= usd <= _MOST_USD_H]
        believed = f"a GPU costs {_LEAST_USD_H} to {_MOST_USD_H} USD/h"
        seen = f"{len(odd)} of {len(each)} do not"
        fact = "billing.price_source"
        self._note("prices", believed, seen, is_so=not odd, fact=fact)
        return not odd

    async def _read_account(self) -> None:
        connector = self._connector
        if isinstance(connector, Accounted):
            whose = await self._try("account", "its provider names it", connector.account())
            if whose is not None:
                self._note("account", "its provider names it", "it does", is_so=True)
        if isinstance(connector, Prechecking):
            lacks = await self._try("way in", "a box can be reached", connector.obstacles())
            if lacks is not None:
                seen = "; ".join(lacks) or "nothing is in the way"
                self._note("way in", "a box can be reached", seen, is_so=not lacks)
        if isinstance(connector, Residue):
            left = await self._try("what else bills", "it can be read", connector.leftovers())
            if left is not None:
                seen = some(len(left), "thing")
                self._note("what else bills", "it can be read", seen, is_so=True)
        if isinstance(connector, Storing):
            volumes = await self._try("volumes", "they can be read", connector.list_volumes())
            if volumes is not None:
                self._note("volumes", "they can be read", some(len(volumes), "volume"), is_so=True)
        self._balance = await self._read_balance("balance")

    async def _read_balance(self, name: str) -> Decimal | None:
        connector = self._connector
        if not isinstance(connector, Funded):
            return None
        balance = await self._try(name, "its provider tells it", connector.balance())
        if balance is None:
            return None
        self._note(name, "its provider tells it", "it does", is_so=True)
        return balance.amount_usd

    # --- the rental, as an errand

    async def _search(self) -> Found:
        asked = self._request(Path("/"))
        return await self._tenancy.search_offers(
            provider=self._provider,
            order=asked.order,
            hours=asked.hours,
            max_price_usd_h=None,
            vram_gib=None,
            trust=asked.trust,
            interruptible=asked.interruptible,
            smoke="none",
        )

    def _request(self, tree: Path) -> ErrandRequest:
        return ErrandRequest(
            directory=str(tree),
            command="sh job.sh",
            artifacts=("out/",),
            smoke="none",
            hours=_HOURS,
            max_usd=self._max_usd,
            on=self._provider,
            name="pilot",
        )

    async def _rent(self) -> ErrandStatus | None:
        tenancy = self._tenancy
        # Nothing is ever sent out of the state directory, where the keys are.
        tree = Path(tempfile.mkdtemp(prefix="gpu-tenant-pilot-"))
        (tree / "job.sh").write_text(_JOB, encoding="utf-8")
        self._run = begin(tenancy, self._request(tree))
        drive = Drive(tenancy, self._run, self)
        try:
            status = await drive.go_on()
        except TenantError as error:
            self._note("a whole lease", "it ends by itself", str(error), is_so=False)
            return None
        except Exception as error:  # noqa: BLE001 - whatever it is, what was rented must be ended
            seen = f"not understood: {type(error).__name__}"
            self._note("a whole lease", "it ends by itself", seen, is_so=False)
            return None
        drive.note_shown(status)
        if status.outcome != "asks" or status.step != "choose":
            is_done = status.outcome == "done"
            self._note("a whole lease", "it ends by itself", status.words, is_so=is_done)
            if is_done and any(c.name == "resume" and c.verdict == "agrees" for c in self._checks):
                # They were collected after the stop.
                self._note(
                    "work after a stop",
                    "it is still there",
                    "it is",
                    is_so=True,
                    fact="paths.survives.park",
                )
        with suppress(OSError):
            shutil.rmtree(tree)
        return status

    def hear(self, words: str) -> None:
        """Implement `Face.hear`."""
        self._hear(words)

    async def agree(self, plan: RentalPlan) -> str | None:
        """Implement `Face.agree`."""
        return await self._agree(plan)

    async def answer(self, asks: Unanswered) -> Answers | None:
        """Implement `Face.answer`: the job wrote what it wrote, and all of it is kept."""
        return Answers(artifacts=asks.keeps)

    async def follow(self, lease: str, job: str) -> Watched:
        """Implement `Face.follow`. Once the job has ended, look at the box, and park and resume it."""
        seen = await self._until_ended(lease, job)
        if seen.state == "finished" and not self._has_parked:
            self._has_parked = True
            await self._look_at_box(lease)
            await self._park_and_resume(lease, job)
            with suppress(TenantError):
                return await self._until_ended(lease, job)
        return seen

    async def _until_ended(self, lease: str, job: str) -> Watched:
        while True:
            seen = await self._tenancy.follow(lease, job, cursor=None, wait_s=5, limit_bytes=2048)
            if seen.state in ENDED or seen.state == "absent":
                return seen

    async def _look_at_box(self, name: str) -> None:
        lease = self._tenancy.ledger.lease(name)
        boxes = await self._try("its row", "it is listed", self._connector.list_boxes())
        box = next((b for b in boxes or () if b.mark == lease.mark), None)
        if boxes is not None:
            seen = "it is not listed" if box is None else f"it is listed as {box.state.value}"
            is_so = box is not None and box.state is BoxState.READY
            self._note("its row", "it is listed as ready", seen, is_so=is_so, fact="states")
        if lease.ready_at is not None and lease.active_at is not None:
            boot_s = (lease.ready_at - lease.active_at).total_seconds()
            most = self._profile.boot_timeout_s
            believed, seen = f"within {most:.0f} s", f"{boot_s:.0f} s"
            is_so = boot_s <= most
            self._note("start", believed, seen, is_so=is_so, fact="boot.timeout_s")
        if box is not None and lease.quote is not None:
            self._compare_prices(lease, box)
        if isinstance(self._connector, Findable):
            found = await self._try("by its id", "it is found", self._connector.find_box(lease))
            if found is not None:
                self._note("by its id", "it is found", "it is", is_so=True)
        if isinstance(self._connector, Chronicling):
            await self._note_told("starts and stops", self._connector.last_change(lease))

    async def _note_told(self, name: str, asked: Awaitable[str | None]) -> None:
        told = await self._try(name, "its provider tells them", asked)
        if told is not None:
            self._note(name, "its provider tells them", "they are told", is_so=True)

    def _compare_prices(self, lease: Lease, box: Box) -> None:
        quoted = lease.quote.offer.price.running_usd_h if lease.quote else None
        if quoted is None:
            return
        believed = f"{quoted} USD/h, as offered"
        if box.price_usd_h is None:
            self._note("its price", believed, "unknown", is_so=False, fact="billing.price_source")
            return
        is_so = abs(box.price_usd_h - quoted) <= quoted * _SAME_PRICE
        seen = f"{box.price_usd_h} USD/h"
        self._note("its price", believed, seen, is_so=is_so, fact="billing.price_source")

    async def _park_and_resume(self, lease: str, job: str) -> None:
        if not isinstance(self._connector, Parking) or self._profile.park == "none":
            return
        self._hear("parks the box, and starts it again")
        try:
            await self._tenancy.change_lease(lease, "park")
            parked = await self._wait_for(lease, BoxState.PARKED, self._profile.list_lag_s + 600)
        except TenantError as error:
            self._note("park", "it stops", str(error), is_so=False, fact="verbs.park")
            return
        seen = "it is listed as parked" if parked else "it is not listed as parked"
        self._note("park", "it stops", seen, is_so=parked is not None, fact="verbs.park")
        if parked is None:
            return
        offered = self._parked_usd_h(lease)
        if parked.price_usd_h is not None and offered is not None:
            is_so = abs(parked.price_usd_h - offered) <= max(
                offered * _SAME_PRICE, Decimal("0.0005")
            )
            self._note(
                "its price when parked",
                f"{offered} USD/h",
                f"{parked.price_usd_h} USD/h",
                is_so=is_so,
                fact="verbs.park.bills",
            )
        await self._resume(lease, job)

    def _parked_usd_h(self, lease: str) -> Decimal | None:
        quote = self._tenancy.ledger.lease(lease).quote
        return quote.offer.price.parked_usd_h if quote else None

    async def _resume(self, lease: str, job: str) -> None:
        tenancy, most = self._tenancy, self._profile.boot_timeout_s
        begun, believed = tenancy.clock.now(), f"within {most:.0f} s"
        try:
            await tenancy.change_lease(lease, "resume")
        except TenantError as error:
            self._note("resume", believed, str(error), is_so=False)
            return
        while True:
            took = (tenancy.clock.now() - begun).total_seconds()
            try:
                await tenancy.follow(lease, job, cursor=None, wait_s=0, limit_bytes=2048)
            except TenantError as error:
                if took > most or not tenancy.ledger.lease(lease).state.live:
                    self._note("resume", believed, str(error), is_so=False)
                    return
                await tenancy.clock.sleep(_AGAIN_S)
            else:
                self._note("resume", believed, f"{took:.0f} s", is_so=took <= most)
                return

    async def _wait_for(self, lease: str, state: BoxState, most_s: float) -> Box | None:
        clock, mark = self._tenancy.clock, self._tenancy.ledger.lease(lease).mark
        begun = clock.now()
        while (clock.now() - begun).total_seconds() <= most_s:
            with suppress(ProviderTrouble):
                for box in await self._connector.list_boxes():
                    if box.mark == mark and box.state is state:
                        return box
            await clock.sleep(_AGAIN_S)
        return None

    # --- the end

    async def _end(
        self, status: ErrandStatus | None
    ) -> tuple[Literal["gone", "nothing was rented", "not proved gone"], Lease | None]:
        """End what the errand rented, if it has not ended by itself, through the verb of every teardown."""
        ledger = self._tenancy.ledger
        leases = ledger.leases_of_errand(self._run) if self._run else ()
        for lease in leases:
            tries = 0
            while ledger.lease(lease.id).state.live and tries < _ENDS_TRIES:
                tries += 1
                try:
                    await self._tenancy.verify_and_teardown(lease.id)
                except Exception as error:  # noqa: BLE001 - the next try may go through
                    self._hear(f"its end: {error}")
                    await self._tenancy.clock.sleep(_ENDS_AGAIN_S)
        had = [ledger.lease(lease.id) for lease in leases]
        used = next((lease for lease in reversed(had) if lease.box_id is not None), None)
        back = [lease for lease in had if lease.box_id is not None and lease.touched_at is None]
        if back:
            seen = f"{some(len(back), 'box')} given back unused"
            self._note("the first box", "it is as offered", seen, is_so=False)
        if any(lease.state.live for lease in had):
            return "not proved gone", used
        return ("nothing was rented" if used is None else "gone"), used

    async def _look_at_the_end(self, lease: Lease) -> None:
        """Look until the bill stands still, and at what the account lists then."""
        self._hear("looks until the bill stands still")
        last: Decimal | None = None
        connector, clock = self._connector, self._tenancy.clock
        is_still = False
        for _ in range(_BILL_LOOKS if isinstance(connector, Billing) else 0):
            bill = None
            with suppress(ProviderTrouble):
                assert isinstance(connector, Billing)
                bill = await connector.ask_bill(lease)
            if bill is not None and bill.usd == last:
                is_still = True
                break
            last = last if bill is None else bill.usd
            await clock.sleep(_BILL_S)
        if isinstance(connector, Billing):
            seen = "no bill was told" if last is None else f"it stands at {usd_words(last)}"
            seen = seen if is_still or last is None else f"it still grows, at {usd_words(last)}"
            self._note("the bill", "it stands still after the end", seen, is_so=is_still)
            if last is not None:
                is_so = last <= self._max_usd
                counted = self._tenancy.ledger.cost_usd(lease, clock.now())
                if counted is not None:
                    is_like = last <= 2 * counted + Decimal("0.02")
                    believed = f"about {usd_words(counted)}, as counted here"
                    self._note("the bill and the count", believed, usd_words(last), is_so=is_like)
                self._note("the sum", f"within {self._max_usd} USD", usd_words(last), is_so=is_so)
        boxes = await self._try("after the end", "it is not listed", connector.list_boxes())
        if boxes is not None:
            there = [b for b in boxes if b.mark == lease.mark or b.id == lease.box_id]
            seen = f"it is listed as {there[0].state.value}" if there else "it is not listed"
            self._note(
                "after the end",
                "it is not listed",
                seen,
                is_so=not there,
                fact="verbs.destroy",
            )
        after = await self._read_balance("balance after it")
        if self._balance is not None and after is not None:
            spent = self._balance - after
            is_so = spent <= self._max_usd
            believed = f"within {self._max_usd} USD"
            self._note("what was taken", believed, f"{usd_words(spent)} less", is_so=is_so)

    # --- the report

    def _report(
        self,
        begun_at: datetime,
        ended: Literal["gone", "nothing was rented", "not proved gone"],
        lease: Lease | None,
        status: ErrandStatus | None,
    ) -> PilotReport:
        seen = {check.name: check for check in self._checks if check.verdict == "agrees"}
        questions = questions_of(self._provider)
        answers = tuple(
            PilotAnswer(id=q.id, asks=q.asks, seen=seen[q.by].seen)
            for q in questions
            if q.by in seen
        )
        receipt = status.ended.receipt if status is not None and status.ended else None
        return PilotReport(
            provider=self._provider,
            title=self._profile.title,
            version=__version__,
            at=begun_at,
            rehearsed=self._stage == "rehearsed",
            most_usd=self._max_usd,
            cost_usd=receipt.spent_usd if receipt else None,
            billed_usd=receipt.billed_usd if receipt else None,
            ended=ended,
            checks=tuple(self._checks),
            drift=tuple(d for d in self._drift() if (d.kind, d.what) not in self._known_drift),
            answers=answers,
            open_questions=tuple(q.id for q in questions if q.by not in seen),
            next=self._next(ended, lease, status),
        )

    def _next(self, ended: str, lease: Lease | None, status: ErrandStatus | None) -> str:
        if ended == "not proved gone" and lease is not None:
            return (
                f"{Command('teardown', lease.id)} until it is gone; if it never is, end it in the console of "
                f"{self._profile.title}"
            )
        if status is not None and status.outcome == "asks":
            return f"the same line with {Option('yes')}, if this may be rented"
        if any(check.verdict == "differs" for check in self._checks):
            return "read what differs; the report can be sent to the maintainers"
        return f"rent here: {Command('offers', on=self._provider)}"

    def _drift(self) -> tuple[Drifted, ...]:
        kept = read_drift(self._tenancy.context.home.root)
        return next((file.seen for file in kept if file.provider == self._provider), ())

    async def _try(self, name: str, believed: str, asked: Awaitable[T]) -> T | None:
        """Return what was asked for. If it fails, note that, and return None."""
        try:
            async with asyncio.timeout(180):
                return await asked
        except BadRequest as error:
            # Not every account or platform has each of these.
            shown = without_names(error.message)
            self._checks.append(
                PilotCheck(name=name, verdict="not tried", believed=believed, seen=shown)
            )
        except TimeoutError:
            self._note(name, believed, "no answer within 180 s", is_so=False)
        except TenantError as error:
            self._note(name, believed, str(error), is_so=False)
        except Exception as error:  # noqa: BLE001 - an odd answer is what a pilot is there to find
            self._note(name, believed, f"not understood: {type(error).__name__}", is_so=False)
        return None

    def _note(
        self, name: str, believed: str, seen: str, *, is_so: bool, fact: str | None = None
    ) -> None:
        verdict: Verdict = "agrees" if is_so else "differs"
        shown = without_names(seen)
        self._checks.append(
            PilotCheck(name=name, verdict=verdict, believed=believed, seen=shown, fact=fact)
        )
        self._hear(f"{name}: {seen}" + ("" if is_so else f" (believed: {believed})"))


def proved_facts(report: PilotReport) -> Sequence[tuple[str, str]]:
    """Return each fact of the profile that the pilot proved, and what was seen. A rehearsal proves none."""
    if report.rehearsed:
        return ()
    wrong = {check.fact for check in report.differs}
    proved: dict[str, str] = {}
    for check in report.checks:
        if check.fact and check.fact not in wrong:
            proved[check.fact] = check.seen
    return tuple(proved.items())
