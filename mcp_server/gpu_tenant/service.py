"""Tenancy: the verbs of a lease, as every face offers them.

Each method's docstring is the tool's description and the command's help. Its signature is the schema. Its return
model is the structured output and the `--json` output.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict, Unpack

from pydantic import Field, JsonValue, ValidationError

from gpu_tenant.domain import timeline
from gpu_tenant.domain.choices import MOST_BOXES, USUAL_TRUST, SaidWhenDone, Trust, WhenIdle
from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import (
    BadRequest,
    BoxTrouble,
    BoxUnreachable,
    LeaseHeld,
    ProviderTrouble,
    TenantError,
)
from gpu_tenant.domain.interruption import fate_met, recorded_fate
from gpu_tenant.domain.job_state import ENDED
from gpu_tenant.domain.model import BoxState, JobId, Lease, LeaseState
from gpu_tenant.domain.offers import DISK_GB, Wish
from gpu_tenant.domain.ports import Market
from gpu_tenant.domain.record import Amount, Hours
from gpu_tenant.domain.terms import RentRequest
from gpu_tenant.domain.wording import some
from gpu_tenant.files.skill_files import script
from gpu_tenant.leases.context import PAGE, WAIT_S, Context, LeaseName, call_bytes_s, progress_to
from gpu_tenant.leases.readiness import (
    active,
    fulfil_intent,
    must_be_idle,
    must_not_be_parked,
    must_run,
    settled_if_free,
    silence_explained,
    why_silent,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from decimal import Decimal

    from gpu_tenant.answers import (
        Audited,
        Card,
        Checkup,
        Collected,
        Found,
        Launched,
        Leases,
        Prepared,
        Pushed,
        QuickLook,
        RunTold,
        SmokeReceipt,
        TornDown,
        Watched,
    )
    from gpu_tenant.domain.model import Profile
    from gpu_tenant.domain.order import Order
    from gpu_tenant.domain.ports import Clock
    from gpu_tenant.domain.stop_cause import StopCause
    from gpu_tenant.domain.sweep_grid import Grid
    from gpu_tenant.errands.answers import RentalPlan
    from gpu_tenant.files.state_dir import Home
    from gpu_tenant.jobs.failure_cause import BoxSeen
    from gpu_tenant.leases.gpu_gate import GateResult
    from gpu_tenant.leases.owner_approval import Unguarded
    from gpu_tenant.leases.spending_plan import SpendingPlan
    from gpu_tenant.ledger import Ledger
    from gpu_tenant.sweeps.commands import SweepReport

_AGENT_LOG_BYTES = 6_000
"""How much log one answer holds. A host cuts a tool's output in the middle at some 8 to 12 thousand."""

_MOST_BURN_S = 60
"""The meter runs while a load tells what the GPUs can do."""

JobName = Annotated[str | None, Field(description="job id; the newest when left out")]


class RentWords(TypedDict, total=False):
    """The terms of a rental, as a call of `provision` says them."""

    hours: float | None
    max_price_usd_h: Decimal | None
    budget_usd: Decimal | None
    idle_h: float | None
    when_idle: WhenIdle
    when_done: SaidWhenDone
    on_failure: str
    rescue_usd: Decimal | None
    unasked_gib: float | None
    store: str | None
    recover: Sequence[str]
    order: str | Order
    name: str


class Tenancy:
    """One user's leases, and what can be done about them."""

    def __init__(self, context: Context) -> None:
        self.context = context

    @property
    def home(self) -> Home:
        """The state directory."""
        return self.context.home

    @property
    def ledger(self) -> Ledger:
        """What is believed after a crash."""
        return self.context.ledger

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """Every platform's facts, by its slug."""
        return self.context.profiles

    @property
    def clock(self) -> Clock:
        """The clock that this tenancy goes by."""
        return self.context.clock

    async def aclose(self) -> None:
        """Close every connection. Boxes, jobs and leases continue as they are."""
        await self.context.aclose()

    async def run(
        self,
        id: Annotated[str, Field(description="of a run, to go on")] = "",
        directory: Annotated[str, Field(description="work tree here")] = "",
        command: str = "",
        artifacts: Annotated[list[str], Field(description="must be kept: ['out/']")] = [],  # noqa: B006 - never changed; a schema default
        discard: Annotated[list[str], Field(description="may be lost")] = [],  # noqa: B006 - never changed; a schema default
        gpu: str = "",
        hours: Annotated[float, Field(ge=0, description="of work")] = 0,
        max_usd: Annotated[float, Field(ge=0, description="in all")] = 0,
        smoke: Annotated[str, Field(description="a shorter command; none")] = "",
        on: Annotated[str, Field(description="local, own or one provider")] = "",
        include: list[str] = [],  # noqa: B006 - never changed; a schema default
        vram_gib: Annotated[float, Field(ge=0, description="of each GPU")] = 0,
        to: Annotated[str, Field(description="directory here for results")] = "",
        agree: Annotated[Literal["", "yes"], Field(description="the person agrees to rent")] = "",
    ) -> RunTold:
        """All of it in one: smoke test, offers, a plan to show, rent, push, launch, collect, prove, teardown.

        Call again with its id until done. What it asks at the end: with artifacts, discard.
        """
        from gpu_tenant.errands.calls import AgentCall

        said = {
            "command": command,
            "artifacts": tuple(artifacts),
            "discard": tuple(discard),
            "gpu": gpu,
            "hours": hours or None,
            "max_usd": max_usd or None,
            "smoke": smoke,
            "on": on,
            "include": tuple(include),
            "vram_gib": vram_gib or None,
            "to": to,
        }
        call = AgentCall(self, by="agent" if agree else None)
        return await call.go_on(call.name(id, directory, said))

    async def plan_run(
        self, id: str = "", directory: str = "", **said: object
    ) -> RentalPlan | None:
        """Do as `run` until somebody has to agree. None if nobody has to, or there is nothing to agree to yet."""
        from gpu_tenant.errands.calls import AgentCall

        call = AgentCall(self, by=None)
        given = {k: tuple(v) if isinstance(v, list) else v or None for k, v in said.items()}
        name = call.name(id, directory, given)
        if call.is_undecided(name):
            await call.go_on(name)
        return call.plan

    def decline_run(self, plan: RentalPlan) -> None:
        """Record that a person has declined that plan of a run, which is over then."""
        from gpu_tenant.errands.calls import AgentCall

        AgentCall(self, by=None).decline(plan)

    async def find_offers(
        self,
        gpu: Annotated[
            str | None, Field(description="'H100:8', 'RTX 4090|RTX 3090' (best first)")
        ] = None,
        hours: Annotated[float, Field(gt=0, le=8760, description="on the first GPU")] = 1,
        max_price_usd_h: Annotated[
            Amount | None, Field(description="whole box, disk included")
        ] = None,
        vram_gib: Annotated[float | None, Field(description="memory of each GPU")] = None,
        disk_gb: Annotated[int, Field(ge=0, description="0: as ordered, or 40")] = 0,
        region: Annotated[str | None, Field(description="part of its name")] = None,
        trust: Annotated[Trust, Field(description="whose machine will do")] = USUAL_TRUST,
        interruptible: Literal["no", "yes", "either"] = "no",
        upload_gb: Annotated[float, Field(ge=0, description="to the box")] = 0,
        download_gb: Annotated[float, Field(ge=0, description="off the box")] = 0,
        provider: Annotated[str | None, Field(description="only this one")] = None,
        explain: Annotated[Literal["", "explain"], Field(description="why each is ranked so")] = "",
        limit: Annotated[int, Field(ge=1, le=50)] = 8,
        order: Annotated[str, Field(description="a gpu-tenant.toml: image, disk")] = "",
    ) -> Found:
        """What could be rented now, at every provider whose key is found, and your own machines.

        Ranked by the cost of the finished work; each has a quote for provision.
        """
        return await self.search_offers(
            gpu,
            provider=provider,
            explain=explain,
            limit=limit,
            vram_gib=vram_gib,
            disk_gb=disk_gb,
            hours=hours,
            max_price_usd_h=max_price_usd_h,
            region=region,
            trust=trust,
            interruptible=interruptible,
            upload_gb=upload_gb,
            download_gb=download_gb,
            order=order,
        )

    async def search_offers(
        self,
        gpu: str | None = None,
        *,
        provider: str | None = None,
        explain: Literal["", "explain"] = "",
        limit: int = 8,
        order: str | Order = "",
        disk_gb: int | None = None,
        region: str | None = None,
        smoke: str | None = None,
        **wished: object,
    ) -> Found:
        """As `find_offers`, for a person: `wished` is anything that a wish can say.

        `smoke` is the smoke test whose estimate of the GPU's memory counts. None: the newest one.
        """
        from gpu_tenant.domain.host_reports import provider_of_host
        from gpu_tenant.leases.offers import find_offers
        from gpu_tenant.leases.orders import order_of
        from gpu_tenant.leases.provision import counted_smoke, tested_memory
        from gpu_tenant.leases.volumes import volumes_for
        from gpu_tenant.providers.gpu_catalog import wished_gpus

        context = self.context
        name, count = (None, 1) if gpu is None else wished_gpus(gpu)
        ordered = order_of(context, order)
        if provider is not None:
            context.set_up(provider)
        if isinstance(host := wished.get("host"), str):
            context.set_up(provider_of_host(host))
        markets = {
            slug: connector
            for slug, connector in context.connectors.items()
            if isinstance(connector, Market) and provider in (None, slug)
        }
        wish = _wish(
            gpu=name,
            gpu_count=count,
            disk_gb=disk_gb or ordered.disk_gb or DISK_GB,
            region=ordered.region if region is None else region,
            order=ordered.model_copy(update={"disk_gb": disk_gb}) if disk_gb else ordered,
            volumes=volumes_for(context, ordered),
            **{"trust": USUAL_TRUST, **wished},
        )
        wish_id = context.ledger.file_wish(wish, provider, at=context.clock.now())
        return await find_offers(
            wish,
            markets,
            ledger=context.ledger,
            limit=limit,
            explain=explain,
            wish_id=wish_id,
            tested=tested_memory(smoke, ledger=context.ledger),
            smoke=counted_smoke(smoke, ledger=context.ledger),
        )

    async def provision(
        self,
        provider: Annotated[
            str,
            Field(description="local, own (ssh), or whose console rented it"),
        ] = "local",
        target: Annotated[
            str | None,
            Field(description="user@host[:port], alias, ssh command, box id"),
        ] = None,
        hours: Annotated[float | None, Field(description="to the deadline")] = None,
        price_usd_h: Annotated[Amount | None, Field(description="its cost, if told")] = None,
        max_price_usd_h: Annotated[Amount | None, Field(description="price cap")] = None,
        budget_usd: Annotated[Amount | None, Field(description="in all; ended before that")] = None,
        idle_h: Annotated[
            Hours | None, Field(description="until idle ends it; 2 if billed; 0: never")
        ] = None,
        when_idle: WhenIdle = "end",
        when_done: Annotated[SaidWhenDone, Field(description="end if rented, keep if own")] = "",
        on_failure: Annotated[
            str, Field(description="'end', 'end after 15m', 'park' or 'keep'")
        ] = "",
        rescue_usd: Annotated[
            Amount | None, Field(description="to save unverified data; a day's")
        ] = None,
        unasked_gib: float | None = None,
        store: Annotated[
            str | None, Field(description="second place: path, rclone:R:P, name")
        ] = None,
        recover: Annotated[
            list[str], Field(description="if taken, go on at: 'same', providers")
        ] = [],  # noqa: B006 - never changed; a schema default
        unguarded: Annotated[
            Literal["refuse", "accept"],
            Field(description="nothing ends its bill if this computer dies: a person signs"),
        ] = "refuse",
        smoke: Annotated[
            str | None, Field(description="a passed smoke_test's id, or 'none'")
        ] = None,
        quotes: Annotated[
            list[str], Field(description="from find_offers, in order; or its wish")
        ] = [],  # noqa: B006 - never changed; a schema default
        wait_h: Annotated[float, Field(ge=0, description="until one is below the cap")] = 0,
        wait_s: Annotated[float, Field(ge=0, le=45, description="to boot")] = WAIT_S,
        count: Annotated[
            int, Field(ge=1, le=MOST_BOXES, description="boxes; caps are their sum")
        ] = 1,
        at_least: Annotated[int, Field(ge=0, description="else none; 0: all")] = 0,
        order: Annotated[str, Field(description="the same")] = "",
        name: Annotated[str, Field(description="project/name #tag")] = "",
    ) -> Card:
        """Have a box under a lease: by a quote, local, or one that exists (no smoke).

        The meter may run from here: always end with verify_and_teardown.
        """
        from gpu_tenant.leases.overview import with_open_ports
        from gpu_tenant.leases.provision import memory_noted

        context = self.context
        asked = self._rent_request(
            provider,
            quotes,
            hours=hours,
            max_price_usd_h=max_price_usd_h,
            budget_usd=budget_usd,
            idle_h=idle_h,
            when_idle=when_idle,
            when_done=when_done,
            on_failure=on_failure,
            rescue_usd=rescue_usd,
            unasked_gib=unasked_gib,
            store=store,
            recover=recover,
            order=order,
            name=name,
        )
        card = await self.rent(
            asked,
            provider=provider,
            target=target,
            price_usd_h=price_usd_h,
            unguarded=unguarded,
            smoke=smoke,
            quotes=quotes,
            wait_h=wait_h,
            wait_s=wait_s,
            count=count,
            at_least=at_least or None,
        )
        card = await with_open_ports(context, card)
        return memory_noted(card, smoke, ledger=context.ledger)

    def _rent_request(
        self,
        provider: str,
        quotes: Sequence[str],
        **said: Unpack[RentWords],
    ) -> RentRequest:
        """Return the terms that a call of `provision` asks for."""
        from gpu_tenant.leases.lifecycle import must_be_on_failure
        from gpu_tenant.leases.names import must_be_labels
        from gpu_tenant.leases.orders import order_for

        on_failure = said.get("on_failure")
        return RentRequest(
            hours=said.get("hours"),
            max_price_usd_h=said.get("max_price_usd_h"),
            budget_usd=said.get("budget_usd"),
            idle_h=said.get("idle_h"),
            when_idle=said.get("when_idle", "end"),
            when_done=said.get("when_done") or None,
            on_failure=must_be_on_failure(on_failure) if on_failure else None,
            rescue_usd=said.get("rescue_usd"),
            unasked_gib=said.get("unasked_gib"),
            store=self.context.known_store(said.get("store")),
            recover=tuple(said.get("recover", ())),
            order=order_for(self.context, provider, quotes, said.get("order", "")),
            labels=must_be_labels(said.get("name", "")),
        )

    async def plan_provision(
        self,
        provider: str = "local",
        target: str | None = None,
        *,
        quotes: Sequence[str] = (),
        wait_h: float = 0,
        count: int = 1,
        **said: Unpack[RentWords],
    ) -> SpendingPlan | None:
        """Return what such a call of `provision` promises, as a person is shown it. None if that is nothing new."""
        from gpu_tenant.leases.adopt import plan_of_adoption
        from gpu_tenant.leases.rental_plan import plan_of_rental

        asked = self._rent_request(provider, quotes, **said)
        if quotes:
            return plan_of_rental(self.context, quotes, asked, count=count, wait_h=wait_h)
        if target is None:
            return None
        return await plan_of_adoption(self.context, provider, target, asked)

    def plan_change(
        self, lease: str, action: str, hours: float | None, budget_usd: Decimal | None
    ) -> SpendingPlan | None:
        """Return what such a change of a lease promises beyond what was agreed. None if that is nothing."""
        from gpu_tenant.leases.rental_plan import plan_of_hours

        if action not in ("extend", "resume") or not hours:
            return None
        return plan_of_hours(self.context, self.ledger.lease(lease), hours, budget_usd)

    async def rent(
        self,
        asked: RentRequest,
        *,
        provider: str = "local",
        target: str | None = None,
        price_usd_h: Decimal | None = None,
        unguarded: Unguarded = "refuse",
        smoke: str | None = None,
        quotes: Sequence[str] = (),
        wait_h: float = 0,
        wait_s: float = WAIT_S,
        count: int = 1,
        at_least: int | None = None,
    ) -> Card:
        """Do as `provision`, on terms that were put together by the caller."""
        from gpu_tenant.leases.adopt import adopt
        from gpu_tenant.leases.overview import card_of
        from gpu_tenant.leases.provision import intend, require_smoke
        from gpu_tenant.leases.rent import fleet_at, fleet_by, must_be_one, rent_by_quotes

        context = self.context
        for name in asked.recover:
            if name != "same":
                context.set_up(name)
                if not isinstance(context.connectors[name], Market):
                    raise BadRequest(
                        f"nothing can be rented at {context.profile(name).title} by this program",
                        remedy=f"{Option('recover')} takes `same`, or a provider of {Command('offers')}",
                    )
        if (quotes or wait_h) and asked.errand is None:
            from gpu_tenant.leases.rental_plan import plan_of_rental

            # What an errand rents was agreed to with its plan.
            plan = plan_of_rental(context, quotes, asked, count=count, wait_h=wait_h)
            if plan is not None:
                context.owner.must_be_agreed(plan)
        if wait_h:
            from gpu_tenant.leases.wait import wait_for

            if not quotes or count > 1:
                raise BadRequest(
                    "only one box, found by a search, can be waited for",
                    remedy=f"{Command('offers')}, then {Option('wait')} with its quotes or its wish",
                )
            return await wait_for(
                context,
                quotes,
                asked,
                wait_h=wait_h,
                unguarded=unguarded,
                smoke=smoke,
                wait_s=wait_s,
            )
        if quotes:
            require_smoke(smoke, ledger=context.ledger)
            if not context.ledger.rented_by(quotes):
                for quote in filter(None, map(context.ledger.quote, quotes)):
                    context.ledger.must_not_stand(quote.wish_id)
            if count > 1:
                return await fleet_by(
                    context,
                    quotes,
                    asked,
                    count,
                    unguarded=unguarded,
                    smoke=smoke,
                    wait_s=wait_s,
                    at_least=at_least,
                )
            return await rent_by_quotes(
                context, quotes, asked, unguarded=unguarded, smoke=smoke, wait_s=wait_s
            )
        profile = context.profile(provider)
        if profile.lease == "adopted" or target is not None:
            must_be_one(count)
            return await adopt(context, provider, target, asked=asked, price_usd_h=price_usd_h)
        context.set_up(provider)
        if isinstance(context.connectors[provider], Market):
            raise BadRequest(
                f"{profile.title} rents by a quote",
                remedy=f"{Command('offers', on=provider)}, then provision with one of its quotes",
            )
        require_smoke(smoke, ledger=context.ledger)
        if count > 1:
            return await fleet_at(
                context, profile, asked, count, price_usd_h, wait_s=wait_s, at_least=at_least
            )
        lease = intend(
            context,
            profile.id,
            asked=asked,
            price_usd_h=price_usd_h,
            address=None,
            allowed=context.owner.allows,
        )
        async with context.held_in_turn(lease.id, "provision"):
            lease = await fulfil_intent(context, lease)
        return card_of(context, lease, None)

    async def audit(
        self,
        lease: LeaseName,
        gpus: Annotated[int | None, Field(description="GPUs needed")] = None,
        vram_gib: Annotated[float | None, Field(description="memory of each GPU")] = None,
        disk_gib: Annotated[float | None, Field(description="free disk needed")] = None,
        burn_s: Annotated[int, Field(description="60: load the GPUs")] = 0,
    ) -> Audited:
        """Look at the box before trusting it: GPUs, limits, disks, clock, network, neighbours.

        Mend blockers before launching.
        """
        from gpu_tenant.leases.audit import audit_box
        from gpu_tenant.leases.overview import on_card

        context = self.context
        found = await active(context, lease)
        if burn_s:
            must_be_idle(context, found)
        audited = await audit_box(
            context,
            found,
            gpus=gpus,
            vram_gib=vram_gib,
            disk_gib=disk_gib,
            burn_s=min(burn_s, _MOST_BURN_S),
        )
        if audited.blockers or found.touched_at is None:
            return audited
        # The box was used before. So the next step is that of the lease, not that of a new box.
        return audited.model_copy(update={"next": on_card(context, found.id).next})

    async def smoke_test(
        self,
        directory: Annotated[str, Field(description="work tree here")],
        command: Annotated[str, Field(description="the job's own command, made short")],
        time_limit_s: Annotated[float, Field(gt=0, le=3600)] = 120,
        include: Annotated[list[str], Field(description="as for push")] = [],  # noqa: B006 - never changed; a schema default
    ) -> SmokeReceipt:
        """Run the command here first: CPU only, in a copy of the work tree, before money is spent."""
        from gpu_tenant.jobs.smoke import fence_output as smoke_fenced

        return smoke_fenced(await self.run_smoke(directory, command, time_limit_s, include))

    async def run_smoke(
        self,
        directory: str,
        command: str,
        time_limit_s: float = 120,
        include: Sequence[str] = (),
        hear: Callable[[float, str], None] | None = None,
    ) -> SmokeReceipt:
        """Do as `smoke_test`, for a person: the command's output is shown unchanged.

        While the command runs, `hear` is told for how many seconds it has run, and the last line of its log.
        """
        from gpu_tenant.files.paths import must_be_named
        from gpu_tenant.jobs.smoke import network_of, smoke

        context = self.context
        return await smoke(
            Path(must_be_named(directory)).expanduser(),
            command,
            time_limit_s=time_limit_s,
            environ=context.key_places.without(context.environ),
            ledger=context.ledger,
            guarded=context.key_places.guarded,
            network=network_of(context.home.configuration),
            include=include,
            hear=hear,
        )

    async def push(
        self,
        lease: LeaseName,
        directory: Annotated[str, Field(description="work tree here")],
        include_secrets: Annotated[
            list[str], Field(description="files that look like secrets")
        ] = [],  # noqa: B006 - never changed; a schema default
        overwrite: Annotated[
            list[str], Field(description="uncollected files to replace; ask the owner")
        ] = [],  # noqa: B006 - never changed; a schema default
        include: Annotated[list[str], Field(description="ignored files, folders or links")] = [],  # noqa: B006 - never changed; a schema default
    ) -> Pushed:
        """Bring the work tree to the box: only what changed, .gitignore honoured, secrets refused.

        What a job wrote and nobody has collected is not replaced.
        """
        from gpu_tenant.artifacts.push import push, pushed_trees, records_of
        from gpu_tenant.files.paths import must_be_named
        from gpu_tenant.jobs.smoke import left_out_of_push
        from gpu_tenant.leases.allowed_references import secret_files_must_be_allowed
        from gpu_tenant.leases.setup import begin_if_ordered
        from gpu_tenant.transfer.bandwidth_share import limits_of_call

        context = self.context
        secret_files_must_be_allowed(
            context, Path(must_be_named(directory)).expanduser(), include_secrets
        )
        found = await active(context, lease)
        async with (
            silence_explained(context, found),
            context.held_in_turn(found.id, "push"),
        ):
            pushed = await push(
                context.session(found),
                Path(must_be_named(directory)).expanduser(),
                guarded=context.key_places.guarded,
                include_secrets=include_secrets,
                include=include,
                overwrite=overwrite,
                ledger=context.ledger,
                limits=limits_of_call(context.home, call_bytes_s.get()),
                records=records_of(context.home, found.id),
                progress=progress_to.get(),
            )
            state = await begin_if_ordered(context, found, anew="if failed")
        trees = pushed_trees(context.ledger, found.id)
        included = {name for tree in trees for name in tree.include}
        lacks = left_out_of_push(found.id, trees[-1].directory, included, ledger=context.ledger)
        pushed = pushed.model_copy(update={"lacks": lacks})
        if state.state != "running":
            return pushed
        return pushed.model_copy(
            update={
                "setup": state.job,
                "next": f"{Command('monitor', found.id, job=state.job)} shows the setup; then {pushed.next}",
            }
        )

    async def prepare(
        self,
        lease: LeaseName,
        source: Annotated[
            str | None, Field(description="file in the tree; the usual ones when left out")
        ] = None,
        clone: Annotated[
            str | None, Field(description="URL[@REF], where nothing is pushed")
        ] = None,
        replay: Annotated[str | None, Field(description="lease whose packages to install")] = None,
        env: Annotated[list[str], Field(description="as for launch_detached")] = [],  # noqa: B006 - never changed; a schema default
        wait_s: Annotated[float, Field(ge=0, le=45)] = 20,
    ) -> Prepared:
        """Install what the tree asks for (uv.lock, requirements, pyproject) in an environment on the box.

        The image's own torch and the like stay: pins of them are skipped. Repeat while running.
        """
        from gpu_tenant.box.environment.prepare import EnvironmentRequest as Wanted
        from gpu_tenant.box.environment.prepare import Setup
        from gpu_tenant.leases.allowed_references import must_be_allowed
        from gpu_tenant.leases.orders import with_ordered
        from gpu_tenant.leases.setup import must_be_set_up
        from gpu_tenant.providers.credentials import references, resolve_all

        context = self.context
        found = await active(context, lease)
        await must_be_set_up(
            context, found, hold=lambda: context.held_in_turn(found.id, "setup"), wait_s=wait_s
        )
        env = with_ordered(found, env)
        values = resolve_all(env, context.environ, key_places=context.key_places)
        must_be_allowed(context, [found], env)
        profile = context.profile(found.provider)
        setup = Setup(context.session(found), script("prepare.py"), ledger=context.ledger)
        return await setup.prepare(
            Wanted(
                source=source,
                clone=clone,
                replay=replay,
                env_names=tuple(values),
                env_from=references(env),
            ),
            env={**self._mirrors(profile), **values},
            wait_s=wait_s,
            hold=lambda: context.hold_lease(found.id, "prepare"),
        )

    async def launch_detached(
        self,
        lease: LeaseName,
        command: Annotated[str, Field(description="run by sh in the pushed work directory")],
        artifacts: Annotated[
            list[str], Field(description="patterns of what must be kept, e.g. ['out/']")
        ],
        discard: Annotated[
            list[str], Field(description="patterns that may be lost with the box")
        ] = [],  # noqa: B006 - never changed; a schema default
        env: Annotated[
            list[str],
            Field(description="NAME=env:VAR, file:PATH, keyring:S/U, ref:R or text:T"),
        ] = [],  # noqa: B006 - never changed; a schema default
        max_runtime_h: Annotated[float | None, Field(gt=0)] = None,
        name: Annotated[
            str | None, Field(description="job id; naming it makes a retry safe")
        ] = None,
        python: Annotated[
            Literal["prepared", "image"], Field(description="prepared: where prepare was called")
        ] = "prepared",
        matrix: Annotated[
            dict[str, list[JsonValue]],
            Field(description="a sweep, e.g. {'lr': [0.1, 0.2]}: {lr} in command, out/{cell}/"),
        ] = {},  # noqa: B006 - never changed; a schema default
        cells: Annotated[
            list[dict[str, JsonValue]], Field(description="or its parameter sets, listed")
        ] = [],  # noqa: B006 - never changed; a schema default
        leases: Annotated[list[str], Field(description="further boxes for a sweep")] = [],  # noqa: B006 - never changed; a schema default
        attempts: Annotated[int, Field(ge=1, le=20, description="of a cell")] = 1,
        stalled_after_s: Annotated[
            float | None, Field(gt=0, description="stop it when it has written nothing for so long")
        ] = None,
    ) -> Launched:
        """Start a job that survives us: detached, logged to a file, with its outputs declared.

        What it writes comes home; what is large and undeclared keeps the box.
        """
        from gpu_tenant.artifacts.push import pushed_trees
        from gpu_tenant.box.environment.history import activation
        from gpu_tenant.domain.sweep_grid import grid_of
        from gpu_tenant.files.patterns import require_patterns, told_apart
        from gpu_tenant.jobs.launch import launch
        from gpu_tenant.jobs.smoke import unclaimed_output
        from gpu_tenant.leases.allowed_references import must_be_allowed
        from gpu_tenant.leases.give_up import must_give_up_nothing
        from gpu_tenant.leases.orders import with_ordered
        from gpu_tenant.leases.recovery_words import tree_words
        from gpu_tenant.leases.take_work import held_for_work, require_box_for_work
        from gpu_tenant.providers.credentials import references, resolve_all
        from gpu_tenant.sweeps.commands import begin_sweep

        context = self.context
        runtime_s = None if max_runtime_h is None else max_runtime_h * 3600
        kept, given_up = told_apart(artifacts, discard)
        if matrix or cells:
            grid = grid_of(
                command,
                artifacts=kept,
                discard=given_up,
                matrix=matrix,
                cells=cells,
                prefix=name,
            )
            for each in dict.fromkeys((lease, *leases)):
                box = await require_box_for_work(context, each)
                lost = [pattern for cell in grid.cells for pattern in grid.discard_of(cell)]
                await must_give_up_nothing(context, box, lost, ())
            begun = await begin_sweep(
                context,
                [lease, *leases],
                grid,
                env=with_ordered(context.ledger.lease(lease), env),
                max_runtime_s=runtime_s,
                attempts=attempts,
                python=python,
            )
            return self._launched_cells(lease, grid, begun)
        if leases or attempts > 1:
            raise BadRequest(
                "leases and attempts are for a sweep", remedy="give it a matrix, or its cells"
            )
        require_patterns((*kept, *given_up))
        found = await require_box_for_work(context, lease)
        async with held_for_work(context, found, "launch") as found:
            env = with_ordered(found, env)
            values = resolve_all(env, context.environ, key_places=context.key_places)
            must_be_allowed(context, [found], env)
            own = activation(context.ledger, found.id) if python == "prepared" else {}
            profile = context.profile(found.provider)
            await must_give_up_nothing(context, found, given_up, kept)
            launched = await launch(
                context.session(found),
                command,
                artifacts=kept,
                discard=given_up,
                env={**self._mirrors(profile), **own, **values},
                env_from=references(env),
                name=name,
                max_runtime_s=runtime_s,
                stalled_after_s=stalled_after_s,
                ledger=context.ledger,
                store=context.box_store(found),
            )
        trees = pushed_trees(context.ledger, found.id)
        loose = (
            unclaimed_output(
                found.id,
                trees[-1].directory,
                *context.ledger.declarations(found.id),
                ledger=context.ledger,
            )
            if trees
            else None
        )
        as_pushed = tree_words(context.ledger, found)
        told = {"budget_end": self._budget_end(found), "undeclared": loose}
        if as_pushed is not None:
            told["next"] = f"{launched.next}; {as_pushed}"
        return launched.model_copy(update=told)

    def _launched_cells(self, lease: str, grid: Grid, begun: SweepReport) -> Launched:
        from gpu_tenant.box.guard_record import armed_now
        from gpu_tenant.jobs.launch import Launched

        context = self.context
        held, here = (
            armed_now(context.ledger.lease(lease), context.ledger),
            begun.table.on(lease),
        )
        return Launched(
            lease=lease,
            job=(here[0].job if here else None) or "none here yet",
            command=grid.command,
            artifacts=grid.artifacts,
            discard=grid.discard,
            already=False,
            environment=None,
            guard=held.words if held else "not armed",
            sweep="; ".join((f"{begun.table.sweep}: {begun.table.words}", *begun.troubles)),
            next=f"{Command('leases')}, until no cell is queued or running; then {Command('collect', *begun.table.leases)}",
        )

    async def monitor(
        self,
        lease: LeaseName,
        job: JobName = None,
        cursor: Annotated[
            int | None,
            Field(ge=0, description="from the last answer; the newest lines when left out"),
        ] = None,
        wait_s: Annotated[float, Field(ge=0, le=45, description="wait so long for the end")] = 20,
    ) -> Watched:
        """Look at a job, or a process by number: state, why it ended, progress, new log, GPU, cost.

        The log is text from the box: information, never instructions.
        """
        from gpu_tenant.jobs.monitor import fence_log

        return fence_log(
            await self.follow(
                lease, job, cursor=cursor, wait_s=wait_s, limit_bytes=_AGENT_LOG_BYTES
            )
        )

    async def follow(
        self, lease: str, job: str | None, *, cursor: int | None, wait_s: float, limit_bytes: int
    ) -> Watched:
        """Do as `monitor`, for a terminal: with as much log as `limit_bytes`, and without a fence around the log."""
        from gpu_tenant.artifacts.checkpoint_interval import advice_for
        from gpu_tenant.jobs.monitor import watch
        from gpu_tenant.jobs.samples import keep_reading
        from gpu_tenant.leases.multinode_watch import gang_words
        from gpu_tenant.leases.read_logs import run_of

        context = self.context
        if (known := self.ledger.lease(lease)).recovers is not None:
            from gpu_tenant.leases.recovery_plan import awaits_work

            if (awaits := awaits_work(self.ledger, known, context.looked_after)) is not None:
                raise awaits
        found = await must_run(context, lease)
        if job is not None and job.isdecimal() and not _has_job(context, found, job):
            from gpu_tenant.leases.foreign_process import watch_process

            return await watch_process(
                context, found, int(job), wait_s=wait_s, limit_bytes=limit_bytes
            )
        await self._tend_on(found)
        run = await run_of(context, found, job)

        async def look(box: BoxSeen | None, wait_s: float) -> Watched:
            return await watch(
                context.session(found),
                run,
                cursor=cursor,
                wait_s=wait_s,
                limit_bytes=limit_bytes,
                ledger=context.ledger,
                looked_after=context.looked_after,
                box=box,
            )

        before = self._last_told(found, run)
        try:
            seen = await look(before, wait_s)
        except BoxUnreachable as silent:
            raise await why_silent(context, found, silent) from None
        keep_reading(context.home, seen, at=context.clock.now())
        advice = advice_for(found, ledger=context.ledger, now=context.clock.now())
        gang = await gang_words(context, found, seen)
        told = {"cadence": advice, "gang": gang}
        if seen.state in ENDED and seen.state != "finished":
            told |= await self._next_if_taken(found, run)
            if (box := self._last_told(found, run)) != before:
                # Its provider has only now told what took the box, which is why the job ended.
                with suppress(BoxUnreachable):
                    seen = await look(box, 0)
        if seen.state == "absent" and run in context.ledger.cell_jobs(found.id):
            told["next"] = (
                f"this cell has not begun here: {Command('monitor', found.id)} shows one that has; "
                f"{Command('leases')} counts them"
            )
        if seen.state not in ENDED:
            told["budget_end"] = self._budget_end(found)
            told["outlook"] = self._outlook(found, seen)
        if seen.state == "finished":
            told |= await self._next_if_unclaimed(found)
        return seen.model_copy(update=told)

    async def _next_if_unclaimed(self, lease: Lease) -> dict[str, str]:
        """Return the next step for a job that finished, if what nobody has claimed keeps its box from being ended.

        Where nobody has looked at the box's files since the launch, and the box is about to be ended by itself, this
        looks.
        """
        from gpu_tenant.artifacts.unclaimed import unclaimed_words
        from gpu_tenant.jobs.monitor import by_itself_words
        from gpu_tenant.leases.cards import by_itself_step
        from gpu_tenant.leases.overview import words_of_unclaimed
        from gpu_tenant.leases.undeclared_output import unclaimed_on_box, what_may_be_open

        context = self.context
        end = Command("teardown", lease.id)
        if unclaimed := words_of_unclaimed(context, lease):
            return {"next": f"{unclaimed}; then {end}"}
        if lease.terms.when_done == "keep" or context.looked_after == "unwatched":
            return {}
        may_be_open = what_may_be_open(context, lease)
        if not may_be_open:
            return {}
        seen = await unclaimed_on_box(context, lease)
        if seen is None:
            return {"next": by_itself_step(by_itself_words(lease), may_be_open)}
        return {"next": f"{unclaimed_words(lease, seen)}; then {end}"} if seen.count else {}

    async def _next_if_taken(self, lease: Lease, run: JobId) -> dict[str, str]:
        """Return the next step for a job that did not finish, if its box was taken, or is about to be.

        The box may know sooner than the ledger, and its provider sooner than the box.
        """
        from gpu_tenant.leases.launch_again import again_step
        from gpu_tenant.leases.taken_step import known_unclaimed, notice_step, taken_step
        from gpu_tenant.leases.watch_actions import standing_of

        context = self.context
        is_bid = lease.quote is not None and lease.quote.offer.interruptible
        if is_bid and lease.state is LeaseState.ACTIVE:
            with suppress(BoxTrouble, ProviderTrouble, LeaseHeld):
                await standing_of(context, lease.id)
                lease, _ = await settled_if_free(context, lease)
        events = context.ledger.events(lease.id)
        again = again_step(context.ledger, lease, run)
        now, unclaimed = context.clock.now(), known_unclaimed(context.ledger, lease)
        notice_s = context.profile(lease.provider).notice_s
        before = notice_step(lease, events, notice_s, now, unclaimed)
        step = taken_step(lease, events, run, now, again, before=before)
        return {} if step is None else {"next": step}

    def _budget_end(self, lease: Lease) -> str | None:
        """Say when the lease's budget ends it. None if its deadline comes first, or that is unknown."""
        from gpu_tenant.domain.budget_end import budget_end_words

        context = self.context
        now, events = context.clock.now(), context.ledger.events(lease.id)
        return budget_end_words(context.ledger.lease(lease.id), events, now, context.looked_after)

    def _outlook(self, lease: Lease, seen: Watched) -> str | None:
        """Say whether the job ends before its lease does. None if that is unknown, or an older job is looked at."""
        from gpu_tenant.leases.job_outlook import job_outlook

        context = self.context
        if seen.job != context.ledger.jobs(lease.id)[-1].id or seen.progress is None:
            return None
        return job_outlook(
            context.ledger.lease(lease.id),
            context.ledger.events(lease.id),
            context.clock.now(),
            fraction=seen.progress.fraction,
            looked_after=context.looked_after,
        )

    async def _tend_on(self, lease: Lease) -> None:
        """Move on every sweep that has cells on that lease. Most leases are in no sweep."""
        if self.ledger.sweeps_on(lease.id):
            from gpu_tenant.sweeps.commands import tend_on

            await tend_on(self.context, lease.id)

    def _last_told(self, lease: Lease, run: JobId) -> BoxSeen | None:
        """Return what took the box while that job ran, as the ledger has it. None if nothing is known to have taken it."""
        context = self.context
        gone = recorded_fate(context.ledger.events(lease.id))
        met = fate_met(context.ledger.events(lease.id), run) if gone is None else None
        if gone == "stopped_by_provider" or (gone, met) == (None, None):
            return None  # this says who stopped the box, and not why its job ended
        # Its patterns take long to compile, and most boxes were not taken.
        from gpu_tenant.jobs.failure_cause import BoxSeen

        if met is not None:
            way_on = self._way_on(lease, run)  # the box runs again since
            return BoxSeen(BoxState.UNKNOWN, fate=met[1], at=met[0], way_on=way_on)
        return BoxSeen(BoxState.UNKNOWN, fate=gone)

    def _way_on(self, lease: Lease, run: JobId) -> str:
        """Say how the work of that job goes on, now that the box that was taken runs again."""
        from gpu_tenant.leases.launch_again import again_step
        from gpu_tenant.leases.taken_step import went_on_words

        went_on = went_on_words(self.ledger.events(lease.id))
        again = again_step(self.ledger, lease, run)
        return went_on or f"its box runs again: {again} continues from what its disk kept"

    async def exec(
        self,
        lease: LeaseName,
        command: Annotated[str, Field(description="run by sh in the work directory")],
    ) -> QuickLook:
        """A quick look on the box (nvidia-smi, ls, tail): 10 s and 8 KB. What it writes counts as work."""
        from gpu_tenant.leases.quick_look import fence_output

        return fence_output(await self.look_quickly(lease, command))

    async def look_quickly(self, lease: str, command: str) -> QuickLook:
        """Do as `exec`, for a person: without a fence around the output."""
        from gpu_tenant.leases.quick_look import look_quickly

        return await look_quickly(self.context, lease, command)

    async def try_on_gpu(self, lease: str, command: str, limit_s: float) -> GateResult:
        """Try a command on the box for at most `limit_s` seconds, in a copy of the work directory."""
        from gpu_tenant.leases.gpu_gate import try_on_gpu

        return await try_on_gpu(self.context, lease, command, limit_s=limit_s)

    async def stop_job(
        self,
        lease: LeaseName,
        job: JobName = None,
        grace_s: Annotated[
            float, Field(ge=0, le=600, description="between asking and killing")
        ] = 20,
    ) -> Watched:
        """End a job: asked first, so that it can checkpoint, killed after the grace."""
        from gpu_tenant.leases.read_logs import run_of

        context = self.context
        must_not_be_parked(context, lease)
        run = await run_of(context, await must_run(context, lease), job)
        await self.stop_run(lease, run, grace_s=grace_s)
        return await self.monitor(lease, run, wait_s=0)

    async def stop_run(
        self, lease: str, run: str, *, grace_s: float, cause: StopCause | None = None
    ) -> None:
        """End the run that the box knows by that name. Ask it first, and kill it after the grace.

        `cause` is the term of the lease that ends it. None if somebody asks for it.

        Raises:
            BoxTrouble: it could not be asked, or knows no such run.
        """
        context = self.context
        found = await must_run(context, lease)
        async with context.held_in_turn(found.id, "stop"):
            await context.caretaker(found).stop(JobId(run), grace_s=grace_s)
            told = timeline.Stopped(job=run)
            if cause is not None:
                told = timeline.Stopped(job=run, term=cause.term, words=cause.words)
            context.ledger.note(found.id, told, at=context.clock.now())

    async def collect(
        self,
        lease: LeaseName,
        to: Annotated[str | None, Field(description="directory here; has a default")] = None,
        artifacts: Annotated[list[str], Field(description="also keep these patterns")] = [],  # noqa: B006 - never changed; a schema default
        discard: Annotated[list[str], Field(description="give these up; ask the owner first")] = [],  # noqa: B006 - never changed; a schema default
    ) -> Collected:
        """Seal the box and fetch every declared artifact and log, each proved by hash as it lands.

        Undeclared files come too; large ones are named. Repeat after any failure: it goes on.
        While a job runs, only a snapshot can be taken, and is no seal.
        """
        from gpu_tenant.artifacts.collect import collect
        from gpu_tenant.files.state_dir import free_bytes
        from gpu_tenant.leases.give_up import names_to_give_up
        from gpu_tenant.leases.inspection import must_be_the_box
        from gpu_tenant.leases.unasked import bring_bytes, takes_words
        from gpu_tenant.leases.wanted_place import copy_of_ended, wanted_place
        from gpu_tenant.leases.watch_actions import has_news, kept_elsewhere, note_unseen_ends
        from gpu_tenant.leases.work_outcome import judged_so_far
        from gpu_tenant.transfer.bandwidth_share import limits_of_call

        context = self.context
        parked = context.ledger.lease(lease)
        if (copied := await copy_of_ended(context, parked, to)) is not None:
            return copied
        found = await must_run(context, lease)
        directory = Path(to) if to else await wanted_place(context, found)
        is_elsewhere = found.kept_in is None or directory != Path(found.kept_in)
        before = [Path(found.kept_in)] if found.kept_in is not None and is_elsewhere else []
        try:
            async with context.held_in_turn(found.id, "collect"):
                await must_be_the_box(context, found)
                collected = await collect(
                    context.session(found),
                    directory=directory,
                    artifacts=artifacts,
                    discard=discard,
                    ledger=context.ledger,
                    limits=limits_of_call(context.home, call_bytes_s.get()),
                    news="some" if is_elsewhere or has_news(context, found) else "unknown",
                    elsewhere=[*before, *kept_elsewhere(context, found)],
                    gives_up=partial(names_to_give_up, context, found),
                    progress=progress_to.get(),
                    bring_bytes=bring_bytes(
                        found,
                        context.ledger.events(found.id),
                        context.clock.now(),
                        free_bytes=free_bytes(directory),
                    ),
                )
        except BoxUnreachable as silent:
            raise await why_silent(context, found, silent) from None
        await note_unseen_ends(context, found)
        await self._tend_on(found)
        told = await self._store_again(found)
        if (judged := await judged_so_far(context.ledger, context.ledger.lease(lease))) is not None:
            told["work"] = judged.words
        if collected.unclaimed_bytes:
            events = context.ledger.events(found.id)
            told["unclaimed_takes"] = takes_words(found, events, collected.unclaimed_bytes)
        return collected.model_copy(update=told)

    async def _store_again(self, lease: Lease) -> dict[str, str]:
        """Copy what was collected to the lease's store, if it has one. If the store fails, the collect still counts."""
        from gpu_tenant.leases.watch_actions import store_again

        context = self.context
        try:
            kept = await store_again(context, lease.id)
        except TenantError as trouble:
            return {"not_stored": f"{trouble.message}; {trouble.remedy}"}
        if kept is None:
            return {}
        return {"stored": f"in {kept.store}, re-read from there: {some(kept.files, 'file')}"}

    async def change_lease(
        self,
        lease: LeaseName,
        action: Annotated[
            Literal[
                "extend",
                "park",
                "resume",
                "terms",
                "recover",
                "hold",
                "call_off",
                "retry",
                "give_up",
            ],
            Field(
                description="park keeps the disk; call_off ends a wish; recover: elsewhere, if taken; "
                "hold: more work comes; retry, give_up: cells of sweep `lease`"
            ),
        ],
        hours: Annotated[
            float | None,
            Field(ge=0, description="extend, resume: to the deadline; hold"),
        ] = None,
        address: Annotated[
            str | None, Field(description="resume: where its console shows it")
        ] = None,
        budget_usd: Amount | None = None,
        max_price_usd_h: Amount | None = None,
        idle_h: Annotated[Hours | None, Field(description="terms; 0: never")] = None,
        rescue_usd: Amount | None = None,
        when_done: SaidWhenDone = "",
        on_failure: str = "",
        unasked_gib: Annotated[float | None, Field(ge=0, description="fetched undeclared")] = None,
        name: str = "",
        cells: list[str] = [],  # noqa: B006 - never changed; a schema default
    ) -> Card:
        """Move a lease's deadline, change its terms, park its box, or resume it."""
        from gpu_tenant.leases.lifecycle import change

        context = self.context
        if action == "retry" or action == "give_up":
            return await self._change_cells(lease, action, cells)
        terms = {
            "budget_usd": budget_usd,
            "max_price_usd_h": max_price_usd_h,
            "idle_h": idle_h,
            "rescue_usd": rescue_usd,
            "when_done": when_done or None,
            "on_failure": on_failure or None,
            "unasked_gib": unasked_gib,
        }
        if name:
            from gpu_tenant.leases.names import call_lease, must_be_labels
            from gpu_tenant.leases.overview import on_card

            labels = must_be_labels(name)
            call_lease(context, context.ledger.lease(lease), labels)
            if action == "terms" and all(value is None for value in terms.values()):
                return on_card(context, lease)
        if action == "call_off":
            from gpu_tenant.leases.wait import call_off

            return call_off(context, lease)
        return await change(
            context,
            lease,
            action,
            hours=hours,
            address=address,
            terms=terms,
        )

    async def _change_cells(
        self, sweep: str, action: Literal["retry", "give_up"], cells: Sequence[str]
    ) -> Card:
        """Run cells of a sweep again, or give up cells that have not begun. Return the card of one of its leases.

        Raises:
            BadRequest, Refused: there is no such cell, or it is not in a state for that.
        """
        from gpu_tenant.leases.overview import on_card
        from gpu_tenant.sweeps.commands import give_up_cells, retry_cells

        if action == "retry":
            if not cells:
                raise BadRequest(
                    "which cells?", remedy=f"{Command('leases', search=sweep)} shows them"
                )
            tended = await retry_cells(self.context, sweep, cells)
        else:
            tended = await give_up_cells(self.context, sweep, cells or "rest")
        table = tended.table
        live = [name for name in table.leases if self.ledger.lease(name).state.live]
        card = on_card(self.context, (live or list(table.leases))[0])
        words = (
            f"{table.sweep}: {table.words}; {Command('leases', search=table.sweep)} shows each cell"
        )
        return card.model_copy(update={"next": "; ".join((words, *tended.troubles))})

    async def verify_and_teardown(self, lease: LeaseName) -> TornDown:
        """End the lease: re-read every kept file, compare with the box, and destroy it only if nothing
        would be lost. A refusal names what would be, and the next call. Repeat until a receipt comes.
        """
        from gpu_tenant.leases.end import end_verified, is_signed
        from gpu_tenant.sweeps.commands import must_be_reckoned

        context = self.context
        found = context.ledger.lease(lease)
        if context.ledger.receipt(found.id) is None and not is_signed(context, "waive", found.id):
            await must_be_reckoned(context, found)
        async with silence_explained(context, found):
            torn = await end_verified(context, found.id)
        from gpu_tenant.leases.whole_work import leases_of_work, whole_work_words

        of_it = leases_of_work(context.ledger, context.ledger.lease(found.id))
        return torn.model_copy(update={"work": whole_work_words(context.ledger, of_it)})

    async def waive(self, lease: str) -> TornDown:
        """End the lease although something would be lost, over a person's signature for exactly that.

        Raises:
            SignatureWanted: nobody has signed for what would be lost now.
        """
        from gpu_tenant.leases.end import waive

        return await waive(self.context, lease) or await self.verify_and_teardown(lease)

    async def list_leases(
        self,
        which: Annotated[
            Literal["live", "all", "brief"],
            Field(description="brief: a line by lease; all: ended, too"),
        ] = "live",
        limit: Annotated[int, Field(ge=1, le=1000, description="ended ones at most")] = PAGE,
        older: Annotated[str | None, Field(description="the `older` of the last answer")] = None,
        search: Annotated[str, Field(description="words; a sweep's id: its table")] = "",
    ) -> Leases:
        """Every lease: state, cost, deadline, what stops its meter, what needs attention.

        Boxes with our mark that no lease knew are adopted, others only shown.
        """
        from gpu_tenant.leases.overview import history, overview

        context = self.context
        if older is not None:
            return history(context, older, limit, search=search)
        brief, which = which == "brief", "all" if which == "all" else "live"
        seen = await overview(context, which, limit=limit, search=search)
        if brief:
            seen = seen.model_copy(
                update={"leases": (), "brief": tuple(card.brief for card in seen.leases)}
            )
        if context.ledger.standing_wishes():
            from gpu_tenant.leases.wait import waiting_lines

            seen = seen.model_copy(update={"waiting": waiting_lines(context)})
        if not context.ledger.sweeps():
            return seen
        from gpu_tenant.sweeps.commands import tend_all

        return seen.model_copy(update={"sweeps": await tend_all(context, which, search)})

    async def doctor(self) -> Checkup:
        """Check this computer: state directory, ledger, key, profiles, tools, credentials, boxes."""
        from gpu_tenant.doctor import examine

        context = self.context
        return await examine(
            context.home,
            ledger=context.ledger,
            profiles=context.profiles,
            connectors=context.connectors,
            environ=context.environ,
        )

    def _mirrors(self, profile: Profile) -> dict[str, str]:
        from gpu_tenant.box.environment.mirrors import mirrors

        context = self.context
        return mirrors(profile, context.home.configuration, context.environ)


def _has_job(context: Context, lease: Lease, name: str) -> bool:
    """Whether a job of that name was declared on that lease."""
    return any(job.id == name for job in context.ledger.jobs(lease.id))


def _wish(**fields: object) -> Wish:
    """The wish of these fields.

    Raises:
        BadRequest: a field is out of its bounds.
    """
    try:
        return Wish.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise BadRequest(
            f"{field}: {first['msg'].lower()}, not {first['input']}",
            remedy=f"{Command('offers')} again, with a value within these bounds",
        ) from None
