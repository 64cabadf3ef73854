"""A permit comes from verification alone, says what it said when minted, and cannot be multiplied."""

import copy
import dataclasses
import json
import pickle
from collections.abc import Callable

import pytest
from arranged import a_volume, lease, leave_to_end, never_used

from gpu_tenant.domain.errors import PermitForged, TenantError
from gpu_tenant.domain.model import BoxId, LeaseId
from gpu_tenant.domain.permit import (
    NeverUsed,
    Seal,
    TeardownPermit,
    Verified,
    VolumePermit,
    Waived,
    genuine,
    genuine_for_volume,
)
from gpu_tenant.domain.volumes import VolumeKey

GROUNDS = (
    Verified(seal_digest="d1"),
    NeverUsed(),
    Waived(signed_by="a person", loss_digest="l1", signature="K7M3QP"),
)


@pytest.fixture
def permit() -> TeardownPermit:
    return never_used(lease())


def look_alike(original: TeardownPermit) -> TeardownPermit:
    """An object of the permit's own type, made past its constructor, field by field the same."""
    double = object.__new__(TeardownPermit)
    for field in dataclasses.fields(TeardownPermit):
        object.__setattr__(double, field.name, getattr(original, field.name))
    return double


def a_mint(seal: object) -> Callable[[], TeardownPermit]:
    return lambda: TeardownPermit(
        lease_id=LeaseId("local-abcd"),
        provider="local",
        box_id=BoxId("local-abcd"),
        ground=NeverUsed(),
        seal=seal,  # type: ignore[arg-type]
    )


def test_a_minted_permit_is_genuine_and_names_its_one_box(permit: TeardownPermit) -> None:
    shown = genuine(permit, provider="local")

    assert shown is permit
    assert (shown.lease_id, shown.provider, shown.box_id) == ("local-abcd", "local", "local-abcd")
    assert shown.ground == NeverUsed()


def test_there_are_exactly_three_grounds_and_the_ledger_knows_them_by_name() -> None:
    assert [ground.name for ground in GROUNDS] == ["verified", "never_used", "waived"]


@pytest.mark.parametrize(
    "seal",
    [None, True, "seal", object(), Seal, object.__new__(Seal)],
    ids=["none", "true", "text", "object", "the class", "another seal"],
)
def test_no_permit_is_minted_without_the_one_seal(seal: object) -> None:
    with pytest.raises(PermitForged, match="without the seal"):
        a_mint(seal)()


def test_no_permit_is_minted_when_the_seal_is_left_out() -> None:
    with pytest.raises(TypeError, match="seal"):
        TeardownPermit(LeaseId("l"), "local", BoxId("b"), NeverUsed())  # type: ignore[call-arg]


def test_a_seal_cannot_be_made() -> None:
    with pytest.raises(PermitForged, match="a seal cannot be made"):
        Seal(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda seal: pickle.loads(pickle.dumps(seal))],
    ids=["copy", "deepcopy", "pickle"],
)
def test_the_copy_of_a_seal_mints_nothing(copied: Callable[[Seal], Seal]) -> None:
    from gpu_tenant.domain import permit as law

    double = copied(law._SEAL)

    with pytest.raises(PermitForged, match="without the seal"):
        a_mint(double)()


MULTIPLIED: dict[str, Callable[[TeardownPermit], object]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "deepcopy in a list": lambda permit: copy.deepcopy([permit]),
    "pickle, oldest": lambda permit: pickle.dumps(permit, 0),
    "pickle": pickle.dumps,
    "pickle, newest": lambda permit: pickle.dumps(permit, pickle.HIGHEST_PROTOCOL),
    "reduce_ex": lambda permit: permit.__reduce_ex__(4),
    "copy.replace": lambda permit: permit.__replace__(box_id="another"),
    "dataclasses.replace": lambda permit: dataclasses.replace(
        permit, box_id=BoxId("another"), seal=object.__new__(Seal)
    ),
}


@pytest.mark.parametrize("multiply", MULTIPLIED.values(), ids=MULTIPLIED)
def test_a_permit_cannot_be_multiplied_or_stored(
    permit: TeardownPermit, multiply: Callable[[TeardownPermit], object]
) -> None:
    with pytest.raises(PermitForged):
        multiply(permit)


@pytest.mark.parametrize(
    "multiply",
    [
        lambda permit: dataclasses.replace(permit, box_id="another"),
        json.dumps,
        lambda permit: vars(permit),
    ],
    ids=["replace without a seal", "json", "vars"],
)
def test_the_language_itself_refuses_the_rest(
    permit: TeardownPermit, multiply: Callable[[TeardownPermit], object]
) -> None:
    with pytest.raises((TypeError, ValueError)):
        multiply(permit)


@pytest.mark.parametrize("field", ["lease_id", "provider", "box_id", "ground"])
def test_a_permit_cannot_be_changed(permit: TeardownPermit, field: str) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(permit, field, "another")
    with pytest.raises(dataclasses.FrozenInstanceError):
        delattr(permit, field)
    with pytest.raises((AttributeError, TypeError)):
        permit.also = "something"  # type: ignore[attr-defined]


@pytest.mark.parametrize("field", ["lease_id", "provider", "box_id", "ground"])
def test_a_permit_changed_behind_its_back_is_refused(permit: TeardownPermit, field: str) -> None:
    object.__setattr__(permit, field, "local" if field == "provider" else "another")
    if field == "provider":
        object.__setattr__(permit, field, "own")

    with pytest.raises(PermitForged):
        genuine(permit, provider=permit.provider)


def test_a_permit_restated_through_its_own_state_is_refused(permit: TeardownPermit) -> None:
    permit.__setstate__(["local-abcd", "local", "another-box", NeverUsed()])  # type: ignore[attr-defined]

    with pytest.raises(PermitForged):
        genuine(permit, provider="local")


def test_a_permit_cannot_be_subclassed() -> None:
    with pytest.raises(PermitForged, match="subclassed"):
        type("Loose", (TeardownPermit,), {})


def test_an_object_of_the_right_type_that_nobody_minted_is_refused(permit: TeardownPermit) -> None:
    with pytest.raises(PermitForged):
        genuine(look_alike(permit), provider="local")


def test_a_look_alike_is_refused_also_when_the_real_one_is_forgotten() -> None:
    doubles = [look_alike(never_used(lease())) for _ in range(50)]

    for double in doubles:
        with pytest.raises(PermitForged):
            genuine(double, provider="local")


def test_an_object_that_claims_the_permit_s_class_is_refused(permit: TeardownPermit) -> None:
    class Claims:
        lease_id, provider, box_id, ground = "local-abcd", "local", "local-abcd", NeverUsed()

        @property  # type: ignore[misc]
        def __class__(self) -> type:
            return TeardownPermit

    assert isinstance(Claims(), TeardownPermit)
    with pytest.raises(PermitForged, match="Claims is not a permit"):
        genuine(Claims(), provider="local")


@pytest.mark.parametrize(
    "shown",
    [None, "local-abcd", lease(), NeverUsed(), TeardownPermit, {"box_id": "local-abcd"}],
    ids=lambda shown: type(shown).__name__,
)
def test_anything_that_is_no_permit_is_refused(shown: object) -> None:
    with pytest.raises(PermitForged, match="is not a permit"):
        genuine(shown, provider="local")


def test_a_permit_is_good_at_its_own_provider_only(permit: TeardownPermit) -> None:
    with pytest.raises(PermitForged, match="a permit for local was shown to own"):
        genuine(permit, provider="own")


def test_two_permits_for_one_box_are_two_permits() -> None:
    standing = lease()

    assert never_used(standing) != never_used(standing)


@pytest.mark.parametrize("ground", GROUNDS, ids=lambda ground: ground.name)
def test_a_ground_cannot_be_changed_once_it_is_stated(
    ground: Verified | NeverUsed | Waived,
) -> None:
    with pytest.raises((dataclasses.FrozenInstanceError, TypeError)):
        ground.name = "another"  # type: ignore[misc]


def test_a_forgery_is_told_as_a_bug_of_ours() -> None:
    with pytest.raises(TenantError) as told:
        genuine("a box id", provider="local")

    assert told.value.code == "PERMIT_FORGED"
    assert told.value.exit_status == 8
    assert "bug" in told.value.remedy


# A permit for a volume


@pytest.fixture
def for_a_volume() -> VolumePermit:
    return leave_to_end(a_volume("runpod", "EU-RO-1", volume_id="v1"))


def volume_mint(seal: object) -> Callable[[], VolumePermit]:
    return lambda: VolumePermit(
        volume=VolumeKey("vol-abcd"),
        provider="runpod",
        volume_id="v1",
        region="EU-RO-1",
        signature="K7M3QP",
        seal=seal,  # type: ignore[arg-type]
    )


def test_a_minted_permit_for_a_volume_names_that_one_volume(for_a_volume: VolumePermit) -> None:
    shown = genuine_for_volume(for_a_volume, provider="runpod")

    assert shown is for_a_volume
    assert shown.claim == ("vol-abcd", "runpod", "v1", "EU-RO-1", "K7M3QP")


@pytest.mark.parametrize("seal", [None, True, object(), Seal, object.__new__(Seal)])
def test_no_permit_for_a_volume_is_minted_without_the_one_seal(seal: object) -> None:
    with pytest.raises(PermitForged, match="without the seal"):
        volume_mint(seal)()


@pytest.mark.parametrize(
    "multiply",
    [
        copy.copy,
        copy.deepcopy,
        pickle.dumps,
        lambda permit: permit.__replace__(volume_id="another"),
        lambda permit: dataclasses.replace(permit, seal=object.__new__(Seal)),
    ],
    ids=["copy", "deepcopy", "pickle", "copy.replace", "dataclasses.replace"],
)
def test_a_permit_for_a_volume_cannot_be_multiplied_or_stored(
    for_a_volume: VolumePermit, multiply: Callable[[VolumePermit], object]
) -> None:
    with pytest.raises(PermitForged):
        multiply(for_a_volume)


@pytest.mark.parametrize("field", ["volume", "provider", "volume_id", "region", "signature"])
def test_a_permit_for_a_volume_that_was_changed_is_refused(
    for_a_volume: VolumePermit, field: str
) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(for_a_volume, field, "another")
    object.__setattr__(for_a_volume, field, "another")

    with pytest.raises(PermitForged, match="was changed"):
        genuine_for_volume(for_a_volume, provider="runpod")


def test_a_look_alike_of_a_permit_for_a_volume_is_refused(for_a_volume: VolumePermit) -> None:
    double = object.__new__(VolumePermit)
    for field in dataclasses.fields(VolumePermit):
        object.__setattr__(double, field.name, getattr(for_a_volume, field.name))

    with pytest.raises(PermitForged, match="past its constructor"):
        genuine_for_volume(double, provider="runpod")


def test_a_permit_for_a_volume_cannot_be_subclassed() -> None:
    with pytest.raises(PermitForged, match="subclassed"):
        type("Loose", (VolumePermit,), {})


def test_a_permit_is_for_a_box_or_for_a_volume_and_at_its_own_provider(
    permit: TeardownPermit, for_a_volume: VolumePermit
) -> None:
    with pytest.raises(PermitForged, match="is not a permit for a volume"):
        genuine_for_volume(permit, provider="local")
    with pytest.raises(PermitForged, match="VolumePermit is not a permit"):
        genuine(for_a_volume, provider="runpod")
    with pytest.raises(PermitForged, match="a permit for runpod was shown to gcp"):
        genuine_for_volume(for_a_volume, provider="gcp")
