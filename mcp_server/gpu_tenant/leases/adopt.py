"""Puts an existing box under a lease, including a box that a person stopped and started again."""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal

from gpu_tenant.domain import timeline
from gpu_tenant.domain.address import Ssh, ssh_of
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    BadRequest,
    BoxTaken,
    BoxUnreachable,
    OwnerMustAct,
    TenantError,
)
from gpu_tenant.domain.model import Box, Lease, Profile, SshAddress
from gpu_tenant.domain.policy import must_be_doable
from gpu_tenant.domain.ports import Tended
from gpu_tenant.domain.terms import USUAL, RentRequest, Terms
from gpu_tenant.domain.untrusted_text import plain, quote_text
from gpu_tenant.domain.wording import span
from gpu_tenant.leases.cards import Card
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.inspection import come_in, must_be_the_box
from gpu_tenant.leases.names import call_lease
from gpu_tenant.leases.overview import card_of
from gpu_tenant.leases.pasted_address import address_of
from gpu_tenant.leases.provision import DEADLINE_H, intend, must_be_hours, new_lease_id
from gpu_tenant.leases.readiness import fulfil_intent, settle_lease
from gpu_tenant.leases.settle import deployment_of
from gpu_tenant.leases.spending_plan import SpendingPlan


async def adopt(
    context: Context,
    provider: str,
    target: str | None,
    *,
    asked: RentRequest = USUAL,
    price_usd_h: Decimal | None = None,
    password: str | None = None,
    over: str | None = None,
) -> Card:
    """Put an existing box under a lease. Returns the lease's card.

    `password` is used once to let our key in, and is then forgotten. `over` names a lease or deployment whose
    mark on the box is to be ignored. It is only for a person's explicit request.

    Raises:
        BoxTaken: another lease has the box, perhaps under another name of the box.
    """
    profile = context.profile(provider)
    if provider not in context.connectors or "@" not in (target or ""):
        # A person who names a box by its address needs no key for the platform's API.
        context.set_up(provider)
    if not target and profile.console and profile.console.bootstrap:
        raise BadRequest(
            f"a box at {profile.title} lets nobody in until its owner pastes a command there",
            remedy=f"{Command('adopt', on=provider)} prints what to paste there",
        )
    if _is_listed(profile, target or ""):
        return card_of(
            context,
            await _take_over(context, profile, target or "", asked, over, price_usd_h),
            None,
        )
    address = address_of(target or "")
    other = context.ledger.lease_on(profile.id, address.target)
    if other is not None:
        raise BoxTaken(
            f"the lease {other.id} is already on {address.target}",
            remedy=f"use that lease, or end it first: {Command('teardown', other.id)}",
        )
    lease = intend(
        context,
        profile.id,
        asked=asked,
        price_usd_h=price_usd_h,
        address=address,
        allowed=context.owner.allows,
    )
    if profile.destroy == "deletes":
        # The box's owner may already have worked on it. So the box counts as used from the start, and all its files
        # have to be accounted for.
        context.ledger.touch(lease.id, at=lease.created_at)
        lease = context.ledger.lease(lease.id)
    _in_place_of(context, lease, over)
    async with context.held_in_turn(lease.id, "adopt"):
        try:
            if password is not None:
                await context.introduce(lease, password)
            # First check whether the box lets us in. If nobody answers, or if another lease has the box, no lease is
            # made.
            await come_in(context, lease)
        except TenantError as trouble:
            await settle_lease(context, lease)
            if isinstance(trouble, BoxUnreachable):
                again = Command("adopt", target, on=provider)
                trouble.remedy = f"no lease was made; check the address and the port, then {again}"
            raise
        lease = await fulfil_intent(context, lease)
    return card_of(context, lease, None)


def _is_listed(profile: Profile, target: str) -> bool:
    """Whether the box is looked for in its provider's list. Otherwise somebody has to let us in at its address."""
    return profile.lease == "created" or (profile.lease == "either" and "@" not in (target or "@"))


async def plan_of_adoption(
    context: Context, provider: str, target: str, asked: RentRequest
) -> SpendingPlan | None:
    """Return what adopting that box means, as a person is shown it. None if its owner has to let us in anyway."""
    profile = context.profile(provider)
    if not _is_listed(profile, target) or provider not in context.connectors:
        return None
    box = _find_listed(await context.connectors[provider].list_boxes(), target, profile)
    return _plan(context, profile, box, asked)


def _plan(context: Context, profile: Profile, box: Box, asked: RentRequest) -> SpendingPlan:
    return SpendingPlan(
        kind="adopt",
        subjects=(box.id,),
        would=f"put {box.id} at {profile.title} under a lease, though this program did not rent it",
        usd=None,
        lines=(
            _shown_words(box),
            *_terms_words(_terms(context, asked), context.clock.now()),
        ),
    )


def _shown_words(box: Box) -> str:
    """Say what its provider shows of a box that is not ours."""
    rate = "at an unknown rate" if box.price_usd_h is None else f"at {box.price_usd_h} USD/h"
    age = None if box.created_at is None else f"made {box.created_at:%Y-%m-%d %H:%M} UTC"
    named = None if box.name is None else f"named {quote_text(box.name)}"
    told = (named, box.gpus and plain(box.gpus), str(box.state), rate, age)
    return f"its provider shows: {', '.join(filter(None, told))}"


def _terms(context: Context, asked: RentRequest) -> Terms:
    hours = DEADLINE_H if asked.hours is None else asked.hours
    must_be_hours(hours)
    return asked.terms(
        deadline_at=context.clock.now() + timedelta(hours=hours),
        max_price_usd_h=asked.max_price_usd_h,
        meter="billed",
        machine="adopted",
    )


def _terms_words(terms: Terms, now: datetime) -> Iterator[str]:
    """Say what will end the box once it is adopted."""
    left = span((terms.deadline_at - now).total_seconds())
    yield f"at its deadline, in {left}, its jobs are stopped, and it is torn down once all that counts on it is here"
    if terms.idle_h is not None:
        yield f"idle for {terms.idle_h:g} h: {terms.when_idle}"
    if terms.when_done != "keep":
        yield f"when its work is done: {terms.when_done}"


def bootstrap(context: Context, provider: str) -> str | None:
    """Return what a person pastes into a box at that provider so that the box lets us in. None if nothing is needed."""
    console = context.profile(provider).console
    if console is None or console.bootstrap is None:
        return None
    return console.bootstrap.replace("PUBLIC_KEY", context.public_key())


def _in_place_of(context: Context, lease: Lease, over: str | None) -> None:
    """Record whose mark on the box is ignored for this lease."""
    if over is not None:
        context.ledger.note(lease.id, timeline.TakesOver(over=over), at=context.clock.now())


async def _take_over(
    context: Context,
    profile: Profile,
    named: str,
    asked: RentRequest,
    over: str | None,
    price_usd_h: Decimal | None,
) -> Lease:
    """Put a box under a lease. Its provider lists the box, and no lease has it yet. The box counts as used.

    `named` is the box's id at its provider, or the ssh command or address that its console shows.
    `price_usd_h` is the price that the box's owner states. It is used if the provider states no price.
    """
    terms = _terms(context, asked)
    box = _find_listed(await context.connectors[profile.id].list_boxes(), named, profile)
    box_id = box.id
    if box.price_usd_h is None:
        box = box.model_copy(update={"price_usd_h": price_usd_h})
    theirs = deployment_of(box)
    if theirs not in (None, context.ledger.deployment) and over is None:
        raise BoxTaken(
            f"{box_id} carries the mark of another gpu-tenant ({theirs}), which may be using the box",
            remedy="end the box's lease where that gpu-tenant runs; if it no longer exists, a person at a terminal takes its "
            f"place: {Command('adopt', box_id, on=profile.id, take_over=theirs)}",
        )
    if over is not None and over not in (theirs, (box.mark or "").rpartition(":")[2]):
        raise BadRequest(
            f"{box_id} does not carry a mark of {over}",
            remedy=f"its mark is {box.mark or 'none'}: name that one, or leave --take-over out",
        )
    now = context.clock.now()
    must_be_doable(terms, profile)
    context.owner.must_be_agreed(_plan(context, profile, box, asked))
    lease = context.ledger.take_up(
        box,
        lease_id=new_lease_id(context.ledger, profile.id),
        terms=terms,
        at=now,
        touched_at=now,
        errand=asked.errand,
        allowed=context.owner.allows,
    )
    call_lease(context, lease, asked.labels)
    _in_place_of(context, lease, over)
    return lease


def _find_listed(boxes: Sequence[Box], named: str, profile: Profile) -> Box:
    """Return the one listed box that has this id or this address.

    Raises:
        BadRequest: the provider lists no such box, or two of them at one address.
    """
    found = [box for box in boxes if box.id == named]
    if not found and "@" in named:
        wanted = ssh_of(address_of(named).target)
        found = [box for box in boxes if _stands_at(box, wanted)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(
        f"{box.id} at {box.address.target}" if isinstance(box.address, SshAddress) else box.id
        for box in boxes
    )
    raise BadRequest(
        f"{profile.title} lists {'two boxes' if found else 'no box'} {named} (it lists: {listed or 'none'})",
        remedy=f"name one by its id: {Command('adopt', 'ID', on=profile.id)}; {Command('leases')} shows what runs",
    )


def _stands_at(box: Box, wanted: Ssh | None) -> bool:
    """Whether the box is reached at that host and port. The user name makes no difference."""
    if wanted is None or not isinstance(box.address, SshAddress):
        return False
    there = ssh_of(box.address.target)
    return there is not None and (there.host, there.port or 22) == (wanted.host, wanted.port or 22)


async def back_at(
    context: Context, lease: Lease, profile: Profile, connector: Tended, address: str | None
) -> Lease:
    """Reach a box that a person has started again, at `address`, or else at its former address. Return the lease.

    Raises:
        OwnerMustAct: nobody has started the box, or it has another address now.
    """
    before, there = lease.address, lease.address
    pinned = context.home.known_hosts(lease.id)
    was = pinned.read_bytes() if pinned.exists() else None
    if address is not None:
        there = address_of(address)
        lease = context.ledger.note_address(lease.id, there)
    pinned.unlink(missing_ok=True)
    try:
        await must_be_the_box(context, lease)
    except TenantError as trouble:
        if was is not None:
            pinned.write_bytes(was)
        if before is not None:
            context.ledger.note_address(lease.id, before)
        if not isinstance(trouble, BoxUnreachable):
            raise
        raise OwnerMustAct(
            f"{lease.id} does not answer at {address or lease.box_id}; a person has to start it: "
            f"{profile.console_words('resume')}",
            remedy=f"then {Command('resume', lease.id, at='ssh -p PORT root@HOST')}, with the address as the "
            "console shows it now",
        ) from trouble
    if isinstance(there, SshAddress):
        connector.note_moved(lease, there)
    return lease
