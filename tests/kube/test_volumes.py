"""Volumes at a real Kubernetes: claims that no Job owns, disks that a provisioner makes, and who still uses them."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from arranged import a_volume, leave_to_end
from kube.cluster import CONTEXT, Cluster, eventually
from kube.test_kubernetes import (
    ELSEWHERE,
    configured,
    connector,
    gone,
    intent,
    permit_for,
    ready,
)
from signed import with_signature

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain.clock import WallClock
from gpu_tenant.domain.errors import (
    BadRequest,
    NoQuota,
    ProviderTrouble,
    Refused,
    SignatureWanted,
    Unverified,
)
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.offers import Wish
from gpu_tenant.domain.order import Order, VolumeMount
from gpu_tenant.domain.volumes import ListedVolume, Volume, VolumeState
from gpu_tenant.files.state_dir import Home
from gpu_tenant.leases.cards import Card
from gpu_tenant.leases.volumes import (
    confirm_disk_gone,
    create_volume,
    destroy_volume,
    grow_volume,
)
from gpu_tenant.ledger.database import IntegrityError
from gpu_tenant.providers.kubernetes.connector import KubernetesConnector
from gpu_tenant.providers.kubernetes.job_manifest import job_name
from gpu_tenant.service import Tenancy

AT = "/mnt"
"""A path that is on this computer, too: the container sees its file system."""
RATE = 0.1


@pytest.fixture(autouse=True)
def classes(cluster: Cluster) -> Iterator[None]:
    """A default class whose claims grow, and others: none of them grow, one keeps its disks, one waits for a pod."""
    for name, more in {
        "lab-disks": {"allowVolumeExpansion": True},
        "lab-fixed": {},
        "lab-kept": {"reclaimPolicy": "Retain"},
        "lab-late": {"volumeBindingMode": "WaitForFirstConsumer"},
    }.items():
        about = {"storageclass.kubernetes.io/is-default-class": "true"}
        made = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {
                "name": name,
                **({"annotations": about} if name == "lab-disks" else {}),
            },
            "provisioner": "kubernetes.io/host-path",
            **more,
        }
        assert cluster.kubectl("create", "-f", "-", stdin=json.dumps(made).encode()).returncode == 0
    yield
    cluster.kubectl("delete", "storageclass", "--all")


@pytest.fixture
def here(cluster: Cluster, tmp_path: Path) -> KubernetesConnector:
    return connector(cluster, tmp_path / "state", rate_usd_gb_month=RATE)


def wanted_volume(volume_id: str | None = None) -> Volume:
    return a_volume("kubernetes", CONTEXT, volume_id=volume_id)


def with_volume(made: ListedVolume, path: str = AT) -> Wish:
    volume = wanted_volume(made.id)
    return Wish(
        order=Order(volumes={"data": VolumeMount(path=path)}),
        volumes=(volume.attachable(path),),
    )


def bound(cluster: Cluster, name: str) -> Any:
    """The claim, when it has its disk."""

    def shown() -> Any:
        return cluster.core.read_namespaced_persistent_volume_claim(name, "default")

    assert eventually(lambda: shown().status.phase == "Bound")
    return shown()


async def booted(at: KubernetesConnector, made: ListedVolume) -> Lease:
    wanted = await intent(at, wish=with_volume(made))
    await at.create(wanted)
    await ready(at, wanted)
    return wanted


# A claim


async def test_a_volume_is_one_claim_of_the_default_class_that_nothing_owns(
    cluster: Cluster, here: KubernetesConnector
) -> None:
    wanted = wanted_volume()

    made, again = [await here.create_volume(wanted) for _ in range(2)]

    assert made.id == again.id
    assert (made.name, made.region, made.size_gb) == (wanted.mark, CONTEXT, 50)
    assert made.usd_month == Decimal("5.0000")
    claim = bound(cluster, wanted.mark)
    assert claim.metadata.labels == {"gpu-tenant/mark": wanted.mark}
    assert claim.metadata.owner_references is None
    assert (claim.spec.access_modes, claim.spec.storage_class_name) == (
        ["ReadWriteOnce"],
        "lab-disks",
    )
    (listed,) = await here.list_volumes()
    assert (listed.id, listed.boxes, listed.going) == (made.id, (), None)
    (left,) = await here.leftovers()
    assert (left.id, left.size_gb, left.usd_month) == (made.id, 50, made.usd_month)


async def test_the_owner_names_the_class_and_the_access_mode_and_no_rate_is_unknown(
    cluster: Cluster, tmp_path: Path
) -> None:
    at = connector(
        cluster, tmp_path / "state", storage_class="lab-late", access_mode="ReadWriteMany"
    )

    made = await at.create_volume(wanted_volume())

    claim = cluster.core.read_namespaced_persistent_volume_claim(made.name, "default")
    assert claim.spec.storage_class_name == "lab-late"
    assert claim.spec.access_modes == ["ReadWriteMany"]
    assert claim.status.phase == "Pending", "its disk is made for the first pod"
    assert (made.size_gb, made.usd_month, at.volume_usd_month(50, CONTEXT)) == (50, None, None)


async def test_a_cluster_without_a_default_class_is_told_before_a_claim_waits_forever(
    cluster: Cluster, here: KubernetesConnector
) -> None:
    cluster.kubectl("delete", "storageclass", "lab-disks")

    with pytest.raises(ProviderTrouble, match="no default storage class"):
        await here.create_volume(wanted_volume())

    assert list(await here.list_volumes()) == []


async def test_another_context_is_no_place_for_a_volume(here: KubernetesConnector) -> None:
    with pytest.raises(BadRequest, match="'EU-RO-1' is another"):
        await here.create_volume(a_volume("kubernetes", "EU-RO-1"))

    assert list(await here.list_volumes()) == []


async def test_a_quota_for_disks_is_told_as_one(
    cluster: Cluster, here: KubernetesConnector
) -> None:
    limit = {"metadata": {"name": "small"}, "spec": {"hard": {"requests.storage": "10Gi"}}}
    cluster.core.create_namespaced_resource_quota("default", limit)
    try:
        counted = cluster.core.read_namespaced_resource_quota_status
        assert eventually(lambda: counted("small", "default").status.hard)
        with pytest.raises(NoQuota):
            await here.create_volume(wanted_volume())
    finally:
        cluster.core.delete_namespaced_resource_quota("small", "default")


async def test_the_owner_s_rate_is_not_that_of_a_claim_of_another_class(
    cluster: Cluster, here: KubernetesConnector, tmp_path: Path
) -> None:
    other = connector(cluster, tmp_path / "state", storage_class="lab-fixed")
    await other.create_volume(wanted_volume())
    named = connector(
        cluster, tmp_path / "state", storage_class="lab-disks", rate_usd_gb_month=RATE
    )

    (listed,) = await named.list_volumes()

    assert listed.usd_month is None


# On a pod


async def test_a_pod_finds_its_volume_where_the_order_wants_it_and_the_claim_outlives_the_job(
    cluster: Cluster, here: KubernetesConnector
) -> None:
    made = await here.create_volume(wanted_volume())
    first = await booted(here, made)
    (box,) = await here.list_boxes()
    pod = cluster.pod(job_name(first.mark)).metadata.name
    cluster.kubectl("exec", pod, "--", "sh", "-c", f"echo kept >{AT}/cache")
    (listed,) = await here.list_volumes()
    assert listed.boxes[0] == f"pod/{pod}"
    assert list(await here.leftovers()) == []

    await here.destroy(permit_for(box, first))
    await gone(here, box)
    second = await booted(here, made)

    pod = cluster.pod(job_name(second.mark)).metadata.name
    assert cluster.kubectl("exec", pod, "--", "cat", f"{AT}/cache").stdout == b"kept\n"
    assert "nothing outlives the pod but its volumes" in second.quote.offer.notes  # type: ignore[union-attr]


async def test_a_disk_that_waits_for_its_first_pod_comes_with_it(
    cluster: Cluster, tmp_path: Path
) -> None:
    at = connector(cluster, tmp_path / "state", storage_class="lab-late")
    made = await at.create_volume(wanted_volume())

    # The lab's provisioner makes a disk at once or not at all; the scheduler has chosen the node for it.
    wanted = await intent(at, wish=with_volume(made))
    await at.create(wanted)

    def chosen() -> object:
        claim = cluster.core.read_namespaced_persistent_volume_claim(made.name, "default")
        return (claim.metadata.annotations or {}).get("volume.kubernetes.io/selected-node")

    assert eventually(chosen)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            lambda core, name: core.delete_namespaced_persistent_volume_claim(name, "default"),
            "is not there",
        ),
        (
            lambda core, name: core.patch_namespaced_persistent_volume_claim(
                name,
                "default",
                {
                    "metadata": {
                        "ownerReferences": [
                            {
                                "apiVersion": "v1",
                                "kind": "Namespace",
                                "name": "default",
                                "uid": core.read_namespace("default").metadata.uid,
                            }
                        ]
                    }
                },
            ),
            'goes with its owner, the "Namespace default"',
        ),
        (
            lambda core, name: (
                core.patch_namespaced_persistent_volume_claim(
                    name, "default", {"metadata": {"finalizers": ["lab/held"]}}
                ),
                core.delete_namespaced_persistent_volume_claim(name, "default"),
            ),
            "is being deleted",
        ),
    ],
)
async def test_a_claim_that_would_not_outlive_the_pod_is_told_before_anything_is_ordered(
    cluster: Cluster, here: KubernetesConnector, spoil: Callable[[Any, str], Any], words: str
) -> None:
    made = await here.create_volume(wanted_volume())
    wanted = await intent(here, wish=with_volume(made))
    bound(cluster, made.name)
    spoil(cluster.core, made.name)
    if words == "is not there":
        assert eventually(
            lambda: not cluster.core.list_namespaced_persistent_volume_claim("default").items
        )
    try:
        with pytest.raises(ProviderTrouble, match=words):
            await here.create(wanted)
        assert list(await here.list_boxes()) == []
    finally:
        if words == "is being deleted":
            cluster.core.patch_namespaced_persistent_volume_claim(
                made.name, "default", {"metadata": {"finalizers": None}}
            )


async def test_a_later_claim_of_the_same_name_is_not_the_volume(
    cluster: Cluster, here: KubernetesConnector
) -> None:
    first = await here.create_volume(wanted_volume())
    wanted = await intent(here, wish=with_volume(first))
    cluster.core.delete_namespaced_persistent_volume_claim(first.name, "default")
    claims = cluster.core.list_namespaced_persistent_volume_claim
    assert eventually(lambda: not claims("default").items)
    later = await here.create_volume(wanted_volume())

    with pytest.raises(ProviderTrouble, match="is not there"):
        await here.create(wanted)
    await here.destroy_volume(leave_to_end(wanted_volume(first.id)))
    with pytest.raises(ProviderTrouble):
        await here.grow_volume(wanted_volume(first.id), 100)

    (left,) = await here.list_volumes()
    assert (left.id, left.size_gb, left.going) == (later.id, 50, None)


async def test_a_job_that_was_made_before_keeps_its_claims_whatever_became_of_them(
    cluster: Cluster, here: KubernetesConnector
) -> None:
    made = await here.create_volume(wanted_volume())
    wanted = await booted(here, made)
    cluster.core.delete_namespaced_persistent_volume_claim(made.name, "default")

    again = await here.create(wanted)

    assert [box.id for box in await here.list_boxes()] == [again.id]


def test_what_has_something_at_a_path_already_leaves_no_room_for_a_volume(
    cluster: Cluster, tmp_path: Path
) -> None:
    at = connector(cluster, tmp_path / "state", claim="work")

    for path in ("/data", "/data/more", "/scratch"):
        words = at.refused_volumes([wanted_volume("u").attachable(path)])
        assert words is not None
        assert "a pod has something else" in words
    assert at.refused_volumes([wanted_volume("u").attachable("/database")]) is None


# Its end


async def test_a_claim_that_a_pod_or_a_job_uses_is_not_deleted_and_another_is_with_its_disk(
    cluster: Cluster, here: KubernetesConnector
) -> None:
    made = await here.create_volume(wanted_volume())
    disk = bound(cluster, made.name).spec.volume_name
    permit = leave_to_end(wanted_volume(made.id))
    spec = {
        "restartPolicy": "Never",
        "containers": [{"name": "a", "image": ELSEWHERE}],
        "volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": made.name}}],
    }
    somebody_s = {"metadata": {"name": "a-mover"}, "spec": spec}
    cluster.core.create_namespaced_pod("default", somebody_s)
    with pytest.raises(ProviderTrouble, match="pod/a-mover uses the claim"):
        await here.destroy_volume(permit)
    cluster.core.delete_namespaced_pod("a-mover", "default", grace_period_seconds=0)
    queued = {
        "metadata": {"name": "queued"},
        "spec": {"parallelism": 0, "template": {"spec": spec}},
    }
    cluster.batch.create_namespaced_job("default", queued)
    with pytest.raises(ProviderTrouble, match="job/queued uses the claim"):
        await here.destroy_volume(permit)
    cluster.batch.delete_namespaced_job("queued", "default", propagation_policy="Background")
    assert eventually(lambda: not cluster.batch.list_namespaced_job("default").items)
    (listed,) = await here.list_volumes()
    assert listed.going is None, "Kubernetes was not even asked"

    await here.destroy_volume(permit)
    await here.destroy_volume(permit)

    assert eventually(
        lambda: disk not in [d.metadata.name for d in cluster.core.list_persistent_volume().items]
    )
    assert list(await here.list_volumes()) == []


async def test_a_disk_that_would_outlive_its_claim_is_told_and_one_that_did_is_listed(
    cluster: Cluster, tmp_path: Path
) -> None:
    at = connector(cluster, tmp_path / "state", storage_class="lab-kept")
    made = await at.create_volume(wanted_volume())
    disk = bound(cluster, made.name).spec.volume_name

    with pytest.raises(ProviderTrouble, match=f"the disk {disk} .* would outlive it") as told:
        await at.destroy_volume(leave_to_end(wanted_volume(made.id)))
    assert [each.id for each in await at.list_volumes()] == [made.id]
    cluster.kubectl("delete", "pvc", made.name)
    assert eventually(lambda: cluster.core.read_persistent_volume(disk).status.phase == "Released")
    (left,) = await at.leftovers()

    assert f"kubectl patch pv {disk}" in told.value.remedy
    assert (left.kind, left.id, left.name, left.size_gb) == ("disk", disk, made.name, 50)


@pytest.fixture
def weak(cluster: Cluster) -> Iterator[Callable[[str], None]]:
    """A login for one namespace, which sees no disks. Called with a word of kubectl, it may do that to storage classes."""

    def rule(kind: str, name: str, groups: list[str], resources: list[str], verb: str) -> list[Any]:
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
        rules = [{"apiGroups": groups, "resources": resources, "verbs": [verb]}]
        to = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        who = [{"kind": "User", "name": "weak"}]
        return [
            {**role, "kind": kind, "rules": rules},
            {**role, "kind": f"{kind}Binding", "roleRef": to, "subjects": who},
        ]

    def created(items: list[Any]) -> None:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()
        assert cluster.kubectl("create", "-f", "-", stdin=text).returncode == 0

    claims = ["persistentvolumeclaims", "pods", "jobs"]
    created(rule("Role", "claims", ["", "batch"], claims, "*"))
    yield lambda verb: created(
        rule("ClusterRole", "classes", ["storage.k8s.io"], ["storageclasses"], verb)
    )
    cluster.kubectl("delete", "role,rolebinding", "claims")
    cluster.kubectl("delete", "clusterrole,clusterrolebinding", "classes", "--ignore-not-found")


@pytest.mark.usefixtures("weak")
async def test_a_login_that_may_not_see_disks_sees_its_claims(
    cluster: Cluster, tmp_path: Path
) -> None:
    at = connector(cluster, tmp_path / "weak", context="weak")
    made = await at.create_volume(a_volume("kubernetes", "weak"))
    bound(cluster, made.name)

    (listed,), (left,) = await at.list_volumes(), await at.leftovers()
    await at.destroy_volume(leave_to_end(wanted_volume(made.id)))

    assert (listed.id, left.id) == (made.id, made.id)
    claims = cluster.core.list_namespaced_persistent_volume_claim
    assert eventually(lambda: not claims("default").items)


async def test_where_no_disk_is_shown_its_class_says_whether_it_stays_and_else_nobody_knows(
    cluster: Cluster, tmp_path: Path, weak: Callable[[str], None]
) -> None:
    made = {}
    for name in ("lab-disks", "lab-kept"):
        at = connector(cluster, tmp_path / name, context="weak", storage_class=name)
        volume = a_volume("kubernetes", "weak").model_copy(update={"mark": f"{name}-claim"})
        listed = await at.create_volume(volume)
        bound(cluster, listed.name)
        made[name] = (at, volume.model_copy(update={"volume_id": listed.id}))

    async def told() -> list[str | None]:
        return [await at.may_stay(volume) for at, volume in made.values()]

    unseen = await told()
    weak("get")
    seen = await told()
    whole = connector(cluster, tmp_path / "whole")
    shown = [await whole.may_stay(volume) for _, volume in made.values()]

    for words, (_, volume) in zip(unseen, made.values(), strict=True):
        disk = bound(cluster, volume.mark).spec.volume_name
        assert f"the disk {disk} of the claim {volume.mark} may outlive it, and bill" in (
            words or ""
        )
        assert "no storage class tells" in (words or "")
        assert f"`kubectl get pv {disk}`" in (words or "")
        assert cluster.kubectl("get", "pv", disk).returncode == 0, "the command that is told works"
    assert seen[0] is None
    assert "the reclaim policy of its storage class is Retain" in (seen[1] or "")
    assert shown == [None, None], "what is seen is no doubt"
    # A class that came after the claim is another one of its name.
    again = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "lab-disks"},
        "provisioner": "kubernetes.io/host-path",
    }
    text = json.dumps(again).encode()
    claimed = bound(cluster, "lab-disks-claim").metadata.creation_timestamp

    def came_later() -> bool:
        cluster.kubectl("delete", "storageclass", "lab-disks")
        made = cluster.kubectl("create", "-f", "-", "-o", "json", stdin=text)
        at = json.loads(made.stdout)["metadata"]["creationTimestamp"]
        return datetime.fromisoformat(at) > claimed  # Kubernetes counts in whole seconds.

    assert eventually(came_later)
    assert "no storage class tells" in ((await told())[0] or "")


async def test_a_disk_that_somebody_made_by_hand_does_not_go_by_the_class_that_it_names(
    cluster: Cluster, tmp_path: Path, weak: Callable[[str], None]
) -> None:
    weak("get")
    disk = {
        "metadata": {"name": "by-hand"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "50Gi"},
            "storageClassName": "lab-fixed",
            "hostPath": {"path": "/none"},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    }
    cluster.core.create_persistent_volume(disk)
    at = connector(cluster, tmp_path / "weak", context="weak", storage_class="lab-fixed")
    made = await at.create_volume(a_volume("kubernetes", "weak"))
    assert bound(cluster, made.name).spec.volume_name == "by-hand"

    words = await at.may_stay(wanted_volume(made.id))

    assert "no storage class tells" in (words or "")


# Somebody deletes the claim while a pod has it


async def test_a_pod_whose_claim_was_deleted_under_it_is_left_until_a_person_signs(
    cluster: Cluster, here: KubernetesConnector
) -> None:
    made = await here.create_volume(wanted_volume())
    wanted = await booted(here, made)
    (box,) = await here.list_boxes()
    bound_lease = wanted.model_copy(update={"box_id": box.id})
    assert await here.reclaimed_with(bound_lease) == {}

    assert cluster.kubectl("delete", "pvc", made.name, "--wait=false").returncode == 0

    with pytest.raises(ProviderTrouble, match="somebody has deleted its claim") as told:
        await here.destroy(permit_for(box, wanted))
    assert f"waive {wanted.id}" in told.value.remedy
    assert [*await here.reclaimed_with(bound_lease)] == ["data"]
    (listed,) = await here.list_volumes()
    assert "goes with its disk" in (listed.going or "")
    disk = cluster.core.read_namespaced_persistent_volume_claim(made.name, "default")
    kept = re.search(r"`(kubectl patch pv [^`]*)`", listed.going or "")
    assert kept is not None
    assert disk.spec.volume_name in kept[1]
    _, *words = kept[1].replace("'", "").split()
    assert cluster.kubectl(*words).returncode == 0, "the command that is told works"
    assert await here.reclaimed_with(bound_lease) == {}
    await here.destroy(permit_for(box, wanted))
    await gone(here, box)
    assert eventually(
        lambda: (
            cluster.core.read_persistent_volume(disk.spec.volume_name).status.phase == "Released"
        )
    )


# It grows


async def test_a_claim_grows_where_its_class_lets_it(
    cluster: Cluster, here: KubernetesConnector
) -> None:
    made = await here.create_volume(wanted_volume())
    bound(cluster, made.name)

    await here.grow_volume(wanted_volume(made.id), 100)

    (listed,) = await here.list_volumes()
    assert (listed.size_gb, listed.usd_month) == (100, Decimal("10.0000"))
    with pytest.raises(ProviderTrouble):
        await here.grow_volume(wanted_volume(made.id), 80)


async def test_a_claim_whose_class_lets_none_grow_is_told_so(
    cluster: Cluster, tmp_path: Path
) -> None:
    at = connector(cluster, tmp_path / "state", storage_class="lab-fixed")
    made = await at.create_volume(wanted_volume())
    bound(cluster, made.name)

    with pytest.raises(ProviderTrouble, match="lets none grow"):
        await at.grow_volume(wanted_volume(made.id), 100)


# Whole lives


@pytest.fixture
async def tenancy(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Tenancy]:
    async def sleep(clock: WallClock, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.2))

    monkeypatch.setattr(WallClock, "sleep", sleep)
    home = Home(configured(cluster, tmp_path / "state", rate_usd_gb_month=RATE))
    made = open_tenancy({**os.environ, "GPU_TENANT_HOME": str(home.root)})
    try:
        yield made
    finally:
        await made.aclose()


async def volume_of(tenancy: Tenancy) -> Volume:
    return await create_volume(
        tenancy.context, "data", provider="kubernetes", region=CONTEXT, size_gb=50
    )


async def rented(tenancy: Tenancy, root: Path) -> Card:
    order = root / "gpu-tenant.toml"
    order.write_text(f'[volumes.data]\npath = "{AT}"\n', encoding="utf-8")
    found = await tenancy.find_offers(provider="kubernetes", order=str(order))
    return await tenancy.provision(
        smoke="none", quotes=[found.offers[0].quote or ""], unguarded="accept", wait_s=60
    )


async def test_a_volume_is_made_mounted_told_grown_and_ended_by_a_person_alone(
    cluster: Cluster, tenancy: Tenancy, tmp_path: Path
) -> None:
    volume = await volume_of(tenancy)
    assert (volume.state, volume.usd_month) == (VolumeState.ACTIVE, Decimal("5.0000"))
    card = await rented(tenancy, tmp_path)
    assert card.phase == "ready"
    lease = tenancy.ledger.lease(card.lease)
    assert lease.place is not None
    assert [mount.at for mount in lease.place.volumes] == [AT]
    pod = cluster.pod(job_name(lease.mark)).metadata.name
    cluster.kubectl("exec", pod, "--", "sh", "-c", f"echo kept >{AT}/cache")
    (line,) = (await tenancy.list_leases()).also_billing
    assert f"{card.lease} uses it since" in line
    with pytest.raises(Refused, match=f"{card.lease} uses the volume"):
        await destroy_volume(tenancy.context, "data")

    ended = await tenancy.verify_and_teardown(card.lease)
    assert ended.receipt.ground == "never_used", "what is on a volume is not on the box"
    grown = await grow_volume(tenancy.context, "data", 100)
    told = await tenancy.list_leases()
    gone_now = await with_signature(tenancy, lambda: destroy_volume(tenancy.context, "data"))

    assert (grown.size_gb, grown.usd_month) == (100, Decimal("10.0000"))
    assert told.leaking_usd_month == Decimal("10.0000")
    assert gone_now.state is VolumeState.GONE
    assert list(await tenancy.context.connectors["kubernetes"].list_boxes()) == []
    assert cluster.core.list_namespaced_persistent_volume_claim("default").items == []


async def test_a_lease_whose_claim_somebody_deletes_is_told_and_its_teardown_wants_a_signature(
    cluster: Cluster, tenancy: Tenancy, tmp_path: Path
) -> None:
    volume = await volume_of(tenancy)
    card = await rented(tenancy, tmp_path)

    cluster.kubectl("delete", "pvc", volume.mark, "--wait=false")

    told = await tenancy.list_leases()
    assert any("somebody has deleted its claim" in words for words in told.alarms)
    with pytest.raises(Unverified, match="all that is on the volume data"):
        await tenancy.verify_and_teardown(card.lease)
    assert cluster.batch.list_namespaced_job("default").items
    ended = await with_signature(tenancy, lambda: tenancy.waive(card.lease))
    assert any("all that is on the volume data" in words for words in ended.receipt.given_up)
    assert cluster.batch.list_namespaced_job("default").items == []


async def test_a_second_cluster_s_list_says_nothing_of_a_volume(
    cluster: Cluster, tenancy: Tenancy, tmp_path: Path
) -> None:
    await volume_of(tenancy)
    configured(cluster, tmp_path / "state", namespace="kube-system")
    other = open_tenancy({**os.environ, "GPU_TENANT_HOME": str(tmp_path / "state")})
    try:
        for _ in range(2):
            told = await other.list_leases()
        assert [v.state for v in other.ledger.volumes()] == [VolumeState.ACTIVE]
        assert any("whether it is there is unknown" in words for words in told.alarms)
    finally:
        await other.aclose()


async def test_a_volume_whose_disk_nobody_saw_go_stays_listed_until_a_person_has_looked(
    cluster: Cluster, tenancy: Tenancy, tmp_path: Path, weak: Callable[[str], None]
) -> None:
    how = {"storage_class": "lab-kept", "rate_usd_gb_month": RATE}
    configured(cluster, tmp_path / "state", context="weak", **how)
    weak("get")
    blind = open_tenancy({**os.environ, "GPU_TENANT_HOME": str(tmp_path / "state")})
    context = blind.context
    try:
        volume = await create_volume(
            context, "data", provider="kubernetes", region="weak", size_gb=50
        )
        disk = bound(cluster, volume.mark).spec.volume_name
        order = tmp_path / "gpu-tenant.toml"
        order.write_text(f'[volumes.data]\npath = "{AT}"\n', encoding="utf-8")
        found = await blind.find_offers(provider="kubernetes", order=str(order))
        (line,) = (await blind.list_leases()).also_billing
        with pytest.raises(SignatureWanted) as wanted:
            await destroy_volume(context, "data")
        asked = blind.ledger.request_of(wanted.value.asked)
        stays = f"the disk {disk} of the claim {volume.mark} may outlive it, and bill"
        assert any(stays in note for note in found.offers[0].notes)
        assert stays in line
        assert any(stays in words for words in asked.words)
        with pytest.raises(BadRequest, match="there is nothing to confirm"):
            confirm_disk_gone(context, "data")

        ended = await with_signature(blind, lambda: destroy_volume(context, "data"))
        told = [await blind.list_leases() for _ in range(2)]

        assert cluster.core.list_namespaced_persistent_volume_claim("default").items == []
        assert eventually(lambda: phase_of(cluster, disk) == "Released"), "it bills on"
        assert ended.state is VolumeState.ENDING
        for seen in told:
            (line,) = seen.also_billing
            assert "[ending]" in line
            assert any("perhaps still billing" in words for words in seen.alarms)
            assert any(f"kubectl get pv {disk}" in words for words in seen.alarms)
            assert any("gpu-tenant volumes --disk-gone data" in words for words in seen.alarms)
        with pytest.raises(IntegrityError, match="nobody has seen that its disk is gone"):
            blind.ledger.end_volume(volume.key, "gone", "in passing", at=blind.clock.now())

        async def confirmed() -> Volume:
            return confirm_disk_gone(context, "data")

        gone_now = await with_signature(blind, confirmed)
        assert gone_now.state is VolumeState.GONE
        assert (await blind.list_leases()).also_billing == ()
    finally:
        await blind.aclose()


def phase_of(cluster: Cluster, disk: str) -> str:
    return str(cluster.core.read_persistent_volume(disk).status.phase)
