"""Uses of the law that must not type-check, each marked with what the checker says of it."""

import copy
import dataclasses
from collections.abc import Sequence
from typing import assert_never

from gpu_tenant.domain.model import Box, BoxId, JobId, Lease, LeaseId, LeaseState
from gpu_tenant.domain.permit import (
    Ground,
    NeverUsed,
    Seal,
    TeardownPermit,
    Verified,
    VolumePermit,
    Waived,
    genuine,
)
from gpu_tenant.domain.ports import Clock, Connector, Storing
from gpu_tenant.domain.receipt import Receipt
from gpu_tenant.domain.reconcile import Blind, Listed, Omitted, Patience, Seen, Step, plan
from gpu_tenant.domain.volumes import Volume
from gpu_tenant.leases.verify import Assessment, prove, sign, sign_volume
from gpu_tenant.ledger import Ledger

_PATIENCE = Patience(list_lag_s=0, confirm_s=0)


def mint_without_the_seal(lease: Lease, box_id: BoxId) -> None:
    TeardownPermit(lease.id, lease.provider, box_id, NeverUsed())  # E: call-arg
    TeardownPermit(lease.id, lease.provider, box_id, NeverUsed(), None)  # E: arg-type
    TeardownPermit(lease.id, lease.provider, box_id, NeverUsed(), object())  # E: arg-type
    TeardownPermit(lease.id, lease.provider, box_id, NeverUsed(), seal="seal")  # E: arg-type
    TeardownPermit(lease.id, lease.provider, box_id, NeverUsed(), Seal)  # E: arg-type


def make_a_seal() -> None:
    Seal()  # E: call-arg


def make_a_seal_of_something() -> None:
    Seal(None)  # E: arg-type


def mint_for_something_else(lease: Lease, box_id: BoxId, seal: Seal) -> None:
    TeardownPermit("local-abcd", lease.provider, box_id, NeverUsed(), seal)  # E: arg-type
    TeardownPermit(lease.id, lease.provider, "local-abcd", NeverUsed(), seal)  # E: arg-type
    TeardownPermit(lease.id, lease.provider, lease.box_id, NeverUsed(), seal)  # E: arg-type
    TeardownPermit(lease.id, lease.provider, lease.id, NeverUsed(), seal)  # E: arg-type
    TeardownPermit(lease.id, lease.provider, box_id, "verified", seal)  # E: arg-type
    TeardownPermit(lease.id, lease.provider, box_id, NeverUsed, seal)  # E: arg-type
    TeardownPermit(lease.id, lease.provider, box_id, None, seal)  # E: arg-type


async def destroy_without_a_permit(connector: Connector, lease: Lease, box: Box) -> None:
    await connector.destroy(box.id)  # E: arg-type
    await connector.destroy("local-abcd")  # E: arg-type
    await connector.destroy(lease)  # E: arg-type
    await connector.destroy(box)  # E: arg-type
    await connector.destroy(None)  # E: arg-type
    await connector.destroy(NeverUsed())  # E: arg-type
    await connector.destroy()  # E: call-arg


async def destroy_with_more_than_a_permit(
    connector: Connector, permit: TeardownPermit, another: BoxId
) -> None:
    await connector.destroy(permit, another)  # E: call-arg
    await connector.destroy(permit, box_id=another)  # E: call-arg
    await connector.destroy(permit, force=True)  # E: call-arg


def change_a_permit(permit: TeardownPermit, another: BoxId) -> None:
    permit.box_id = another  # E: misc
    permit.lease_id = LeaseId("another")  # E: misc
    permit.provider = "own"  # E: misc
    permit.ground = NeverUsed()  # E: misc
    permit.seal = None  # E: attr-defined
    dataclasses.replace(permit, box_id=another)  # E: call-arg


def change_a_ground(verified: Verified, waived: Waived) -> None:
    verified.seal_digest = "another"  # E: misc
    waived.signed_by = "a model"  # E: misc
    waived.loss_digest = "another loss"  # E: misc


def sign_for_nothing_or_nobody() -> None:
    Waived(signed_by="a person")  # E: call-arg
    Waived(loss_digest="l1")  # E: call-arg
    Verified()  # E: call-arg
    NeverUsed("really")  # E: call-arg


def subclass_a_permit() -> None:
    class LoosePermit(TeardownPermit):  # E: final class
        pass


def subclass_a_seal() -> None:
    class AnotherSeal(Seal):  # E: final class
        pass


class Convenient:
    """A fourth ground."""

    name = "convenient"


def a_ground_from_elsewhere() -> Sequence[Ground]:
    first: Ground = "verified"  # E: assignment
    second: Ground = Convenient()  # E: assignment
    return [first, second]


def match_a_fourth_ground(ground: Ground) -> str:
    match ground:
        case Verified():
            return "kept"
        case NeverUsed():
            return "unused"
        case Convenient():  # E: is final
            return "convenient"  # E: unreachable
        case Waived():
            return "signed"
        case _:
            assert_never(ground)


def forget_a_ground(ground: Ground) -> str:
    match ground:  # E: exhaustive-match
        case Verified():
            return "kept"
        case NeverUsed():
            return "unused"
    return "forgotten"


def forget_that_blind_is_not_dead(seen: Seen) -> str:
    match seen:
        case Listed():
            return "there"
        case Omitted():
            return "not there"
        case _:
            assert_never(seen)  # E: arg-type


def forget_a_state(state: LeaseState) -> bool:
    match state:
        case LeaseState.INTENDED | LeaseState.ACTIVE:
            return True
        case LeaseState.GONE | LeaseState.VOID | LeaseState.LOST:
            return False
        case _:
            assert_never(state)  # E: arg-type


def believe_without_looking(lease: Lease, clock: Clock) -> Step:
    plan(lease, None, clock.now(), _PATIENCE)  # E: arg-type
    plan(lease, "gone", clock.now(), _PATIENCE)  # E: arg-type
    plan(lease, Omitted(), clock.now(), _PATIENCE)  # E: call-arg
    plan(lease, Blind(), clock.now(), _PATIENCE)  # E: call-arg
    plan(lease, Blind("no answer"), clock.now())  # E: call-arg
    plan(lease, Blind("no answer"), clock.now(), 120)  # E: arg-type
    return plan(lease, Blind("no answer"), clock.now(), _PATIENCE)


def a_state_from_text(ledger: Ledger, lease: Lease, clock: Clock) -> LeaseState:
    state: LeaseState = "gone"  # E: assignment
    ledger.end(lease.id, "gone", at=clock.now())  # E: arg-type
    ledger.end(lease.id, "terminating", at=clock.now())  # E: arg-type
    ledger.end(lease.id, LeaseState.GONE, at=clock.now())  # E: arg-type
    return state


def change_a_lease(lease: Lease, receipt: Receipt) -> None:
    lease.state = LeaseState.GONE  # E: misc
    lease.touched_at = None  # E: misc
    lease.box_id = None  # E: misc
    receipt.ground = "verified"  # E: misc


def take_one_id_for_another(ledger: Ledger, lease: Lease, job: JobId, clock: Clock) -> None:
    ledger.touch("local-abcd", at=clock.now())  # E: arg-type
    ledger.touch(job, at=clock.now())  # E: arg-type
    ledger.end(BoxId("local-abcd"), "lost", at=clock.now())  # E: arg-type
    ledger.touch(lease.id)  # E: call-arg


def file_a_permit_that_is_none(ledger: Ledger, lease: Lease, clock: Clock) -> None:
    ledger.file_permit(lease, at=clock.now())  # E: arg-type
    ledger.file_permit(NeverUsed(), at=clock.now())  # E: arg-type
    ledger.file_permit("verified", at=clock.now())  # E: arg-type


def prove_by_word(lease: Lease, ledger: Ledger, assessment: Assessment) -> None:
    prove(lease, None)  # E: arg-type
    prove(lease)  # E: call-arg
    assessment.losses = ()  # E: misc
    sign(lease, assessment, signed_by="me", ledger=ledger)  # E: call-arg
    genuine("local-abcd")  # E: call-arg


def multiply(permit: TeardownPermit) -> TeardownPermit:
    copy.replace(permit, box_id=BoxId("another"))  # E: attr-defined
    return permit


def mint_for_a_volume_without_the_seal(volume: Volume) -> None:
    VolumePermit(volume.key, "runpod", "v1", "EU-RO-1", "K7M3QP")  # E: call-arg
    VolumePermit(volume.key, "runpod", "v1", "EU-RO-1", "K7M3QP", None)  # E: arg-type


def mint_for_a_volume_that_may_not_exist(volume: Volume, seal: Seal) -> None:
    VolumePermit("vol-abcd", "runpod", "v1", "EU-RO-1", "K7M3QP", seal)  # E: arg-type
    VolumePermit(volume.key, "runpod", volume.volume_id, "EU-RO-1", "K7M3QP", seal)  # E: arg-type


async def destroy_a_volume_without_its_permit(
    storing: Storing, connector: Connector, volume: Volume, of_a_box: TeardownPermit
) -> None:
    await storing.destroy_volume(volume)  # E: arg-type
    await storing.destroy_volume("v1")  # E: arg-type
    await storing.destroy_volume(of_a_box)  # E: arg-type
    await storing.destroy_volume()  # E: call-arg


async def destroy_a_box_with_the_permit_for_a_volume(
    connector: Connector, permit: VolumePermit
) -> None:
    await connector.destroy(permit)  # E: arg-type


def change_a_permit_for_a_volume(permit: VolumePermit) -> None:
    permit.volume_id = "another"  # E: misc
    permit.signature = "another"  # E: misc


def subclass_a_permit_for_a_volume() -> None:
    class LooseVolumePermit(VolumePermit):  # E: final class
        pass


def sign_for_a_volume_by_word(volume: Volume) -> None:
    sign_volume(volume, "K7M3QP", digest="d1")  # E: arg-type
    sign_volume(volume, None)  # E: call-arg
