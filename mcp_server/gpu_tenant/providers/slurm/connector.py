"""Boxes in a Slurm cluster: each is one job's allocation, from its start to its walltime."""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from decimal import Decimal

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    BoxTrouble,
    BoxUnreachable,
    NoCapacity,
    ProviderSilent,
    ProviderTrouble,
)
from gpu_tenant.domain.model import MARK_PREFIX, Box, BoxId, BoxState, Lease, SlurmAddress
from gpu_tenant.domain.offers import Offer, Price, Wish
from gpu_tenant.domain.order import AtProvider
from gpu_tenant.domain.permit import TeardownPermit, genuine
from gpu_tenant.domain.ports import Finished, Setting, Transport, wanted_quote
from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.domain.wording import some
from gpu_tenant.providers.drift import Drift
from gpu_tenant.providers.gpu_catalog import known_gpu
from gpu_tenant.providers.list_rows import Subject, read_each
from gpu_tenant.providers.slurm.batch_script import (
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
from gpu_tenant.providers.slurm.command_output import (
    ENDED_FIELDS,
    JOB_FIELDS,
    NOT_THERE,
    PARTITION_FIELDS,
    QUEUE,
    SEPARATOR,
    Pool,
    SlurmAnswer,
    SlurmJob,
    odd_row,
    parse_queue,
    parse_submitted,
    pools,
    refusal,
    words_of,
)
from gpu_tenant.providers.slurm.state import SlurmNotes

_ASKED_WITHIN_S = 60
_SETUP_S = 30.0
"""Seconds from the moment when a GPU is free until a command in the job answers. The time in the queue is unknown."""
_REMEMBERED = "now-7days"
_OFFER = re.compile(r"(?P<partition>[^/\s]+)/(?P<gres>gpu(?::[^:\s]+)?):(?P<count>\d+)")
_LEFT = timedelta(hours=1)
"""A task that nobody has claimed for this long does not wait for a lease any more."""


class SlurmConnector:
    """One user's jobs in one cluster, through the commands of its login node.

    A box is a job that carries one of our marks. A job that Slurm ended is shown as broken until it is torn down
    here, because what it left in a shared home can still be kept. A cancelled job is gone.
    """

    has_registry_logins = False

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._states = setting.profile.states
        self._notes = SlurmNotes(setting.state / "slurm")

    # --- boxes

    async def create(self, lease: Lease) -> Box:
        """Implement `Connector.create`: submit a job under the lease's mark. The job may wait in the queue.

        A lease of a fleet gets one task of an array: see `_claim_task`.
        """
        quote, owner = wanted_quote(lease), self._site()
        ordered = _OFFER.fullmatch(quote.offer.id)
        if ordered is None:
            raise NoCapacity(
                f"this cluster has no offer {quote.offer.id}",
                remedy=f"{Command('offers', on='slurm')} lists its offers",
            )
        options = order(
            owner,
            lease,
            partition=ordered["partition"],
            gres=f"{ordered['gres']}:{ordered['count']}",
            gpu_count=int(ordered["count"]),
            max_hours=quote.offer.max_hours,
            now=self._setting.clock.now(),
        )
        async with self._login(owner) as login:
            said = await self._ask_queue(login, owner, of=lease)
            rows = said.rows
            known_one = next((r for r in rows if r.mark == lease.mark and not r.is_over), None)
            if known_one is not None:
                if known_one.is_held:
                    await self._run_checked(login, owner, "scontrol", "release", known_one.id)
                return self._box(known_one, owner, interruptible=quote.offer.interruptible)
            said.must_show_mark(lease.mark)
            if (lease.fleet_size or 1) > 1:
                box_id = await self._claim_task(login, owner, lease, options, rows)
                # The task was held until now. From here on it may start, and bill.
                await self._run_checked(login, owner, "scontrol", "release", box_id)
            else:
                text = batch(of_lease(lease), grace_s=owner.grace_s)
                box_id = await self._sbatch(
                    login, owner, text, [*options, *_name_arguments(lease.mark)]
                )
        return Box(
            provider="slurm",
            id=BoxId(box_id),
            mark=lease.mark,
            state=BoxState.BOOTING,
            address=None,
            price_usd_h=Decimal(0),
            running_usd_h=quote.offer.price.running_usd_h,
            interruptible=quote.offer.interruptible,
        )

    async def list_boxes(self) -> Sequence[Box]:
        """Implement `Connector.list_boxes`: the user's jobs that are not over, and those of ours that Slurm ended.

        Empty if no cluster was ever named.
        """
        if not self._is_named():
            return []
        owner = self._site()
        async with self._login(owner) as login:
            return await self._boxes(login, owner)

    async def destroy(self, permit: TeardownPermit) -> None:
        """Implement `Connector.destroy`: cancel the job. What it wrote to a shared home stays.

        Raises:
            ProviderTrouble: that id now belongs to another job, which was left alone.
        """
        shown = genuine(permit, provider="slurm")
        owner = self._site()
        async with self._login(owner) as login:
            said = await self._ask_queue(login, owner)
            row = next((row for row in said.rows if row.id == shown.box_id), None)
            if row is None:
                said.must_show(shown.box_id)
                return
            self._notes.check_ours(row.id, row.mark, lease=shown.lease_id)
            answer = await self._run_at_login(login, owner, "scancel", row.id)
            if answer.exit_status and not NOT_THERE.search(words_of(answer)):
                raise refusal("scancel", answer)
            if not said.odd:
                others = [each for each in said.rows if each.id != row.id]
                await self._tidy(login, owner, others, array=row.array)
        # Slurm lists ended jobs for days. This note says that the job is no longer a box.
        await asyncio.to_thread(self._notes.hand_back, row.id, row.mark)

    async def _tidy(
        self, login: Transport, owner: Site, rows: Sequence[SlurmJob], *, array: str
    ) -> None:
        """Cancel the array's tasks that no lease claimed, once the last lease of the array has ended."""
        others = [row for row in rows if row.array == array and not row.is_over]
        left = [row for row in others if _is_unclaimed(row)]
        if left and not any(row.mark for row in others):
            # Select by name as well, because a task that was claimed a moment ago has another name.
            only = ["--state=PENDING", f"--name={left[0].comment}"]
            await self._run_at_login(login, owner, "scancel", *only, *(row.id for row in left))

    async def timer_at(self, lease: Lease) -> datetime | None:
        """Implement `Timed.timer_at`: the end of the walltime, once the job has started."""
        owner = self._site()
        async with self._login(owner) as login:
            said = await self._ask_queue(login, owner)
        seen = next((row for row in said.rows if row.id == lease.box_id), None)
        if seen is None:
            said.must_show(str(lease.box_id))
        return seen.ends_at if seen and seen.state == "RUNNING" else None

    # --- what can be rented

    def refused_image(self, source: AtProvider) -> str | None:
        """Implement `Imaging.refused_image`: a job has the software of its site. Its command can enter an image."""
        if source.template is not None:
            return "a cluster has no templates"
        return (
            "its boxes have the software of the site, and gpu-tenant starts no container there; set `image` only "
            "under the other platforms, in [provider.NAME]; if the site has Apptainer, let the job's own command enter the image: "
            f"`apptainer exec --nv docker://{source.image} COMMAND`"
        )

    async def offers(self, wish: Wish) -> Sequence[Offer]:
        """Implement `Market.offers`: GPUs of each kind in each partition, at the rate that the owner states."""
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

    async def _claim_task(
        self,
        login: Transport,
        owner: Site,
        lease: Lease,
        options: Sequence[str],
        rows: Sequence[SlurmJob],
    ) -> str:
        """Claim a task of the fleet's array for the lease: give it the lease's mark, and return its id.

        The whole array is submitted at once, and held. A task starts only when a lease has claimed it. So no meter
        runs without a lease, and each lease has its own task.
        """
        name = array_name(lease)
        task = next((row.id for row in rows if row.comment == name and row.is_held), None)
        if task is None:
            at_once = "" if owner.max_running is None else f"%{owner.max_running}"
            array = ["--hold", f"--array=1-{lease.fleet_size}{at_once}", *_name_arguments(name)]
            text = batch(of_task(owner), grace_s=owner.grace_s)
            task = f"{await self._sbatch(login, owner, text, [*options, *array])}_1"
        claim = [f"JobId={task}", f"JobName={lease.mark}", f"Comment={lease.mark}"]
        await self._run_checked(login, owner, "scontrol", "update", *claim)
        return task

    async def _sbatch(
        self, login: Transport, owner: Site, text: str, options: Sequence[str]
    ) -> str:
        answer = await self._run_checked(
            login, owner, "sbatch", "--parsable", *options, stdin=text.encode()
        )
        return parse_submitted(answer)

    async def _boxes(self, login: Transport, owner: Site) -> Sequence[Box]:
        said = await self._ask_queue(login, owner)
        rows = said.rows
        firm = {p.partition: not p.interruptible for p in await self._pools(login, owner)}
        for array in {row.array for row in rows if self._is_left(row) and not said.odd}:
            await self._tidy(login, owner, rows, array=array)
        there = [
            row
            for row in rows
            if row.state != "CANCELLED" and not _is_unclaimed(row)
            if not row.is_over or self._notes.is_ours(row.id, row.mark)
        ]

        def read(row: SlurmJob | Subject) -> Box:
            if isinstance(row, Subject):
                raise odd_row()
            return self._box(row, owner, interruptible=not firm.get(row.partition, True))

        every: list[SlurmJob | Subject] = [*there, *said.odd]
        return read_each("slurm", every, read, _subject, Drift(self._setting))

    def _is_left(self, row: SlurmJob) -> bool:
        """Whether the task waits for a lease of this deployment, and no lease has claimed it for a long time."""
        of = row.comment.removeprefix(UNCLAIMED).partition("/")[0]
        return (
            _is_unclaimed(row)
            and self._notes.is_here(f"{MARK_PREFIX}{of}")
            and row.submitted_at is not None
            and self._setting.clock.now() - row.submitted_at > _LEFT
        )

    def _box(self, row: SlurmJob, owner: Site, *, interruptible: bool) -> Box:
        state = self._states.get(row.state, BoxState.UNKNOWN)
        rate = None if owner.rate_usd_h is None else owner.rate_usd_h * row.gpus
        bills = not row.is_over and state is not BoxState.BOOTING
        address = None
        if row.mark and (state is BoxState.READY or row.is_over):
            address = SlurmAddress(
                login=owner.login,
                before=owner.before,
                job=row.job,
                directory=f"gpu-tenant/{row.mark.rpartition(':')[2]}",
            )
        return Box(
            provider="slurm",
            id=BoxId(row.id),
            mark=row.mark,
            state=state,
            address=address,
            price_usd_h=rate if bills else Decimal(0),
            running_usd_h=rate,
            booting_usd_h=Decimal(0),
            interruptible=interruptible,
            words=_state_words(row),
            taken=row.taken,
            created_at=row.submitted_at,
        )

    async def _ask_queue(
        self, login: Transport, owner: Site, *, of: Lease | None = None
    ) -> SlurmAnswer:
        """Return every job in the cluster where the leases are. If `of` is given, note that this lease is begun there.

        Raises:
            ProviderTrouble: another cluster answers.
        """
        fields = ",".join(f"{name}:{SEPARATOR}" for name in JOB_FIELDS)
        nonce = secrets.token_hex(8)
        asked = [nonce, fields, ",".join(ENDED_FIELDS), _REMEMBERED, *owner.before]
        answer = parse_queue(await self._run(login, ["sh", "-c", QUEUE, "queue", *asked]), nonce)
        if of is not None:
            await asyncio.to_thread(self._notes.begin, of.mark, cluster=answer.cluster)
        self._notes.check(answer.cluster)
        return answer

    async def _pools(self, login: Transport, owner: Site) -> list[Pool]:
        fields = ",".join(f"{name}:{SEPARATOR}" for name in PARTITION_FIELDS)
        shown = await self._run_checked(login, owner, "sinfo", "--noheader", f"--Format={fields}")
        config = await self._run_checked(login, owner, "scontrol", "show", "config")
        preempts = re.search(rb"PreemptType\s*=\s*(?!\(null\)|preempt/none)\S", config.stdout)
        return pools(shown.stdout.decode(errors="replace"), preemption="on" if preempts else "off")

    async def _run_at_login(
        self, login: Transport, owner: Site, command: str, *argv: str, stdin: bytes = b""
    ) -> Finished:
        return await self._run(login, [*owner.before, command, *argv], stdin=stdin)

    async def _run_checked(
        self, login: Transport, owner: Site, command: str, *argv: str, stdin: bytes = b""
    ) -> Finished:
        """Run a Slurm command that must succeed, and return its result."""
        answer = await self._run_at_login(login, owner, command, *argv, stdin=stdin)
        if answer.exit_status:
            raise refusal(command, answer)
        return answer

    async def _run(self, login: Transport, argv: Sequence[str], *, stdin: bytes = b"") -> Finished:
        try:
            return await login.run(argv, stdin=stdin, timeout_s=_ASKED_WITHIN_S)
        except BoxUnreachable as trouble:
            raise ProviderSilent(
                f"the login node does not answer: {trouble.message}",
                remedy=f"try again in a minute; {Command('leases')} looks again",
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
        return is_named(self._setting.state / "config.toml") or self._notes.exist

    def _site(self) -> Site:
        """Return the owner's settings for the cluster.

        Raises:
            ProviderTrouble: the settings are gone, or cannot be understood. Nothing was asked, so nothing may be
                concluded about what runs there.
        """
        configuration = self._setting.state / "config.toml"
        if not is_named(configuration):
            raise ProviderTrouble(
                f"no cluster is named in {configuration}",
                remedy=f"write [slurm] there: {Command('profiles', 'slurm')} lists its settings",
            )
        return site(configuration, self._setting.environ)


def connect(setting: Setting) -> SlurmConnector:
    """Return the connector for the cluster that `[slurm]` in config.toml names, or that this computer belongs to."""
    return SlurmConnector(setting)


def _offer(pool: Pool, count: int, wish: Wish, owner: Site) -> Offer:
    gpu = owner.gpus.get(pool.kind or "gpu", pool.kind or "unknown")
    model = known_gpu(gpu)
    rate = None if owner.rate_usd_h is None else owner.rate_usd_h * count
    rest = None if rate is None else Decimal(0)
    notes = [f"free now in partition {pool.partition}: {pool.free} of {some(pool.total, 'GPU')}"]
    if pool.free < count:
        notes[0] += f"; a job for {some(count, 'GPU')} waits in the queue, at no cost"
    if rate is None:
        notes.append(
            "set rate_usd_h under [slurm] to the price of one GPU for an hour; 0 is allowed"
        )
    if model is None:
        kind = pool.kind or "gpu"
        notes.append(
            f"name the GPU model that this cluster calls {kind!r}, under [slurm.gpus] in config.toml"
        )
    return Offer(
        provider="slurm",
        id=f"{pool.partition}/gpu{f':{pool.kind}' if pool.kind else ''}:{count}",
        gpu=model.name if model else gpu,
        gpu_count=count,
        vram_gib=model.vram_gib if model else None,
        region=pool.partition,
        price=Price(
            gpu_usd_h=rate,
            disk_usd_h=rest,
            parked_usd_h=None,
            upload_usd_gb=rest,
            download_usd_gb=rest,
            source="owner",
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
    )


def _subject(row: SlurmJob | Subject) -> Subject:
    return row if isinstance(row, Subject) else Subject(row.id, row.mark, mark_is_told=True)


def _name_arguments(name: str) -> list[str]:
    return [f"--job-name={name}", f"--comment={name}"]


def _is_unclaimed(row: SlurmJob) -> bool:
    """Whether the task is held and no lease has claimed it. A task that may start is a box, and bills."""
    return row.comment.startswith(UNCLAIMED) and row.is_held


def _state_words(row: SlurmJob) -> str | None:
    """Return Slurm's words for the job's state. None if they say no more than our own words."""
    if row.state == "RUNNING" and not row.is_being_preempted:
        return None
    words = f"Slurm says {quote_text(row.state)}" + (
        f" ({quote_text(row.reason)})" if row.reason else ""
    )
    if row.is_being_preempted:
        words += ": it is being preempted"
    if row.restarts and row.state == "PENDING":
        words += f": it waits to start again after a preemption or the loss of a node (restart {row.restarts})"
    if row.state == "OUT_OF_MEMORY":
        words += ": ask for more with mem_gb_per_gpu under [slurm]"
    return words
