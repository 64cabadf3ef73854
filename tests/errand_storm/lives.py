"""One errand under faults that its seed draws: of the platform, the link, the job and the person."""

import random
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from e2e.renting import CREATE, DESTROY, LIST, Tenant, tenant_at
from errands import MODEL, a_tree, an_errand

from gpu_tenant.domain.errors import BoxUnreachable, TenantError
from gpu_tenant.domain.model import Lease, LeaseState
from gpu_tenant.domain.permit import TeardownPermit
from gpu_tenant.domain.ports import Transport
from gpu_tenant.errands.answers import ErrandStatus, RentalPlan, Unanswered
from gpu_tenant.errands.drive import Answers, Drive, begin
from gpu_tenant.jobs.monitor import Watched
from gpu_tenant.service import Tenancy

PROVIDERS = ("vastai", "runpod", "lambda_cloud", "digitalocean")
UNCLAIMED = "writes what nobody has claimed"
JOBS = {
    "ends well": "",
    UNCLAIMED: "echo odd > notes.txt",
    "fails": "exit 3",
    "is killed": "kill -9 $$",
    "runs a while": "sleep 1.5",
}
MAX_USD = Decimal(50)
_MOST_LINES = 25
"""How often the person gives the same line again. A person who gives up later is not helped by a receipt."""
_AWAY_S = 60


class PersonLeft(Exception):
    """The person closed the terminal."""


@dataclass
class Lived:
    """What became of one errand."""

    seed: int
    provider: str
    job: str
    faults: list[str] = field(default_factory=list)
    outcome: str = ""
    lines: int = 0
    wrongs: list[str] = field(default_factory=list)


class BrokenLink:
    """A real way to a box, which is cut at some calls: before them, or after them, when the answer is lost."""

    def __init__(self, real: Transport, dice: random.Random, share: float) -> None:
        self._real, self._dice, self._share = real, dice, share

    async def run(self, *args: Any, **more: Any) -> Any:
        self._maybe_cut()
        told = await self._real.run(*args, **more)
        self._maybe_cut()
        return told

    async def put(self, *args: Any, **more: Any) -> None:
        self._maybe_cut()
        await self._real.put(*args, **more)
        self._maybe_cut()

    async def open(self, *args: Any, **more: Any) -> Any:
        self._maybe_cut()
        return await self._real.open(*args, **more)

    async def aclose(self) -> None:
        await self._real.aclose()

    def _maybe_cut(self) -> None:
        if self._dice.random() < self._share:
            raise BoxUnreachable("the link broke", remedy="look again")


class Someone:
    """A person who agrees late, leaves at times, and answers what is asked at the second time."""

    def __init__(self, dice: random.Random, *, leaves: float, agrees: float) -> None:
        self._dice, self._leaves, self._agrees = dice, leaves, agrees
        self.tenancy: Tenancy
        self.asked = Counter[str]()

    def hear(self, words: str) -> None:
        if self._dice.random() < self._leaves:
            raise PersonLeft(words)

    @property
    def agrees_ahead(self) -> bool:
        return False

    async def agree(self, plan: RentalPlan) -> str | None:
        return "person" if self._dice.random() < self._agrees else None

    async def follow(self, lease: str, job: str) -> Watched:
        if self._dice.random() < self._leaves:
            raise PersonLeft(job)
        return await self.tenancy.follow(lease, job, cursor=None, wait_s=1, limit_bytes=4096)

    async def answer(self, asks: Unanswered) -> Answers | None:
        self.asked[asks.lease] += 1
        if self.asked[asks.lease] < 2:
            return None
        return Answers(discard=(*asks.unclaimed, *asks.never_appeared))


class WatchedConnector:
    """A real connector. Each destroy that reaches it is held against what is on this computer by then."""

    def __init__(self, real: Any, tenant: Tenant, wrongs: list[str]) -> None:
        self._real, self._tenant, self._wrongs = real, tenant, wrongs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def destroy(self, permit: TeardownPermit) -> None:
        lease = self._tenant.tenancy.ledger.lease(permit.lease_id)
        ran = any(job.launched_at for job in self._tenant.tenancy.ledger.jobs(lease.id))
        kept = Path(lease.kept_in or "nowhere") / "work/out/model.json"
        if ran and not (kept.is_file() and kept.read_text(encoding="utf-8").strip() == MODEL):
            self._wrongs.append(f"{permit.lease_id} was destroyed and its model is not here")
        await self._real.destroy(permit)


def _faults(dice: random.Random, tenant: Tenant) -> list[str]:
    """Set what goes wrong at the platform, and return it in words."""
    told = []
    for call, (method, path) in {
        "create": CREATE[tenant.slug],
        "list": LIST[tenant.slug],
        "destroy": DESTROY[tenant.slug],
    }.items():
        if dice.random() < 0.4:
            do = dice.choice(["drop_before", "drop_after", "status", "delay", "twice"])
            if do == "twice" and call == "list":
                continue
            nth, times = dice.randint(1, 3), dice.randint(1, 4) if call == "list" else 1
            more = {"delay": {"seconds": 20.0}, "status": {"status": 503}}.get(do, {})
            tenant.stage.world.state.faults.append(_fault(do, method, path, nth, times, more))
            told.append(f"{call}: {do} x{times} from {nth}")
    return told


def _fault(do: str, method: str, path: str, nth: int, times: int, more: dict[str, Any]) -> Any:
    from gpu_tenant.emulators.faults import Fault, Match

    match = Match(method=method, path_regex=path, nth=nth)
    return Fault.model_validate({"do": do, "match": match.model_dump(), "times": times, **more})


async def live(seed: int, root: Path) -> Lived:
    """Live through one errand, giving the same line again until it ends or nobody would go on."""
    dice = random.Random(seed)
    provider, job = dice.choice(PROVIDERS), dice.choice(list(JOBS))
    lived = Lived(seed, provider, job)
    async with tenant_at(provider, root, time="runs") as tenant:
        lived.faults = _faults(dice, tenant)
        cut = dice.choice([0, 0, 0.02, 0.06])
        leaves = dice.choice([0, 0, 0.05, 0.15])
        someone = Someone(dice, leaves=leaves, agrees=dice.choice([1, 1, 0.5]))
        tree = a_tree(root / "tree", JOBS[job])
        # By default the file comes home unasked. So the person is asked about it.
        asks = {"unasked_gib": 0} if job == UNCLAIMED else {}
        lived.faults += [f"link {cut}", f"leaves {leaves}"]
        way_to = tenant._way_to

        def broken(lease: Lease) -> Transport:
            return BrokenLink(way_to(lease), dice, cut)

        tenant._way_to = broken  # type: ignore[method-assign]
        standing: ErrandStatus | None = None
        last = ""
        while lived.lines < _MOST_LINES:
            lived.lines += 1
            tenancy = tenant.tenancy if lived.lines == 1 else tenant.anew_tenancy()
            context = tenancy.context
            context.connectors = {
                name: WatchedConnector(real, tenant, lived.wrongs)
                for name, real in context.connectors.items()
            }
            someone.tenancy = tenancy
            try:
                errand = an_errand(tenancy, tree, smoke="none", max_usd=MAX_USD, **asks)
                drive = Drive(tenancy, begin(tenancy, errand), someone)
                standing = await drive.go_on()
            except PersonLeft:
                await tenancy.clock.sleep(_AWAY_S)
                continue
            except TenantError as trouble:
                last = str(trouble)
                await tenancy.clock.sleep(_AWAY_S)
                continue
            if standing.outcome != "asks":
                break
            if standing.asks is None and standing.plan is None:
                lived.wrongs.append(f"it waits for nothing that has a name: {standing}")
                break
        _judge(lived, tenant, standing, last)
    return lived


def _judge(lived: Lived, tenant: Tenant, standing: ErrandStatus | None, last: str) -> None:
    ledger, wrongs = tenant.tenancy.ledger, lived.wrongs
    if standing is None or standing.outcome == "under way":
        wrongs.append(f"after {lived.lines} lines it has no end: {last}")
        return
    lived.outcome = standing.outcome
    if standing.outcome == "asks":
        return
    if standing.ended is None:
        wrongs.append(f"no receipt: {standing}")
        return
    if lived.job in ("ends well", "runs a while") and standing.outcome != "done":
        wrongs.append(f"the job ended well, and the errand did not: {standing.words}")
    leases = ledger.leases()
    if sum(x.state is LeaseState.GONE and x.touched_at is not None for x in leases) != 1:
        wrongs.append(f"boxes that were used: {[(x.id, x.state) for x in leases]}")
    if tenant.alive or tenant.billing_usd_h or tenant.meter["leaked"]:
        wrongs.append(f"something bills: {tenant.meter}")
    if sum(map(Decimal, tenant.meter["by_thing"].values())) > MAX_USD:
        wrongs.append(f"above the cap: {tenant.meter['by_thing']}")
    ran = (tenant.root / "ran").read_text(encoding="utf-8").split()
    if ran != ["ran"]:
        wrongs.append(f"the job ran {len(ran)} times")
