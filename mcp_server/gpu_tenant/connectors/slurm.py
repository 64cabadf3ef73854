"""Boxes in a Slurm cluster: each is one job's allocation, from its start to its walltime."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from decimal import Decimal

from gpu_tenant.boxtext import plain
from gpu_tenant.errors import (
    BoxTrouble,
    BoxUnreachable,
    NoCapacity,
    ProviderSilent,
    ProviderTrouble,
)  # fmt: skip
from gpu_tenant.gpu_catalog import known
from gpu_tenant.market import Offer, Price, Wish
from gpu_tenant.model import Box, BoxId, BoxState, Lease, SlurmAddress
from gpu_tenant.permit import TeardownPermit, genuine
from gpu_tenant.ports import Finished, Setting, Transport, wanted
from gpu_tenant.slurm_batch import (
    UNCLAIMED,
    Site,
    array_name,
    batch,
    is_named,
    of_lease,
    of_task,
    order,
    site,
)
from gpu_tenant.slurm_queue import (
    ENDED_FIELDS,
    JOB_FIELDS,
    NOT_THERE,
    PARTITION_FIELDS,
    SEPARATOR,
    Pool,
    Seen,
    ended,
    jobs,
    newest,
    pools,
    refusal,
    words_of,
)

_ASKED_WITHIN_S = 60
_SETUP_S = 30.0
"""From a free GPU to a step that answers; how long a queue is, nobody knows."""
_REMEMBERED = "now-7days"
_OFFER = re.compile(r"(?P<partition>[^/\s]+)/(?P<gres>gpu(?::[^:\s]+)?):(?P<count>\d+)")

_QUEUE = """\
SLURM_TIME_FORMAT=%s
export SLURM_TIME_FORMAT
fields=$1 ended=$2 since=$3
shift 3
"$@" squeue --noheader --array --states=all --user="$(id -un)" --Format="$fields" || exit
echo
"$@" sacct --noheader --allocations --parsable2 --delimiter="$(printf '\\037')" --user="$(id -un)" \\
  --starttime="$since" --format="$ended" \\
  --state=TIMEOUT,PREEMPTED,NODE_FAIL,BOOT_FAIL,DEADLINE,OUT_OF_MEMORY,FAILED,COMPLETED 2>/dev/null
exit 0
"""
"""Jobs as the controller remembers them; then, where the site keeps accounts, those that it has forgotten."""


class SlurmConnector:
    """One user's jobs in one cluster, by the commands of its login node.

    A box is a job that carries a mark of ours. One that was ended by Slurm is shown, as broken, until
    it is torn down here: what it left in a shared home can still be kept. One that was cancelled is gone.
    """

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._states = setting.profile.states
        self._handed_back = setting.state / "slurm" / "handed_back"

    # --- boxes

    async def create(self, lease: Lease) -> Box:
        """As `Connector.create`: a job was submitted under the lease's mark, and may wait in the queue.

        A lease of a fleet gets a task of an array, see `_claimed`.
        """
        quote, owner = wanted(lease), self._site()
        ordered = _OFFER.fullmatch(quote.offer.id)
        if ordered is None:
            raise NoCapacity(
                f"no offer of this cluster is {quote.offer.id}",
                remedy="`gpu-tenant offers --provider slurm` has some",
            )
        options = order(
            owner, lease, partition=ordered["partition"],
            gres=f"{ordered['gres']}:{ordered['count']}", gpu_count=int(ordered["count"]),
            max_hours=quote.offer.max_hours, now=self._setting.clock.now(),
        )  # fmt: skip
        await asyncio.to_thread(self._handed_back.mkdir, 0o700, True, True)
        async with self._login(owner) as login:
            rows = await self._rows(login, owner)
            known_one = next((r for r in rows if r.mark == lease.mark and not r.is_over), None)
            if known_one is not None:
                if known_one.is_held:
                    await self._done(login, owner, "scontrol", "release", known_one.id)
                return self._box(known_one, owner, interruptible=quote.offer.interruptible)
            if (lease.fleet_size or 1) > 1:
                made = await self._claimed(login, owner, lease, options, rows)
                # Held until now: from here on it may start, and bill.
                await self._done(login, owner, "scontrol", "release", made)
            else:
                made = await self._submitted(login, owner, lease, options)
        return Box(
            provider="slurm", id=BoxId(made), mark=lease.mark, state=BoxState.BOOTING, address=None,
            price_usd_h=Decimal(0), running_usd_h=quote.offer.price.running_usd_h,
            interruptible=quote.offer.interruptible,
        )  # fmt: skip

    async def list_boxes(self) -> Sequence[Box]:
        """As `Connector.list_boxes`: every job of this user that is not over, and ours that Slurm ended.

        None where no cluster was ever named.
        """
        if not self._is_named():
            return []
        owner = self._site()
        async with self._login(owner) as login:
            return await self._boxes(login, owner)

    async def destroy(self, permit: TeardownPermit) -> None:
        """As `Connector.destroy`: the job was cancelled; what it wrote to a shared home stays."""
        box_id = genuine(permit, provider="slurm").box_id
        owner = self._site()
        async with self._login(owner) as login:
            told = await self._asked(login, owner, "scancel", box_id)
            if told.exit_status and not NOT_THERE.search(words_of(told)):
                raise refusal("scancel", told)
            await self._tidy(login, owner, box_id)
        # Slurm remembers for days what has ended: from now on that is no box any more.
        await asyncio.to_thread(self._hand_back, box_id)

    async def _tidy(self, login: Transport, owner: Site, box_id: str) -> None:
        """Tasks that no lease ever claimed do not wait on when the last lease of their array has ended."""
        array, is_task, _ = box_id.partition("_")
        if not is_task:
            return
        others = [
            row
            for row in await self._rows(login, owner)
            if row.id.startswith(f"{array}_") and row.id != box_id and not row.is_over
        ]
        if all(row.comment.startswith(UNCLAIMED) for row in others):
            for row in others:
                await self._asked(login, owner, "scancel", row.id)

    def _hand_back(self, box_id: str) -> None:
        self._handed_back.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self._handed_back / box_id).touch()

    async def timer_at(self, lease: Lease) -> datetime | None:
        """As `Timed.timer_at`: the end of the walltime, once the job has started."""
        owner = self._site()
        async with self._login(owner) as login:
            rows = await self._rows(login, owner)
        seen = next((row for row in rows if row.id == lease.box_id), None)
        return seen.ends_at if seen and seen.state == "RUNNING" else None

    # --- what can be had

    async def offers(self, wish: Wish) -> Sequence[Offer]:
        """As `Market.offers`: GPUs of each kind in each partition, at the rate that the owner states."""
        if not self._is_named():
            return []
        owner = self._site()
        async with self._login(owner) as login:
            found = await self._pools(login, owner)
        if wish.offer is not None:
            ordered = _OFFER.fullmatch(wish.offer)
            count = int(ordered["count"]) if ordered else 0
        else:
            count = wish.gpu_count
        offered = [
            _offer(pool, count, wish, owner)
            for pool in found
            if 0 < count <= pool.most_on_a_node
            if owner.partition in (None, pool.partition)
        ]
        return [offer for offer in offered if wish.offer in (None, offer.id)]

    # --- the commands

    async def _submitted(
        self, login: Transport, owner: Site, lease: Lease, options: Sequence[str]
    ) -> str:
        text = batch(of_lease(lease), grace_s=owner.grace_s)
        return await self._sbatch(login, owner, text, [*options, *_named(lease.mark)])

    async def _claimed(
        self,
        login: Transport,
        owner: Site,
        lease: Lease,
        options: Sequence[str],
        rows: Sequence[Seen],
    ) -> str:
        """A task of the fleet's array carries the lease's mark.

        The array was submitted at once, and held: a task that no lease has claimed never starts, so
        that no meter runs without a lease, and each lease has its own.
        """
        name = array_name(lease)
        task = next((row.id for row in rows if row.comment == name and not row.is_over), None)
        if task is None:
            at_once = "" if owner.max_running is None else f"%{owner.max_running}"
            array = ["--hold", f"--array=1-{lease.fleet_size}{at_once}", *_named(name)]
            text = batch(of_task(owner), grace_s=owner.grace_s)
            task = f"{await self._sbatch(login, owner, text, [*options, *array])}_1"
        claim = [f"JobId={task}", f"JobName={lease.mark}", f"Comment={lease.mark}"]
        await self._done(login, owner, "scontrol", "update", *claim)
        return task

    async def _sbatch(
        self, login: Transport, owner: Site, text: str, options: Sequence[str]
    ) -> str:
        told = await self._done(login, owner, "sbatch", "--parsable", *options, stdin=text.encode())
        made = re.match(rb"(\d+)", told.stdout)
        if made is None:
            raise refusal("sbatch", told)
        return made[1].decode()

    async def _boxes(self, login: Transport, owner: Site) -> list[Box]:
        rows = await self._rows(login, owner)
        firm = {p.partition: not p.interruptible for p in await self._pools(login, owner)}
        return [
            self._box(row, owner, interruptible=not firm.get(row.partition, True))
            for row in rows
            if row.state != "CANCELLED" and not row.comment.startswith(UNCLAIMED)
            if not row.is_over or (row.mark and not (self._handed_back / row.id).exists())
        ]

    def _box(self, row: Seen, owner: Site, *, interruptible: bool) -> Box:
        state = self._states.get(row.state, BoxState.UNKNOWN)
        rate = None if owner.rate_usd_h is None else owner.rate_usd_h * row.gpus
        bills = not row.is_over and state is not BoxState.BOOTING
        address = None
        if row.mark and (state is BoxState.READY or row.is_over):
            address = SlurmAddress(
                login=owner.login, before=owner.before, job=row.job,
                directory=f"gpu-tenant/{row.mark.rpartition(':')[2]}",
            )  # fmt: skip
        return Box(
            provider="slurm", id=BoxId(row.id), mark=row.mark, state=state, address=address,
            price_usd_h=rate if bills else Decimal(0), running_usd_h=rate,
            interruptible=interruptible, words=_said(row), taken=row.taken,
        )  # fmt: skip

    async def _rows(self, login: Transport, owner: Site) -> list[Seen]:
        fields = ",".join(f"{name}:{SEPARATOR}" for name in JOB_FIELDS)
        told = await self._run(
            login,
            [
                "sh",
                "-c",
                _QUEUE,
                "queue",
                fields,
                ",".join(ENDED_FIELDS),
                _REMEMBERED,
                *owner.before,
            ],
        )
        if told.exit_status:
            raise refusal("squeue", told)
        known_now, _, forgotten = told.stdout.decode(errors="replace").partition("\n\n")
        return list(newest([*ended(forgotten), *jobs(known_now)]).values())

    async def _pools(self, login: Transport, owner: Site) -> list[Pool]:
        fields = ",".join(f"{name}:{SEPARATOR}" for name in PARTITION_FIELDS)
        told = await self._done(login, owner, "sinfo", "--noheader", f"--Format={fields}")
        config = await self._done(login, owner, "scontrol", "show", "config")
        preempts = re.search(rb"PreemptType\s*=\s*(?!\(null\)|preempt/none)\S", config.stdout)
        return pools(told.stdout.decode(errors="replace"), preemption="on" if preempts else "off")

    async def _asked(
        self, login: Transport, owner: Site, command: str, *argv: str, stdin: bytes = b""
    ) -> Finished:
        return await self._run(login, [*owner.before, command, *argv], stdin=stdin)

    async def _done(
        self, login: Transport, owner: Site, command: str, *argv: str, stdin: bytes = b""
    ) -> Finished:
        """What that command of Slurm said; it succeeded."""
        told = await self._asked(login, owner, command, *argv, stdin=stdin)
        if told.exit_status:
            raise refusal(command, told)
        return told

    async def _run(self, login: Transport, argv: Sequence[str], *, stdin: bytes = b"") -> Finished:
        try:
            return await login.run(argv, stdin=stdin, timeout_s=_ASKED_WITHIN_S)
        except BoxUnreachable as trouble:
            raise ProviderSilent(
                f"the login node does not answer: {trouble.message}",
                remedy="try again in a minute; `gpu-tenant leases` looks again",
            ) from trouble
        except BoxTrouble as trouble:
            raise ProviderTrouble(
                f"the login node: {trouble.message}", remedy=trouble.remedy
            ) from trouble

    @asynccontextmanager
    async def _login(self, owner: Site) -> AsyncIterator[Transport]:
        login = self._setting.shell_at(owner.login)
        try:
            yield login
        finally:
            await login.aclose()

    def _is_named(self) -> bool:
        """Whether the configuration names a cluster, or a lease was ever begun in one."""
        return is_named(self._setting.state / "config.toml") or self._handed_back.parent.exists()

    def _site(self) -> Site:
        """The owner's word on the cluster.

        Raises:
            ProviderTrouble: there is none any more; nothing may be concluded of what runs there.
            LocalTrouble: it cannot be understood.
        """
        configuration = self._setting.state / "config.toml"
        if not is_named(configuration):
            raise ProviderTrouble(
                f"no cluster is named in {configuration}",
                remedy="write [slurm] there: `gpu-tenant profiles slurm` says what it may hold",
            )
        return site(configuration, self._setting.environ)


def connect(setting: Setting) -> SlurmConnector:
    """The connector for the cluster that `[slurm]` in config.toml names, or that this computer is in."""
    return SlurmConnector(setting)


def _offer(pool: Pool, count: int, wish: Wish, owner: Site) -> Offer:
    gpu = owner.gpus.get(pool.kind or "gpu", pool.kind or "unknown")
    model = known(gpu)
    rate = None if owner.rate_usd_h is None else owner.rate_usd_h * count
    rest = None if rate is None else Decimal(0)
    notes = [f"{pool.free} of {pool.total} in partition {pool.partition} are free now"]
    if pool.free < count:
        notes[0] += ": it waits in the queue, at no cost"
    if rate is None:
        notes.append("say what an hour of a GPU is worth: rate_usd_h under [slurm]; 0 is a rate")
    if model is None:
        notes.append(f"say what {pool.kind or 'gpu'} is: [slurm.gpus] in config.toml")
    return Offer(
        provider="slurm",
        id=f"{pool.partition}/gpu{f':{pool.kind}' if pool.kind else ''}:{count}",
        gpu=model.name if model else gpu,
        gpu_count=count,
        vram_gib=model.vram_gib if model else None,
        region=pool.partition,
        price=Price(
            gpu_usd_h=rate, disk_usd_h=rest, parked_usd_h=None, upload_usd_gb=rest,
            download_usd_gb=rest, source="owner",
        ),
        disk_gb=wish.disk_gb,
        interruptible=pool.interruptible,
        trust="datacenter",
        reliability=None,
        max_hours=pool.max_hours,
        download_mbps=None,
        upload_mbps=None,
        setup_s=_SETUP_S,
        notes=tuple(notes),
    )  # fmt: skip


def _named(name: str) -> list[str]:
    return [f"--job-name={name}", f"--comment={name}"]


def _said(row: Seen) -> str | None:
    """What Slurm calls it, where that says more than its state in our words."""
    if row.state == "RUNNING" and not row.is_being_preempted:
        return None
    words = f"Slurm says {row.state}" + (f" ({row.reason})" if row.reason else "")
    if row.is_being_preempted:
        words += ": it is being preempted"
    if row.restarts and row.state == "PENDING":
        words += f": it waits to start again, for the {row.restarts}. time, after a preemption or a lost node"
    if row.state == "OUT_OF_MEMORY":
        words += ": ask for more with mem_gb_per_gpu under [slurm]"
    return plain(words)
