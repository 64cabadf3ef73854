"""Makes, adopts, lists, grows and destroys named volumes. One is destroyed only if a person has signed for it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    BadRequest,
    Limit,
    ProviderSilent,
    ProviderTrouble,
    Refused,
    TenantError,
)
from gpu_tenant.domain.ids import new_id
from gpu_tenant.domain.model import LeaseId
from gpu_tenant.domain.offers import Attachable
from gpu_tenant.domain.order import Order, must_be_volume_name
from gpu_tenant.domain.ports import (
    Accounted,
    Asking,
    Connector,
    Growing,
    Outliving,
    Storing,
    VolumeMarket,
)
from gpu_tenant.domain.signature import digest_of
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.domain.volumes import ListedVolume, Volume, VolumeKey, VolumeState
from gpu_tenant.domain.waiting import wait_for
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.spending_limits import TABLE
from gpu_tenant.ledger.signatures import signature_wanted
from gpu_tenant.ledger.volumes import VolumeUse
from gpu_tenant.providers.response_limits import await_list

_GONE_WITHIN_S = 300
"""If a volume is still listed this long after the destroy request, a person has to look."""
_GROWN_WITHIN_S = 60
_LEAST_PAUSE_S = 5.0
_PATIENCE_S = 40
_LOST_FOR = timedelta(days=30)
"""A lost volume is still searched for during this time, because the provider's list may have been wrong."""


@dataclass(slots=True)
class VolumesSeen:
    """The volumes on record as their providers have just shown them."""

    volumes: list[Volume] = field(default_factory=list)
    alarms: list[tuple[str, str]] = field(default_factory=list)
    boxes: dict[VolumeKey, tuple[str, ...]] = field(default_factory=dict)
    """The boxes that have each volume mounted, as its provider says. A volume that was not listed is left out."""
    stays: dict[VolumeKey, str] = field(default_factory=dict)
    """For each volume whose disk may remain when the volume is deleted: how a person can see the disk."""


def volumes_for(context: Context, order: Order) -> tuple[Attachable, ...]:
    """Return the volumes that the order names, at every provider that has them.

    Raises:
        BadRequest: no volume of an ordered name exists.
    """
    known = [v for v in context.ledger.volumes() if v.state is VolumeState.ACTIVE]
    for name in order.volumes:
        if not any(volume.name == name for volume in known):
            raise BadRequest(
                f"there is no volume {name!r}",
                remedy=f"{Command('volumes', create=name, on='PROVIDER', region='REGION', size_gb='GB')} makes it, once; "
                f"{Command('volumes')} lists those that exist",
            )
    return tuple(
        volume.attachable(mount.path)
        for name, mount in order.volumes.items()
        for volume in known
        if volume.name == name
    )


def must_be_free(context: Context, provider: str, order: Order) -> None:
    """Check that the ordered volumes exist at that provider, and that no live lease uses them.

    Raises:
        Refused: one of them is missing, is being destroyed, or is in use.
    """
    known = {v.name: v for v in context.ledger.volumes() if v.provider == provider}
    for name in order.volumes:
        volume = known.get(name)
        if volume is None or volume.state is not VolumeState.ACTIVE:
            raise Refused(
                f"the volume {name} is not at {provider} (any more); nothing was rented",
                remedy=f"{Command('volumes')} lists the volumes; {Command('offers')} makes new quotes",
            )
        user = user_of(context, volume)
        if user is not None:
            raise Refused(
                f"the volume {name} is in use by {user}: a volume is on one box at a time; nothing was rented",
                remedy=f"{Command('teardown', user)} first, or take another volume",
            )


def user_of(context: Context, volume: Volume) -> str | None:
    """Return the live lease that uses the volume. None if no lease uses it."""
    live = ("intended", "active", "terminating")
    users = [mount.lease for mount in context.ledger.uses_of(volume) if mount.state in live]
    return users[-1] if users else None


def last_use(context: Context, volume: Volume) -> str:
    """Say what last wrote to the volume, as far as this ledger knows."""
    mounts = context.ledger.uses_of(volume)
    if not mounts:
        return "no lease of ours has used it"
    last = mounts[-1]
    if last.ended_at is None:
        return f"{last.lease} uses it since {last.begun_at:%Y-%m-%d %H:%M} UTC"
    return f"{last.lease} used it last, until {last.ended_at:%Y-%m-%d %H:%M} UTC{_ground(last)}"


def _ground(mount: VolumeUse) -> str:
    if mount.state == "lost":
        return ", and was lost"
    return "" if mount.ground is None else f" ({mount.ground.replace('_', ' ')})"


def volume_words(context: Context, volume: Volume) -> str:
    """Say in one line what the volume is, what it costs, how old it is and what last wrote to it."""
    state = "" if volume.state is VolumeState.ACTIVE else f" [{volume.state}]"
    age = volume.age(context.clock.now())
    return f"{volume.words}, {age} old{state}; {last_use(context, volume)}"


# --- a new one


async def create_volume(
    context: Context, name: str, *, provider: str, region: str, size_gb: int
) -> Volume:
    """Make a volume of that name. It bills from now on, until somebody signs for its end.

    Raises:
        BadRequest: the name is not valid, or this program cannot make volumes at that provider.
        Limit: the owner's limit for volumes leaves no room.
        Refused: there is a volume of that name already.
        ProviderTrouble: no volume was made. If it is ProviderSilent, one may exist.
    """
    _must_be_named(name)
    context.must_record()
    context.set_up(provider)
    connector, ledger = _storage(context, provider), context.ledger
    usd_month = (
        await connector.ask_volume_usd_month(size_gb, region)
        if isinstance(connector, VolumeMarket)
        else connector.volume_usd_month(size_gb, region)
    )
    signed = _signed_for_price(
        context,
        provider,
        usd_month,
        f"make the volume {name} ({size_gb} GB at {provider}, {region}), which bills until somebody ends it",
    )
    key = VolumeKey(new_id("vol", {v.key for v in ledger.volumes("all")}))
    volume = ledger.intend_volume(
        key,
        provider=provider,
        name=name,
        # This mark identifies the volume in its provider's list. Every platform allows these letters.
        mark=f"gpu-tenant-{ledger.deployment}-{key}",
        region=region,
        size_gb=size_gb,
        usd_month=usd_month,
        at=ledger.now(),
        allowed=lambda others: _must_be_allowed(context, others, usd_month),
        signed=signed,
    )
    asking = await _asking(context, provider)
    wait_for(f"{provider} makes the volume {name}")
    try:
        made = await connector.create_volume(volume)
    except ProviderSilent as silence:
        silence.message += f"; the volume {name} may exist, and bill"
        silence.remedy = f"{Command('volumes')} looks again"
        raise
    except TenantError as refusal:
        ledger.end_volume(volume.key, "void", plain(refusal.message)[:300], at=ledger.now())
        raise
    return _bind(context, volume, made, asking)


def _signed_for_price(
    context: Context, provider: str, usd_month: Decimal | None, would: str
) -> tuple[str, ...]:
    """Return the code of a person's signature for an unknown price. Empty if the price is known.

    Raises:
        SignatureWanted: nobody has signed for it.
    """
    if usd_month is not None:
        return ()
    ledger = context.ledger
    code = ledger.must_be_signed(
        kind="volume price",
        subject=provider,
        would=would,
        words=("what it costs is unknown, which is not zero",),
        at=ledger.now(),
    )
    return (code,)


def _must_be_named(name: str) -> None:
    try:
        must_be_volume_name(name)
    except ValueError as error:
        raise BadRequest(str(error), remedy="take another name") from None


async def adopt_volume(context: Context, name: str, *, provider: str, volume_id: str) -> Volume:
    """Adopt a volume that somebody made elsewhere. A person must sign for this, because boxes will write to it.

    Raises:
        BadRequest: the name is not valid, or the provider lists no such volume.
        Refused: the volume is on record already, or another one has that name.
        SignatureWanted: nobody has signed for it.
        ProviderTrouble: the provider did not answer.
    """
    _must_be_named(name)
    context.must_record()
    context.set_up(provider)
    connector, ledger = _storage(context, provider), context.ledger
    listed = await await_list(connector.list_volumes(), "its list of volumes")
    found = next((one for one in listed if one.id == volume_id), None)
    if found is None:
        raise BadRequest(
            f"{provider} lists no volume with the id {plain(volume_id)[:80]}",
            remedy=f"{Command('leases')} shows what bills there without a box, by its id",
        )
    signature = ledger.must_be_signed(
        kind="volume adoption",
        subject=provider,
        would=f"take up {plain(found.name)} ({found.id} at {provider}, {plain(found.region)}) as the volume {name}",
        words=(
            "from then on boxes may mount it, and whatever runs on them can change or delete what is on it",
            "it was made elsewhere, and nobody here knows what is on it",
        ),
        at=ledger.now(),
    )
    asking = await _asking(context, provider)
    key = VolumeKey(new_id("vol", {v.key for v in ledger.volumes("all")}))
    return ledger.adopt_volume(
        key, name, found, asking, provider=provider, signature=signature, at=ledger.now()
    )


async def grow_volume(
    context: Context, name: str, size_gb: int, *, provider: str | None = None
) -> Volume:
    """Make the volume larger, and keep its files. No provider can make it smaller again.

    Raises:
        BadRequest: it is that large already, or its provider cannot make volumes larger.
        Limit: the owner's limit for volumes leaves no room.
        Refused: a box has it mounted, or a lease uses it.
        ProviderTrouble: its size has not changed. If it is ProviderSilent, it may have grown.
    """
    context.must_record()
    volume = find_volume(context, name, provider)
    context.set_up(volume.provider)
    connector, ledger = _storage(context, volume.provider), context.ledger
    if not isinstance(connector, Growing):
        raise BadRequest(
            f"no volume at {context.profile(volume.provider).title} can be made larger",
            remedy="make a larger one, and copy what is on this one",
        )
    with context.hold_lease(volume.key, "grow volume"):
        volume = ledger.volume(volume.key)
        listed = await _listed_now(context, volume, connector)
        if listed is None or volume.state is not VolumeState.ACTIVE:
            raise Refused(
                f"its provider does not list the volume {name} now, or it is on its way out; it is as it was",
                remedy=f"{Command('volumes')} looks again",
            )
        _must_be_detached(context, volume, listed, "it is as it was")
        volume = _as_listed(context, volume, listed)
        if size_gb <= volume.size_gb:
            raise BadRequest(
                f"the volume {name} has {volume.size_gb} GB, and none is made smaller",
                remedy="give a larger size",
            )
        # If the provider lists this volume without a price, its usual price does not apply to this kind.
        is_priced = volume.usd_month is not None
        usd_month = connector.volume_usd_month(size_gb, volume.region) if is_priced else None
        signed = _signed_for_price(
            context,
            volume.provider,
            usd_month,
            f"make {volume.words} as large as {size_gb} GB, which bills until somebody ends it",
        )
        wanted = ledger.intend_growth(
            volume.key,
            size_gb,
            usd_month,
            at=ledger.now(),
            allowed=lambda others: _must_be_allowed(context, others, usd_month),
            signed=signed,
        )
        try:
            await connector.grow_volume(volume, size_gb)
        except ProviderSilent:
            raise  # The next look shows how large it is.
        except TenantError as refusal:
            ledger.rate_volume(volume.key, volume.usd_month, volume.size_gb)
            words = plain(refusal.message)[:300]
            ledger.note_volume(volume.key, "growth refused", words, at=ledger.now())
            raise
        return await _seen_grown(context, wanted, connector)


async def _seen_grown(context: Context, wanted: Volume, connector: Storing) -> Volume:
    """Wait until the provider's list shows the new size, and record it. This may take a while.

    If the list does not show it, the size and the rate that were asked for stay on record until the next look.
    """
    ledger = context.ledger
    give_up_at = ledger.now() + timedelta(seconds=_GROWN_WITHIN_S)
    while True:
        with suppress(ProviderTrouble):
            shown = await _listed_now(context, wanted, connector)
            if shown is not None and round(shown.size_gb or 0) >= wanted.size_gb:
                return _as_listed(context, wanted, shown)
        if ledger.now() >= give_up_at:
            return wanted
        wait_for(f"the volume {wanted.name} grows")
        await ledger.clock.sleep(_LEAST_PAUSE_S)


def _must_be_allowed(context: Context, others: Sequence[Volume], usd_month: Decimal | None) -> None:
    most = context.owner.limits.volumes_usd_month
    used = sum((v.usd_month for v in others if v.usd_month is not None), Decimal(0))
    if usd_month is not None and used + usd_month > most:
        passed = Limit(
            f"with it, all volumes would cost {used + usd_month} USD a month, and the owner's limit volumes_usd_month is "
            f"{most:g}, of which {used} are used",
            remedy=f"ask for a smaller one, or end one that is not needed; only the owner raises the limit: "
            f"{Command('limits')} at a terminal, or volumes_usd_month below [{TABLE}] in {context.home.configuration}",
        )
        passed.name, passed.value = "volumes_usd_month", f"{most:g}"
        raise passed


def _bind(context: Context, volume: Volume, made: ListedVolume, asking: Asking | None) -> Volume:
    ledger = context.ledger
    ledger.bind_volume(volume.key, made.id, asking, at=ledger.now())
    return _as_listed(context, volume, made)


def _as_listed(context: Context, volume: Volume, listed: ListedVolume) -> Volume:
    """Record the size and the price that the provider shows. What it does not show stays as it was."""
    size = volume.size_gb if listed.size_gb is None else round(listed.size_gb)
    rate = volume.usd_month if listed.usd_month is None else listed.usd_month
    return context.ledger.rate_volume(volume.key, rate, size)


def _connector(context: Context, provider: str) -> Connector:
    if provider not in context.connectors:
        raise ProviderTrouble(f"{provider} cannot be asked now", remedy=str(Command("doctor")))
    return context.connectors[provider]


def _storage(context: Context, provider: str) -> Storing:
    connector = _connector(context, provider)
    if not isinstance(connector, Storing):
        raise BadRequest(
            f"no volume is kept at {context.profile(provider).title} by this program",
            remedy=f"{Command('profiles', provider)} says what outlives a box there",
        )
    return connector


# --- a look


async def look_at_volumes(
    context: Context, *, at: Collection[str] | None = None, patience_s: float = _PATIENCE_S
) -> VolumesSeen:
    """Ask every provider that should have a volume of ours, and update our record of each volume."""
    seen, now = VolumesSeen(), context.clock.now()
    wanted: dict[str, list[Volume]] = {}
    for volume in context.ledger.volumes("all"):
        is_missed = volume.state is VolumeState.LOST and now - (volume.ended_at or now) < _LOST_FOR
        if (volume.state.live or is_missed) and (at is None or volume.provider in at):
            wanted.setdefault(volume.provider, []).append(volume)

    async def ask(provider: str, volumes: Sequence[Volume]) -> None:
        asked_at = context.clock.now()
        try:
            connector = _storage(context, provider)
            async with asyncio.timeout(patience_s):
                listed = await await_list(connector.list_volumes(), "its list of volumes")
                shown = {v.key: await _settle(context, v, listed, asked_at, seen) for v in volumes}
                for v in shown.values():
                    if v.state is VolumeState.ACTIVE:
                        await _note_stay(connector, v, seen)
        except (BadRequest, ProviderTrouble, TimeoutError) as error:
            words = getattr(error, "message", "") or f"no answer within {patience_s:g} s"
            seen.alarms += [
                (provider, f"{v.words}: whether it is there is unknown ({words})")
                for v in volumes
                if v.state.live
            ]
            shown = {v.key: v for v in volumes}
        seen.volumes += [volume for volume in shown.values() if volume.state.live]

    async with asyncio.TaskGroup() as asking:
        for provider, volumes in wanted.items():
            asking.create_task(ask(provider, volumes))
    seen.volumes.sort(key=lambda volume: (volume.created_at, volume.key))
    return seen


async def _settle(
    context: Context,
    volume: Volume,
    listed: Sequence[ListedVolume],
    asked_at: datetime,
    seen: VolumesSeen,
) -> Volume:
    """Update the record of the volume by that list. Append to `seen` what a person must hear."""
    ledger, state = context.ledger, volume.state
    if context.unrecorded:
        return volume
    found = _in_list(volume, listed)
    if found is not None:
        seen.boxes[volume.key] = found.boxes
        if state is VolumeState.INTENDED:
            return _bind(context, volume, found, await _asking(context, volume.provider))
        if ledger.volume_absences(volume.key):
            ledger.see_volume(volume.key, listed="listed", at=asked_at)
        if state is VolumeState.LOST:
            found_again = ledger.find_volume_again(volume.key, at=asked_at)
            if found_again is None:
                _tell_of_another(context, volume, seen)
                return volume
            volume = found_again
            seen.alarms.append((volume.provider, f"{volume.words} is listed again, and bills"))
        if found.going is not None and state is not VolumeState.ENDING:
            seen.alarms.append((volume.provider, f"{volume.words}: {found.going}"))
        if state is VolumeState.ENDING:
            again = Command("volumes", destroy=volume.name, on=volume.provider)
            seen.alarms.append(
                (volume.provider, f"{volume.words}: its end was cut short; {again} goes on")
            )
        return _as_listed(context, volume, found)
    if state is VolumeState.LOST or asked_at < volume.created_at:
        return volume
    doubt = disk_that_may_bill(context, volume)
    if doubt is not None and len(ledger.volume_absences(volume.key)) >= 2:
        seen.alarms.append((volume.provider, doubt))
        return volume
    strange = await _stranger(context, volume)
    if strange is not None:
        seen.alarms.append((volume.provider, f"{volume.words}: {strange}"))
        return volume
    if not _may_be_counted(context, volume, asked_at):
        return volume
    ledger.see_volume(volume.key, listed="omitted", at=asked_at)
    if len(ledger.volume_absences(volume.key)) < 2:
        return volume
    match state:
        case VolumeState.INTENDED:
            return ledger.end_volume(volume.key, "void", "it was never listed", at=asked_at)
        case VolumeState.ENDING if doubt is not None:
            seen.alarms.append((volume.provider, doubt))
            return volume
        case VolumeState.ENDING:
            return ledger.end_volume(volume.key, "gone", "its list omits it", at=asked_at)
        case _:
            words = "its provider lists it no more, and this program did not destroy it"
            seen.alarms.append((volume.provider, f"{volume.words}: {words}"))
            return ledger.end_volume(volume.key, "lost", words, at=asked_at)


def _tell_of_another(context: Context, lost: Volume, seen: VolumesSeen) -> None:
    """Say that a lost volume is listed again but its name is taken, unless it was adopted under another name."""
    live = context.ledger.volumes()
    if any((v.provider, v.volume_id) == (lost.provider, lost.volume_id) for v in live):
        return
    take_up = Command("volumes", adopt="NAME", on=lost.provider, id=lost.volume_id)
    words = f"is listed again, and bills; another volume has its name now: {take_up} takes it up"
    seen.alarms.append((lost.provider, f"{lost.words} {words}"))


def _in_list(volume: Volume, listed: Sequence[ListedVolume]) -> ListedVolume | None:
    """Find the volume in the list by its id, or by its mark if it has no id yet. None if it is not listed."""
    if volume.volume_id is None:
        return next((one for one in listed if one.name == volume.mark), None)
    return next((one for one in listed if one.id == volume.volume_id), None)


def _may_be_counted(context: Context, volume: Volume, asked_at: datetime) -> bool:
    """Whether this absence from the list counts: the list is not late, and the last absence was long enough ago."""
    profile = context.profile(volume.provider)
    if volume.state is VolumeState.INTENDED and asked_at < volume.created_at + timedelta(
        seconds=profile.list_lag_s
    ):
        return False
    absences = context.ledger.volume_absences(volume.key)
    return not absences or asked_at >= absences[-1] + timedelta(seconds=profile.confirm_s)


# --- whose account it is


async def _asking(context: Context, provider: str) -> Asking | None:
    connector = _connector(context, provider)
    if not isinstance(connector, Accounted):
        return None
    asking = connector.asked_with(context.ledger.deployment)
    if asking is None:
        return None
    try:
        return asking.of(await connector.account())
    except ProviderTrouble:
        return asking


async def _stranger(context: Context, volume: Volume) -> str | None:
    """Say why the list proves nothing about the volume. None if the list is of the account that made the volume."""
    if volume.asked_with_key is None:
        return None
    connector = _connector(context, volume.provider)
    now = (
        connector.asked_with(context.ledger.deployment)
        if isinstance(connector, Accounted)
        else None
    )
    if now is not None and now.where != volume.asked_at_place:
        return f"it was made at {volume.asked_at_place}, and {now.where} is asked now, whose list proves nothing about it"
    if now is not None and now.key == volume.asked_with_key:
        return None
    asked = await _asking(context, volume.provider)
    if asked is not None and asked.account is not None and asked.account == volume.account:
        return None
    return (
        "it was made with another key, and whether this key is of the same account is unknown, so its list proves "
        "nothing about the volume; use the former key"
    )


# --- its end


async def _note_stay(connector: Storing, volume: Volume, seen: VolumesSeen) -> None:
    try:
        words = await _may_stay(connector, volume)
    except ProviderTrouble as trouble:
        words = f"whether its disk would go with it could not be asked: {trouble.message}"
    if words is not None:
        seen.stays[volume.key] = words


async def _may_stay(connector: Storing, volume: Volume) -> str | None:
    return await connector.may_stay(volume) if isinstance(connector, Outliving) else None


def disk_that_may_bill(context: Context, volume: Volume) -> str | None:
    """Warn that the disk of a deleted volume may still bill, and say what to do. None if there is no such doubt."""
    told = [line for line in context.ledger.volume_events(volume.key) if line.kind == "may stay"]
    if not told or volume.state is not VolumeState.ENDING:
        return None
    over = Command("volumes", disk_gone=volume.name, on=volume.provider)
    return (
        f"{volume.words}: it was deleted, and is perhaps still billing; {told[-1].words}; once a person has seen "
        f"that no disk is left, {over}"
    )


def confirm_disk_gone(context: Context, name: str, *, provider: str | None = None) -> Volume:
    """Record that the disk of a deleted volume is gone, because a person signs for that.

    Raises:
        BadRequest: there is no doubt about this volume's disk.
        Refused: the volume itself may still exist.
        SignatureWanted: nobody has signed for it.
    """
    context.must_record()
    volume, ledger = find_volume(context, name, provider), context.ledger
    with context.hold_lease(volume.key, "confirm"):
        volume = ledger.volume(volume.key)
        doubt = disk_that_may_bill(context, volume)
        if doubt is None:
            raise BadRequest(
                f"the volume {name} was not deleted, or its disk was deleted with it: there is nothing to confirm",
                remedy=f"{Command('volumes')} shows its state",
            )
        if len(ledger.volume_absences(volume.key)) < 2:
            raise Refused(
                f"the volume {name} itself is not proved gone yet",
                remedy=f"{Command('volumes', destroy=name, on=volume.provider)} goes on",
            )
        code = ledger.must_be_signed(
            kind="volume disk",
            subject=volume.key,
            would=f"count {volume.words} as gone, with its disk, and look for it no more",
            words=(
                doubt,
                "if the disk is there nevertheless, it bills on, and nothing here shows it",
            ),
            at=ledger.now(),
        )
        return ledger.confirm_disk_gone(volume.key, code, at=ledger.now())


def find_volume(context: Context, name: str, provider: str | None) -> Volume:
    """Return the live volume of that name.

    Raises:
        BadRequest: there is none, or several providers have one.
    """
    found = [
        v for v in context.ledger.volumes() if v.name == name and provider in (None, v.provider)
    ]
    if len(found) == 1:
        return found[0]
    if found:
        where = ", ".join(sorted(v.provider for v in found))
        raise BadRequest(
            f"several providers have a volume {name}: {where}",
            remedy=str(Command("volumes", destroy=name, on=found[0].provider)),
        )
    raise BadRequest(
        f"no volume {name!r} is on record here, and what is not on record is never destroyed",
        remedy=f"{Command('volumes')} lists them; another one is ended in its provider's console",
    )


async def destroy_volume(context: Context, name: str, *, provider: str | None = None) -> Volume:
    """Destroy the volume. A person must have signed for exactly this volume and everything on it.

    If the volume's disk may remain, the volume counts as *ending* afterwards: see `confirm_disk_gone`.

    Only a signature allows this, even if a lease has evidence for its files or if no lease ever used the volume: anybody
    with access to the provider's console can mount it and write to it.

    Raises:
        Refused: a box has it mounted, or a lease uses it.
        SignatureWanted: nobody has signed for it as it is now.
        ProviderTrouble: the provider did not answer, or the volume is not proved gone and may bill.
    """
    # Import this only here: it loads the readers of every file format, which other operations do not need.
    from gpu_tenant.leases.verify import sign_volume

    context.must_record()
    volume = find_volume(context, name, provider)
    context.set_up(volume.provider)
    connector, ledger = _storage(context, volume.provider), context.ledger
    with context.hold_lease(volume.key, "destroy volume"):
        volume = ledger.volume(volume.key)
        listed = await _listed_now(context, volume, connector)
        if listed is None and volume.state is VolumeState.ENDING:
            return await _seen_gone(context, volume, connector)
        if listed is None:
            raise Refused(
                f"its provider does not list the volume {name} now; nothing was destroyed",
                remedy=f"{Command('volumes')} looks again, and says when it counts as lost",
            )
        if volume.state is VolumeState.INTENDED:
            volume = _bind(context, volume, listed, await _asking(context, volume.provider))
        _must_be_detached(context, volume, listed)
        # The signature is for the size that the provider shows now.
        volume = _as_listed(context, volume, listed)
        stays = await _may_stay(connector, volume)
        digest = _digest(context, volume, listed, stays)
        signature = ledger.volume_signature(volume.key, digest, at=ledger.now())
        if signature is None:
            raise signature_wanted(
                ledger.ask_signature(
                    kind="volume",
                    subject=volume.key,
                    digest=digest,
                    would=f"destroy {volume.words}, with everything on it, for good",
                    words=_loss_words(context, volume, stays),
                    at=ledger.now(),
                )
            )
        permit = sign_volume(volume, signature, digest=digest)
        volume = ledger.file_volume_permit(permit, at=ledger.now())
        # Since the first look, a box may have mounted the volume and written to it. No box of a lease can have done so,
        # because the permit is recorded.
        again = await _listed_now(context, volume, connector)
        if again is not None:
            _must_be_detached(context, volume, again)
            if _digest(context, volume, again, await _may_stay(connector, volume)) != digest:
                raise Refused(
                    f"the volume {name} is not any more what was signed for: its provider shows another size or a later use; "
                    "nothing was destroyed",
                    remedy=f"{Command('volumes', destroy=name, on=volume.provider)} asks for a new signature",
                )
            ledger.must_still_hold(LeaseId(volume.key))
            if stays is not None:
                # Record this first: from now on, the volume counts as gone only when a person has looked for its disk.
                ledger.note_volume(volume.key, "may stay", stays, at=ledger.now())
            ledger.note_volume(volume.key, "asked", "the destroy was sent", at=ledger.now())
            try:
                await connector.destroy_volume(permit)
            except ProviderSilent:
                pass  # The list will show it, and a second request does no harm.
            except TenantError as refusal:
                words = plain(refusal.message)[:300]
                ledger.note_volume(volume.key, "refused", words, at=ledger.now())
                refusal.message = f"{volume.words} goes on billing: {refusal.message}"
                raise
        return await _seen_gone(context, volume, connector)


def _must_be_detached(
    context: Context,
    volume: Volume,
    listed: ListedVolume,
    outcome: str = "nothing was destroyed",
) -> None:
    user = user_of(context, volume)
    if user is not None:
        raise Refused(
            f"{user} uses the volume {volume.name}; {outcome}",
            remedy=f"{Command('teardown', user)} first",
        )
    if listed.boxes:
        raise Refused(
            f"the box {plain(listed.boxes[0])} has the volume {volume.name}, as its provider says; {outcome}",
            remedy="end that box first, or detach the volume in the provider's console",
        )


def _digest(
    context: Context, volume: Volume, listed: ListedVolume, stays: str | None = None
) -> str:
    """Return a hash of the volume's present state. A signature is for this hash.

    The hash changes when another lease uses the volume, or when its size changes. At a provider whose size is the
    number of bytes on the volume, every write changes it. At a provider that says when a box last had the volume, every
    box that mounts it changes the hash.
    """
    users = [mount.lease for mount in context.ledger.uses_of(volume)]
    size = volume.size_gb if listed.size_gb is None else listed.size_gb
    uses = users if listed.last_use is None else [*users, listed.last_use]
    more = uses if stays is None else [*uses, stays]
    return digest_of([volume.key, str(volume.volume_id), str(size), *more])


def _loss_words(context: Context, volume: Volume, stays: str | None) -> tuple[str, ...]:
    used = [
        f"{m.lease} had it from {m.begun_at:%Y-%m-%d %H:%M} UTC{_ground(m)}"
        for m in context.ledger.uses_of(volume)
    ]
    return (
        f"{volume.words}: {volume.volume_id}, {volume.age(context.clock.now())} old",
        *(used or ["no lease of ours has used it"]),
        "everything on it: nobody has read it, and a lease's evidence does not say what else is on it",
        *([] if stays is None else [stays]),
    )


async def _listed_now(context: Context, volume: Volume, connector: Storing) -> ListedVolume | None:
    """Return the volume as its provider lists it now. None if the list of its account omits it.

    Raises:
        ProviderTrouble: the provider did not answer, or the list is of another account.
    """
    listed = await await_list(connector.list_volumes(), "its list of volumes")
    strange = await _stranger(context, volume)
    if strange is not None:
        raise ProviderTrouble(f"{volume.words}: {strange}; nothing was destroyed", remedy="")
    return _in_list(volume, listed)


async def _seen_gone(context: Context, volume: Volume, connector: Storing) -> Volume:
    """Wait until the provider's list has omitted the volume twice, and record its end.

    Raises:
        ProviderSilent: it is not proved gone in time, and may bill.
    """
    profile, ledger = context.profile(volume.provider), context.ledger
    give_up_at = ledger.now() + timedelta(seconds=max(_GONE_WITHIN_S, 3 * profile.list_lag_s))
    pause_s = max(_LEAST_PAUSE_S, profile.confirm_s)
    while True:
        asked_at, trouble = ledger.now(), "its provider's list still shows it"
        try:
            listed = await _listed_now(context, volume, connector)
        except ProviderTrouble as error:
            trouble = error.message
        else:
            look = "omitted" if listed is None else "listed"
            if listed is not None and listed.boxes:
                # A box mounted it between the last look and the destroy request, so its provider has kept it.
                trouble = f"the box {plain(listed.boxes[0])} has it now"
            if listed is None and _may_be_counted(context, volume, asked_at):
                ledger.see_volume(volume.key, listed="omitted", at=asked_at)
            elif look == "listed" and ledger.volume_absences(volume.key):
                ledger.see_volume(volume.key, listed="listed", at=asked_at)
            if len(ledger.volume_absences(volume.key)) >= 2:
                if disk_that_may_bill(context, ledger.volume(volume.key)) is not None:
                    return ledger.volume(volume.key)
                return ledger.end_volume(volume.key, "gone", "its list omits it", at=asked_at)
        if ledger.now() >= give_up_at:
            raise ProviderSilent(
                f"{volume.words} is not proved gone, and may be billing: {trouble}",
                remedy=f"{Command('volumes', destroy=volume.name, on=volume.provider)} goes on",
            )
        wait_for(f"the volume {volume.name} goes")
        await ledger.clock.sleep(pause_s)
