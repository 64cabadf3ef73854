"""What tests of a lease begin with: a clock moved by hand, leases in every state, real permits."""

import time
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from gpu_tenant.domain.errors import BoxUnreachable
from gpu_tenant.domain.model import (
    Address,
    Box,
    BoxId,
    BoxState,
    Job,
    JobId,
    Lease,
    LeaseId,
    LeaseState,
    LocalAddress,
    Profile,
)
from gpu_tenant.domain.offers import Offer, Price, Quote, Wish
from gpu_tenant.domain.permit import TeardownPermit, VolumePermit
from gpu_tenant.domain.ports import Connector, Setting, Transport
from gpu_tenant.domain.receipt import Receipt
from gpu_tenant.domain.seal import Discarded, Heap, Manifest, Unclaimed
from gpu_tenant.domain.signature import Signature
from gpu_tenant.domain.terms import Rate, Terms
from gpu_tenant.domain.volumes import Volume
from gpu_tenant.files.state_dir import Home
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.verify import Assessment, prove, sign_volume
from gpu_tenant.ledger import Ledger
from gpu_tenant.transports.local import LocalTransport

PATIENCE_S = 120
"""So long a test waits for what must come: a bound for a busy machine, and no expectation."""
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
LEASE = LeaseId("local-abcd")
TERMS = Terms(deadline_at=NOON + timedelta(hours=8))


class Alone:
    """The turn of a transfer that shares the link with no other."""

    def connections(self, wanted: int) -> int:
        return wanted

    def pause_s(self, n_bytes: int) -> float:
        return 0.0


class HandClock:
    """A clock that moves only when it is told to, and when somebody sleeps on it."""

    shared_with_boxes = False

    def __init__(self) -> None:
        self._now = NOON

    def now(self) -> datetime:
        return self._now

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    async def follow(self, seconds: float) -> None:
        await self.sleep(seconds)

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


def eventually(condition: Callable[[], object], *, within_s: float = PATIENCE_S) -> bool:
    """Whether `condition` came true in that time."""
    give_up = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.01)  # noqa: TID251 - between two looks at the real world
    return True


def profile(provider: str = "local", *, list_lag_s: float = 0) -> Profile:
    return Profile(
        id=provider,
        title=provider,
        kind="own" if provider in ("local", "own") else "container",
        lease="adopted" if provider == "own" else "created",
        console=None,
        python=None,
        park_how="api",
        park_command=None,
        places=(),
        doubts=(),
        checked_on=date(2026, 11, 20),
        mirror_needed=False,
        stops="nothing needs to",
        speed_up=None,
        price_source="owner",
        credential=None,
        states={},
        boot_timeout_s=60,
        confirm_s=list_lag_s,
        park="none",
        interruption=None,
        list_lag_s=list_lag_s,
        destroy="hands_back" if provider == "own" else "deletes",
        accounted_paths=("~",),
        stops_the_meter="nothing needs to",
        provider_timer="none",
        in_box="none",
        trap="none",
        runbook="",
    )


def setting(state: Path, provider: str = "local") -> Setting:
    """What a connector of that provider is given, with everything below `state`."""
    return Setting(
        profile=profile(provider),
        state=state,
        environ={},
        clock=HandClock(),
        credential=None,
        public_key=lambda: "ssh-ed25519 AAAA test",
        shell_at=lambda at: LocalTransport(state),
    )


def offer(**more: object) -> Offer:
    """One GPU at half a dollar an hour, with nothing unknown about it."""
    plain: dict[str, object] = {
        "provider": "tiny",
        "id": "o1",
        "gpu": "RTX 4090",
        "gpu_count": 1,
        "vram_gib": 24,
        "region": "Here",
        "price": price(),
        "disk_gb": 40,
        "interruptible": False,
        "trust": "verified",
        "reliability": 0.99,
        "max_hours": None,
        "download_mbps": 1000,
        "upload_mbps": 1000,
        "setup_s": 60,
    }
    return Offer.model_validate({**plain, **more})


def price(gpu_usd_h: str | None = "0.50", *, parked_usd_h: str | None = None) -> Price:
    return Price(
        gpu_usd_h=None if gpu_usd_h is None else Decimal(gpu_usd_h),
        disk_usd_h=Decimal(0),
        parked_usd_h=None if parked_usd_h is None else Decimal(parked_usd_h),
        upload_usd_gb=Decimal(0),
        download_usd_gb=Decimal(0),
        source="api",
    )


def quote(**more: object) -> Quote:
    """That offer for an hour's work, at no more than sixty cents, for ten minutes."""
    plain: dict[str, object] = {
        "id": "q-test",
        "offer": offer(),
        "wish": Wish(),
        "cap_usd_h": Decimal("0.60"),
        "expires_at": NOON + timedelta(minutes=10),
    }
    return Quote.model_validate({**plain, **more})


def box(lease_id: LeaseId = LEASE, *, provider: str = "local", box_id: str | None = None) -> Box:
    return Box(
        provider=provider,
        id=BoxId(box_id or lease_id),
        mark=f"gpu-tenant:test:{lease_id}",
        state=BoxState.READY,
        address=LocalAddress(directory=f"/boxes/{lease_id}/home"),
        price_usd_h=None,
    )


def lease(
    state: LeaseState = LeaseState.ACTIVE,
    *,
    lease_id: LeaseId = LEASE,
    provider: str = "local",
    terms: Terms = TERMS,
    price_usd_h: Decimal | None = None,
    address: Address | None = None,
) -> Lease:
    """A lease as the ledger would show it in that state, with a box wherever there must be one."""
    bound = state not in (LeaseState.INTENDED, LeaseState.VOID)
    return Lease(
        id=lease_id,
        mark=f"gpu-tenant:test:{lease_id}",
        provider=provider,
        state=state,
        terms=terms,
        quote=None,
        rates=(Rate(at=NOON, usd_h=price_usd_h),) if bound else (),
        ready_at=NOON if bound else None,
        parked_at=None,
        box_id=BoxId(lease_id) if bound else None,
        address=address,
        price_usd_h=price_usd_h,
        created_at=NOON,
        active_at=NOON if bound else None,
        ended_at=None if state.live else NOON,
        touched_at=None,
        kept_in=None,
    )


def intended(ledger: Ledger, lease_id: LeaseId = LEASE, *, provider: str = "local") -> Lease:
    """An intent on record."""
    return ledger.intend(
        lease_id=lease_id, provider=provider, terms=TERMS, address=None, price_usd_h=None, at=NOON
    )


def active(ledger: Ledger, lease_id: LeaseId = LEASE, *, provider: str = "local") -> Lease:
    """A lease on record that stands on its box."""
    intent = intended(ledger, lease_id, provider=provider)
    standing = box(lease_id, provider=provider).model_copy(update={"mark": intent.mark})
    return ledger.bind(lease_id, standing, at=NOON)


def terminating(ledger: Ledger, lease_id: LeaseId = LEASE, *, provider: str = "local") -> Lease:
    """A lease on record whose teardown was permitted."""
    return ledger.file_permit(never_used(active(ledger, lease_id, provider=provider)), at=NOON)


def gone(ledger: Ledger, lease_id: LeaseId = LEASE) -> Lease:
    """A lease on record that has ended with a receipt."""
    terminating(ledger, lease_id)
    for _ in range(2):
        ledger.saw(lease_id, listed="omitted", at=NOON)
    return ledger.file_receipt(receipt(lease_id), at=NOON)


def receipt(lease_id: LeaseId = LEASE) -> Receipt:
    return Receipt(
        lease_id=lease_id,
        provider="local",
        box_id=BoxId(lease_id),
        ground="never_used",
        active_at=NOON,
        destroy_asked_at=NOON,
        first_absent_at=NOON,
        second_absent_at=NOON,
        lived_s=0,
        cost_usd=None,
        kept_files=0,
        kept_bytes=0,
        kept_in=None,
        formats={},
        not_proved=(),
        warnings=(),
        given_up=(),
        left_behind=None,
    )


def job(
    name: str = "job1", *, artifacts: tuple[str, ...] = ("out/",), discard: tuple[str, ...] = ()
) -> Job:
    return Job(
        id=JobId(name),
        lease_id=LEASE,
        command="python train.py",
        artifacts=artifacts,
        discard=discard,
        env_names=(),
        max_runtime_s=None,
        declared_at=NOON,
        launched_at=None,
    )


def never_used(standing: Lease) -> TeardownPermit:
    """A genuine permit, minted by verification over a box that nobody ever touched."""
    return prove(standing, Assessment(untouched=True, seal=None, evidence=(), losses=()))


def a_volume(provider: str, region: str, *, volume_id: str | None = None) -> Volume:
    """A volume that is wanted, or that exists at its provider under that id."""
    return Volume.model_validate(
        {
            "key": "vol-abcd",
            "provider": provider,
            "name": "data",
            "mark": "gpu-tenant-0a1b2c-vol-abcd",
            "region": region,
            "size_gb": 50,
            "state": "intended" if volume_id is None else "active",
            "volume_id": volume_id,
            "usd_month": None,
            "created_at": NOON,
            "ended_at": None,
            "asked_at_place": None,
            "asked_with_key": None,
            "account": None,
        }
    )


def leave_to_end(volume: Volume) -> VolumePermit:
    """A genuine permit, minted by verification over a person's signature for that volume."""
    signed = Signature(
        code="K7M3QP",
        kind="volume",
        subject=volume.key,
        digest="d1",
        by="a person",
        form="terminal",
        at=NOON,
    )
    return sign_volume(volume, signed, digest="d1")


def seal(digest: str = "d1") -> Manifest:
    return Manifest(
        sealed_at=1.5,
        boot_id="b",
        since_ns=1,
        digest=digest,
        entries=(),
        unclaimed=Unclaimed(count=0, bytes=0),
        discarded=Discarded(count=0, bytes=0),
        pushed=Heap(count=0, bytes=0),
        problems=(),
        unmatched=(),
    )


def context_of(
    ledger: Ledger,
    of: Profile,
    connector: Connector | None = None,
    *more: tuple[Profile, Connector],
    transport: Callable[[Lease], Transport] | None = None,
) -> Context:
    """What a verb is handed where these are the platforms; boxes are reached by `transport`, or not at all."""

    def no_way(lease: Lease) -> Transport:
        raise BoxUnreachable(f"there is no way to {lease.id}", remedy="")

    async def introduce(lease: Lease, password: str) -> None:
        raise BoxUnreachable(f"there is no way to {lease.id}", remedy="")

    return Context(
        home=Home(ledger.directory),
        ledger=ledger,
        profiles={of.id: of} | {profile.id: profile for profile, _ in more},
        connectors=({} if connector is None else {of.id: connector})
        | {profile.id: asked for profile, asked in more},
        open_transport=transport or no_way,
        introduce=introduce,
        public_key=lambda: "",
        environ={},
    )
