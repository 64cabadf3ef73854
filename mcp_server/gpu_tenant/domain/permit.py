"""Permission to destroy one box, on one of exactly three grounds, or one volume, on a person's signature.

A permit cannot be made outside `leases/verify.py`, nor copied, replaced, pickled or subclassed. It is
never stored: after a crash the evidence is gathered again.
"""

from dataclasses import InitVar, dataclass
from typing import ClassVar, Never, final
from weakref import WeakKeyDictionary

from gpu_tenant.domain.errors import PermitForged
from gpu_tenant.domain.model import BoxId, LeaseId
from gpu_tenant.domain.volumes import VolumeKey


@final
@dataclass(frozen=True, slots=True)
class Verified:
    """Every declared artifact was re-read away from the box and equals the seal. Every byte is accounted for."""

    name: ClassVar[str] = "verified"
    seal_digest: str


@final
@dataclass(frozen=True, slots=True)
class NeverUsed:
    """Nobody has used this box: the ledger shows no use.

    If the box ever let us in, a look at it shows no use either.
    """

    name: ClassVar[str] = "never_used"


@final
@dataclass(frozen=True, slots=True)
class Waived:
    """A person signed for exactly this loss."""

    name: ClassVar[str] = "waived"
    signed_by: str
    loss_digest: str
    signature: str
    """The code of the signature. It is `waived ahead` if the signature was made before there were codes."""


Ground = Verified | NeverUsed | Waived


@final
class Seal:
    """The right to mint permits. There is only one seal, and `leases/verify.py` holds it."""

    __slots__ = ()

    def __init__(self, _: Never) -> None:
        raise _forgery("a seal cannot be made")


_SEAL: Seal = object.__new__(Seal)


def _forgery(what: str) -> PermitForged:
    return PermitForged(what, remedy="report this as a bug in gpu-tenant; nothing was destroyed")


class _Unforgeable:
    """Something that cannot be copied, changed or stored."""

    __slots__ = ()

    def __copy__(self) -> Never:
        raise _forgery("a permit cannot be copied")

    def __deepcopy__(self, memo: object) -> Never:
        raise _forgery("a permit cannot be copied")

    def __replace__(self, **changes: object) -> Never:
        raise _forgery("a permit cannot be changed")

    def __reduce_ex__(self, protocol: object) -> Never:
        raise _forgery("a permit cannot be stored")


@final
@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class TeardownPermit(_Unforgeable):
    """Permission to destroy the one box `box_id` of `provider`, once, on `ground`."""

    lease_id: LeaseId
    provider: str
    box_id: BoxId
    ground: Ground
    seal: InitVar[Seal]

    def __post_init__(self, seal: Seal) -> None:
        if seal is not _SEAL:
            raise _forgery("a permit was minted without the seal")
        _MINTED[self] = self.claim

    @property
    def claim(self) -> tuple[LeaseId, str, BoxId, Ground]:
        """What this permit permits, as it is at this moment."""
        return self.lease_id, self.provider, self.box_id, self.ground

    def __init_subclass__(cls) -> Never:
        raise _forgery("a permit cannot be subclassed")


@final
@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class VolumePermit(_Unforgeable):
    """Permission to destroy the one volume `volume_id` of `provider`, once, because a person signed for that."""

    volume: VolumeKey
    provider: str
    volume_id: str
    """Its id at the provider."""
    region: str
    signature: str
    """The code of the signature."""
    seal: InitVar[Seal]

    def __post_init__(self, seal: Seal) -> None:
        if seal is not _SEAL:
            raise _forgery("a permit was minted without the seal")
        _MINTED[self] = self.claim

    @property
    def claim(self) -> tuple[VolumeKey, str, str, str, str]:
        """What this permit permits, as it is at this moment."""
        return self.volume, self.provider, self.volume_id, self.region, self.signature

    def __init_subclass__(cls) -> Never:
        raise _forgery("a permit cannot be subclassed")


_MINTED: WeakKeyDictionary[TeardownPermit | VolumePermit, tuple[object, ...]] = WeakKeyDictionary()
"""What each permit said when it was minted.

This is needed because `object.__new__` and `__setattr__` bypass the guards above.
"""


def genuine(permit: object, *, provider: str) -> TeardownPermit:
    """Return `permit` if it is a genuine permit for `provider`. Connectors call this before they destroy.

    Raises:
        PermitForged: it is anything else.
    """
    if type(permit) is not TeardownPermit:
        raise _forgery(f"{type(permit).__name__} is not a permit")
    _must_be_as_minted(permit, provider)
    return permit


def genuine_for_volume(permit: object, *, provider: str) -> VolumePermit:
    """Return `permit` if it is a genuine permit for a volume of `provider`. Connectors call this before they destroy.

    Raises:
        PermitForged: it is anything else.
    """
    if type(permit) is not VolumePermit:
        raise _forgery(f"{type(permit).__name__} is not a permit for a volume")
    _must_be_as_minted(permit, provider)
    return permit


def _must_be_as_minted(permit: TeardownPermit | VolumePermit, provider: str) -> None:
    if permit not in _MINTED:
        raise _forgery("a permit was made past its constructor")
    if _MINTED[permit] != permit.claim:
        raise _forgery("a permit was changed after it was minted")
    if permit.provider != provider:
        raise _forgery(f"a permit for {permit.provider} was shown to {provider}")
