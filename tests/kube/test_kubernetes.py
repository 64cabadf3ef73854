"""Boxes at a real Kubernetes: its API server, scheduler and controllers, and the exec of a kubelet."""

import asyncio
import contextlib
import json
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from arranged import PATIENCE_S, lease, never_used, setting
from kube.cluster import CONTEXT, IMAGE, Cluster, eventually
from waited import over

from gpu_tenant.app import open_tenancy
from gpu_tenant.box.guard import arm
from gpu_tenant.domain.clock import WallClock
from gpu_tenant.domain.errors import (
    BoxTrouble,
    BoxUnreachable,
    CredentialRefused,
    NoQuota,
    PermitForged,
    ProviderSilent,
    ProviderTrouble,
    Refused,
)
from gpu_tenant.domain.model import Box, BoxState, Lease, LeaseId, LeaseState, PodAddress
from gpu_tenant.domain.offers import Quote, Wish
from gpu_tenant.domain.order import AtProvider, Order
from gpu_tenant.domain.permit import TeardownPermit
from gpu_tenant.domain.terms import Terms
from gpu_tenant.files.state_dir import Home
from gpu_tenant.providers.kubernetes.connector import KubernetesConnector, connect
from gpu_tenant.providers.kubernetes.exec import PodTransport
from gpu_tenant.providers.kubernetes.job_manifest import job_name

ELSEWHERE = "elsewhere/box:1"
"""An image that our node leaves alone: what becomes of such a pod, the test says."""


def configured(cluster: Cluster, state: Path, **more: object) -> Path:
    """A state directory whose configuration names that cluster."""
    said = {
        "context": CONTEXT,
        "image": IMAGE,
        "gpus": ["A100 SXM 80GB:4"],
        "rate_usd_h": 1.5,
        "kubeconfig": str(cluster.kubeconfig),
        **more,
    }
    state.mkdir(exist_ok=True)
    lines = [
        # TOML's inline tables are JSON's with another sign.
        f"{key} = {json.dumps(value, separators=(',', '=') if isinstance(value, dict) else None)}"
        for key, value in said.items()
    ]
    (state / "config.toml").write_text("\n".join(["[kubernetes]", *lines, ""]), encoding="utf-8")
    return state


def connector(cluster: Cluster, state: Path, **more: object) -> KubernetesConnector:
    given = replace(setting(configured(cluster, state, **more), "kubernetes"), clock=WallClock())
    made = connect(given)
    assert made is not None
    return made


async def intent(
    at: KubernetesConnector, name: str | None = None, wish: Wish | None = None
) -> Lease:
    # A name of its own: the controller comes to one whose pods have failed later and later.
    name, now = name or secrets.token_hex(3), WallClock().now()
    wish = wish or Wish()
    (offer,) = await at.offers(wish)
    assert offer.price.running_usd_h is not None
    quote = Quote(
        id="q-test",
        offer=offer,
        wish=wish,
        cap_usd_h=offer.price.running_usd_h,
        expires_at=now + timedelta(minutes=10),
    )
    return lease(
        LeaseState.INTENDED,
        lease_id=LeaseId(f"kubernetes-{name}"),
        provider="kubernetes",
        terms=Terms(deadline_at=now + timedelta(hours=8)),
    ).model_copy(update={"quote": quote, "mark": f"gpu-tenant:0a1b2c:kubernetes-{name}"})


def permit_for(box: Box, standing: Lease) -> TeardownPermit:
    return never_used(standing.model_copy(update={"box_id": box.id, "state": LeaseState.ACTIVE}))


async def until(
    at: KubernetesConnector,
    wanted: Lease,
    true: Callable[[Box], object],
    *,
    within_s: float = PATIENCE_S,
) -> Box:
    """The lease's box, when it is so."""
    give_up = time.monotonic() + within_s
    while True:
        boxes = [box for box in await at.list_boxes() if box.mark == wanted.mark]
        if boxes and true(boxes[0]):
            return boxes[0]
        assert time.monotonic() < give_up, boxes
        await asyncio.sleep(0.05)


async def ready(at: KubernetesConnector, wanted: Lease) -> Box:
    return await until(at, wanted, lambda box: box.state is BoxState.READY)


async def gone(at: KubernetesConnector, box: Box) -> None:
    for _ in range(400):
        if box.id not in [each.id for each in await at.list_boxes()]:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{box.id} is still listed")


@pytest.fixture
def here(cluster: Cluster, tmp_path: Path) -> KubernetesConnector:
    return connector(cluster, tmp_path / "state")


# Under contract


async def test_a_lease_is_one_job_with_one_pod_that_becomes_ready(
    cluster: Cluster, here: KubernetesConnector
) -> None:
    assert list(await here.list_boxes()) == []
    wanted = await intent(here)

    made = await here.create(wanted)
    box = await ready(here, wanted)

    assert (box.id, box.mark, box.price_usd_h) == (made.id, wanted.mark, Decimal("1.5000"))
    assert isinstance(box.address, PodAddress)
    (job,) = cluster.batch.list_namespaced_job("default").items
    assert (job.spec.backoff_limit, job.spec.ttl_seconds_after_finished) == (0, None)
    assert job.metadata.annotations["gpu-tenant/mark"] == wanted.mark
    pod = job.spec.template.spec
    assert (pod.restart_policy, pod.containers[0].resources.limits["nvidia.com/gpu"]) == (
        "Never",
        "1",
    )
    assert job.spec.active_deadline_seconds is None, "nothing ends it but a permit"


async def test_one_lease_has_one_job_however_often_and_by_whomever_it_is_made(
    cluster: Cluster, here: KubernetesConnector, tmp_path: Path
) -> None:
    wanted = await intent(here)
    another = connector(cluster, tmp_path / "other")

    made = await asyncio.gather(*(at.create(wanted) for at in (here, another, here)))

    assert {box.id for box in made} == {made[0].id}
    assert len(await another.list_boxes()) == 1


async def test_somebody_else_s_job_of_that_name_is_not_taken_for_ours(
    cluster: Cluster, here: KubernetesConnector
) -> None:
    wanted = await intent(here)
    spec = {"restartPolicy": "Never", "containers": [{"name": "a", "image": ELSEWHERE}]}
    body = {"metadata": {"name": job_name(wanted.mark)}, "spec": {"template": {"spec": spec}}}
    cluster.batch.create_namespaced_job("default", body)

    with pytest.raises(ProviderTrouble, match="is not this lease's"):
        await here.create(wanted)

    assert list(await here.list_boxes()) == []


async def test_a_copy_of_our_job_and_one_that_took_its_label_are_not_ours_and_stay_as_they_are(
    cluster: Cluster, here: KubernetesConnector
) -> None:
    wanted = await intent(here)
    box = await here.create(wanted)
    await ready(here, wanted)
    ours = json.loads(cluster.kubectl("get", "job", job_name(wanted.mark), "-o", "json").stdout)
    metadata, spec = ours["metadata"], ours["spec"]
    labels = {"gpu-tenant/mark": metadata["labels"]["gpu-tenant/mark"]}
    template = {"metadata": {"labels": labels}, "spec": spec["template"]["spec"]}
    for name, marked in (
        ("a-colleague-s", {"labels": labels, "annotations": metadata["annotations"]}),
        ("another-s", {}),  # a Job without labels has those of its template
    ):
        cluster.batch.create_namespaced_job(
            "default", {"metadata": {"name": name, **marked}, "spec": {"template": template}}
        )
        cluster.container(cluster.pod(name).metadata.name)
    was = [job.metadata.annotations for job in cluster.batch.list_namespaced_job("default").items]

    for _ in range(400):
        boxes = await here.list_boxes()
        if any(each.mark is None and each.state is BoxState.READY for each in boxes):
            break
        await asyncio.sleep(0.05)

    assert [each.id for each in boxes if each.mark is not None] == [box.id]
    assert len(boxes) == 3
    is_now = [
        job.metadata.annotations for job in cluster.batch.list_namespaced_job("default").items
    ]
    assert is_now == was


async def test_another_namespace_s_complete_list_says_nothing_of_the_leases(
    cluster: Cluster, here: KubernetesConnector, tmp_path: Path
) -> None:
    wanted = await intent(here)
    box = await here.create(wanted)
    moved = connector(cluster, tmp_path / "state", namespace="kube-system")

    with pytest.raises(ProviderTrouble, match="the leases are in default"):
        await moved.list_boxes()
    with pytest.raises(ProviderTrouble, match="the leases are in default"):
        await moved.destroy(permit_for(box, wanted))
    with pytest.raises(ProviderTrouble, match="the leases are in default"):
        await moved.create(await intent(moved, "bbbb"))

    assert [each.id for each in await here.list_boxes()] == [box.id]


async def test_only_the_permitted_job_is_deleted_and_its_pod_with_it(
    cluster: Cluster, here: KubernetesConnector
) -> None:
    wanted = [await intent(here, name) for name in ("aaaa", "bbbb")]
    boxes = [await here.create(each) for each in wanted]
    for each in wanted:
        await ready(here, each)
    permit = permit_for(boxes[0], wanted[0])

    for shown in (boxes[0].id, boxes[0], None):
        with pytest.raises(PermitForged):
            await here.destroy(shown)  # type: ignore[arg-type]
    assert len(await here.list_boxes()) == 2
    await here.destroy(permit)
    await here.destroy(permit)
    await gone(here, boxes[0])

    assert [box.id for box in await here.list_boxes()] == [boxes[1].id]
    assert [
        p.metadata.labels["job-name"] for p in cluster.core.list_namespaced_pod("default").items
    ] == [job_name(wanted[1].mark)]


async def test_a_later_job_of_the_same_name_is_not_deleted_over_an_old_permit(
    here: KubernetesConnector,
) -> None:
    wanted = await intent(here)
    first = await here.create(wanted)
    await here.destroy(permit_for(first, wanted))
    await gone(here, first)
    second = await here.create(wanted)

    await here.destroy(permit_for(first, wanted))

    assert second.id != first.id
    assert [box.id for box in await here.list_boxes()] == [second.id]


async def test_many_jobs_are_all_listed_page_by_page(
    here: KubernetesConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_tenant.providers.kubernetes.client._PAGE", 2)
    wanted = [await intent(here, f"aa{n}") for n in range(5)]
    made = [await here.create(each) for each in wanted]

    assert sorted(box.id for box in await here.list_boxes()) == sorted(box.id for box in made)


async def test_a_list_whose_pages_have_expired_is_begun_anew(
    cluster: Cluster, here: KubernetesConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_tenant.providers.kubernetes.client._PAGE", 1)
    made = [await here.create(await intent(here, f"aa{n}")) for n in range(2)]
    asks = here._calls.ask
    stale: list[object] = []

    async def once_too_late(group: Any, method: str, **fields: object) -> Any:
        if "_continue" in fields and not stale:
            stale.append(fields["_continue"])
            # The API server answers a token of a revision that it has compacted so; this one is of none.
            old = cluster.expired(str(fields["_continue"]))
            fields["_continue"] = old
        return await asks(group, method, **fields)

    monkeypatch.setattr(here._calls, "ask", once_too_late)

    assert sorted(box.id for box in await here.list_boxes()) == sorted(box.id for box in made)
    assert stale


async def test_a_login_that_may_not_list_is_trouble_and_not_an_empty_list(
    cluster: Cluster, tmp_path: Path
) -> None:
    weak = connector(cluster, tmp_path / "state", context="weak")

    with pytest.raises(CredentialRefused, match="forbidden"):
        await weak.list_boxes()


async def test_a_cluster_that_is_not_there_is_silent(cluster: Cluster, tmp_path: Path) -> None:
    elsewhere = tmp_path / "kubeconfig"
    said = cluster.kubeconfig.read_text(encoding="utf-8")
    elsewhere.write_text(
        said.replace("https://127.0.0.1:", "https://127.0.0.1:1"), encoding="utf-8"
    )
    lost = connector(cluster, tmp_path / "state", kubeconfig=str(elsewhere))

    with pytest.raises((ProviderSilent, ProviderTrouble)):
        await lost.list_boxes()


async def test_a_quota_of_the_namespace_is_told_as_one(
    cluster: Cluster, here: KubernetesConnector
) -> None:
    limit = {"metadata": {"name": "few"}, "spec": {"hard": {"count/jobs.batch": "0"}}}
    cluster.core.create_namespaced_resource_quota("default", limit)
    try:
        counted = cluster.core.read_namespaced_resource_quota_status
        assert eventually(lambda: counted("few", "default").status.hard)
        with pytest.raises(NoQuota):
            await here.create(await intent(here))
    finally:
        cluster.core.delete_namespaced_resource_quota("few", "default")


# What becomes of a box


async def test_a_pod_that_finds_no_place_is_told_so(cluster: Cluster, tmp_path: Path) -> None:
    at = connector(
        cluster, tmp_path / "state", gpus=["A100 SXM 80GB:64"], node_selector={"zone": "none"}
    )
    wanted = await intent(at)
    await at.create(wanted)

    box = await until(at, wanted, lambda seen: seen.words)

    assert box.state is BoxState.BOOTING
    assert box.words is not None
    assert "Unschedulable" in box.words
    assert "0/1 nodes" in box.words


async def test_a_first_process_that_dies_ends_the_box_and_no_second_pod_is_made(
    cluster: Cluster, here: KubernetesConnector
) -> None:
    wanted = await intent(here)
    await here.create(wanted)
    await ready(here, wanted)
    pod = cluster.pod(job_name(wanted.mark)).metadata.name

    cluster.container(pod).kill()
    box = await until(here, wanted, lambda seen: "BackoffLimitExceeded" in (seen.words or ""))

    assert (box.state, box.taken) == (BoxState.BROKEN, "stopped_by_provider")
    assert len(cluster.core.list_namespaced_pod("default").items) == 1


async def test_a_pod_that_somebody_deletes_is_lost_though_the_job_starts_another(
    cluster: Cluster, here: KubernetesConnector
) -> None:
    wanted = await intent(here)
    await here.create(wanted)
    first = await ready(here, wanted)
    name = cluster.pod(job_name(wanted.mark)).metadata.name

    cluster.kubectl("delete", "pod", name, "--grace-period=1")
    assert eventually(lambda: cluster.pod(job_name(wanted.mark)).metadata.name != name)
    box = await until(here, wanted, lambda seen: "another" in (seen.words or ""))

    assert (box.id, box.state, box.taken) == (first.id, BoxState.BROKEN, "preempted")
    assert box.address is None, "the second pod has an empty disk, and is not the lease's box"


async def test_the_cluster_itself_ends_the_pod_at_the_job_s_deadline(
    cluster: Cluster, here: KubernetesConnector
) -> None:
    wanted = await intent(here)
    await here.create(wanted)
    await ready(here, wanted)

    cluster.batch.patch_namespaced_job(
        job_name(wanted.mark), "default", {"spec": {"activeDeadlineSeconds": 1}}
    )
    box = await until(here, wanted, lambda seen: seen.taken == "walltime")

    assert box.state is BoxState.BROKEN
    assert "DeadlineExceeded" in (box.words or "")


@pytest.mark.parametrize(
    ("status", "taken", "words"),
    [
        (
            {"reason": "Evicted", "message": "The node was low on resource: memory."},
            "preempted",
            "low on resource",
        ),
        (
            {
                "reason": "Evicted",
                "message": "Pod ephemeral local storage usage exceeds the total limit",
            },
            "stopped_by_provider",
            "exceeds",
        ),
        (
            {"reason": "Preempting", "message": "Preempted in order to admit critical pod"},
            "preempted",
            "higher priority",
        ),
        (
            {
                "conditions": [
                    {
                        "type": "DisruptionTarget",
                        "status": "True",
                        "reason": "PreemptionByScheduler",
                    }
                ]
            },
            "preempted",
            "higher priority",
        ),
        (
            {
                "conditions": [
                    {
                        "type": "DisruptionTarget",
                        "status": "True",
                        "reason": "EvictionByEvictionAPI",
                    }
                ]
            },
            "preempted",
            "drained",
        ),
        (
            {
                "conditions": [
                    {
                        "type": "DisruptionTarget",
                        "status": "True",
                        "reason": "DeletionByTaintManager",
                    }
                ]
            },
            "host_lost",
            "node is gone",
        ),
        ({"reason": "NodeShutdown", "message": "Node is shutting down"}, "host_lost", "shut down"),
        (
            {
                "containerStatuses": [
                    {
                        "name": "box",
                        "ready": False,
                        "restartCount": 0,
                        "image": "a",
                        "imageID": "a",
                        "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                    }
                ]
            },
            "stopped_by_provider",
            "OOMKilled",
        ),
    ],
)
async def test_what_a_kubelet_says_of_a_pod_s_end_is_told_apart(
    cluster: Cluster, tmp_path: Path, status: dict[str, object], taken: str, words: str
) -> None:
    at = connector(cluster, tmp_path / "state", image=ELSEWHERE)
    wanted = await intent(at)
    await at.create(wanted)
    pod = cluster.pod(job_name(wanted.mark)).metadata.name

    cluster.status(pod, phase="Failed", **status)
    box = await until(at, wanted, lambda seen: seen.state is BoxState.BROKEN)

    assert box.taken == taken
    assert words in (box.words or "")


async def test_what_is_ordered_is_what_the_cluster_is_asked_for(
    cluster: Cluster, tmp_path: Path
) -> None:
    at = connector(cluster, tmp_path / "state")
    wanted = await intent(at, wish=Wish(disk_gb=64, order=Order(image=ELSEWHERE, disk_gb=64)))
    await at.create(wanted)

    made = cluster.batch.read_namespaced_job(job_name(wanted.mark), "default")

    (box,) = made.spec.template.spec.containers
    assert box.image == ELSEWHERE
    assert box.resources.limits["ephemeral-storage"] == "64G"
    assert at.refused_image(AtProvider(template="a")) == "a cluster has no templates: name an image"


async def test_an_image_that_cannot_be_had_is_told_so(cluster: Cluster, tmp_path: Path) -> None:
    at = connector(cluster, tmp_path / "state", image=ELSEWHERE)
    wanted = await intent(at)
    await at.create(wanted)
    pod = cluster.pod(job_name(wanted.mark)).metadata.name

    waits = {
        "waiting": {
            "reason": "ImagePullBackOff",
            "message": 'Back-off pulling image "elsewhere/box:1"',
        }
    }
    shown = {
        "name": "box",
        "ready": False,
        "restartCount": 0,
        "image": "a",
        "imageID": "",
        "state": waits,
    }
    cluster.status(pod, phase="Pending", containerStatuses=[shown])
    box = await until(at, wanted, lambda seen: seen.words)

    assert box.state is BoxState.BOOTING
    assert "its image cannot be pulled" in (box.words or "")


# What stays


@pytest.mark.parametrize(
    ("policy", "words"), [("Delete", "deletes its disk"), ("Retain", "outlives the claim, too")]
)
async def test_the_reclaim_policy_of_the_claim_s_volume_is_in_the_survival_words(
    cluster: Cluster, tmp_path: Path, policy: str, words: str
) -> None:
    volume, name = f"pv-{policy.casefold()}", f"work-{policy.casefold()}"
    size = {"storage": "100Gi"}
    spec: dict[str, object] = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": size,
        "storageClassName": "",
        "hostPath": {"path": "/none"},
        "persistentVolumeReclaimPolicy": policy,
    }
    cluster.core.create_persistent_volume({"metadata": {"name": volume}, "spec": spec})
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": size},
        "storageClassName": "",
        "volumeName": volume,
    }
    cluster.core.create_namespaced_persistent_volume_claim(
        "default", {"metadata": {"name": name}, "spec": claim}
    )
    at = connector(cluster, tmp_path / "state", claim=name, image=ELSEWHERE)

    wanted = await intent(at)

    assert wanted.quote is not None
    assert words in wanted.quote.offer.notes[0]
    assert name in (await at.what_outlives(wanted) or "")
    assert name in [left.name for left in await at.leftovers()], "no pod mounts it"
    await at.create(wanted)
    cluster.pod(job_name(wanted.mark))
    assert name not in [left.name for left in await at.leftovers()]


async def test_a_claim_that_is_not_there_is_told_before_anything_is_ordered(
    cluster: Cluster, tmp_path: Path
) -> None:
    at = connector(cluster, tmp_path / "state", claim="no-such-claim")

    with pytest.raises(ProviderTrouble, match="there is no claim 'no-such-claim'"):
        await at.offers(Wish())


# The way in


@pytest.fixture
async def inside(cluster: Cluster) -> AsyncIterator[tuple[PodTransport, Any]]:
    with cluster.box() as (address, container):
        way = PodTransport(address)
        yield way, container
        await way.aclose()


async def test_what_a_command_detached_outlives_the_exec_and_is_reaped_by_the_first_process(
    inside: tuple[PodTransport, Any],
) -> None:
    way, container = inside
    start = "(setsid sh -c 'echo begun >begun; while [ ! -e end ]; do sleep 0.05; done; echo ended >ended' </dev/null >/dev/null 2>&1 &)"

    assert (await way.run(["sh", "-c", start], timeout_s=20)).exit_status == 0
    assert eventually((container.home / "begun").exists)
    (container.home / "end").touch()
    assert eventually((container.home / "ended").exists)

    async def zombies() -> bytes:
        return (
            await way.run(["sh", "-c", "ps -eo stat= | grep -c '^Z' || true"], timeout_s=20)
        ).stdout

    assert eventually(lambda: not _zombies_of(container.pid))
    assert await zombies() == b"0\n"


def _zombies_of(pid: int) -> list[str]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()
    found = []
    for child in children:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it was reaped meanwhile
            stat = Path(f"/proc/{child}/stat").read_text(encoding="utf-8")
            found.append(stat.rpartition(")")[2].split()[0])
    return [state for state in found if state == "Z"]


async def test_a_link_that_breaks_in_the_middle_is_unknown_and_the_command_is_told_to_end(
    inside: tuple[PodTransport, Any],
) -> None:
    way, container = inside
    running = asyncio.create_task(
        way.run(
            [
                "sh",
                "-c",
                "trap 'echo told >told; exit' TERM; echo >on; while :; do sleep 0.05; done",
            ],
            timeout_s=30,
        )
    )
    assert await asyncio.to_thread(eventually, (container.home / "on").exists)

    (link,) = way._left
    link._frames._link.shutdown(2)

    with pytest.raises(BoxUnreachable, match="the link broke"):
        await running
    assert eventually((container.home / "told").exists)


async def test_a_pod_that_is_gone_is_unreachable_and_one_that_may_not_be_entered_is_trouble(
    cluster: Cluster, inside: tuple[PodTransport, Any]
) -> None:
    way, _ = inside
    lost = PodTransport(way._address.model_copy(update={"pod": "no-such-pod"}))
    shut = PodTransport(way._address.model_copy(update={"context": "weak"}))

    with pytest.raises(BoxUnreachable, match=r"\(404\)"):
        await lost.run(["true"], timeout_s=10)
    with pytest.raises(BoxTrouble, match=r"\(403\)") as told:
        await shut.run(["true"], timeout_s=10)
    assert "pods/exec" in told.value.remedy


async def test_told_to_end_the_first_process_asks_all_others_and_waits_for_them(
    cluster: Cluster, inside: tuple[PodTransport, Any]
) -> None:
    way, container = inside
    saves = "trap 'sleep 0.5; echo saved >saved; exit' TERM; echo >on; while :; do sleep 0.05; done"
    start = f"(setsid sh -c {json.dumps(saves)} </dev/null >/dev/null 2>&1 &)"
    await way.run(["sh", "-c", start], timeout_s=20)
    assert eventually((container.home / "on").exists)

    os.kill(container.pid, 15)

    assert eventually(lambda: container.code is not None)
    assert (container.home / "saved").exists()


# A whole lease


async def test_a_lease_goes_from_offer_to_receipt_and_kubectl_sees_the_same(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sleep(clock: WallClock, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.2))

    monkeypatch.setattr(WallClock, "sleep", sleep)
    home = Home(configured(cluster, tmp_path / "state"))
    tenancy = open_tenancy({**os.environ, "GPU_TENANT_HOME": str(home.root)})
    try:
        found = await tenancy.find_offers(provider="kubernetes")
        card = await tenancy.provision(
            smoke="none", quotes=[found.offers[0].quote or ""], unguarded="accept", wait_s=60
        )
        assert card.phase == "ready"
        assert any("nothing outlives the pod" in rule for rule in card.terms)
        seen = cluster.kubectl("get", "jobs", "-l", "gpu-tenant/mark", "-o", "name")
        assert seen.stdout.decode().startswith("job.batch/gt-")

        await tenancy.launch_detached(
            card.lease, "mkdir -p out && printf 'weights' >out/model.bin && sleep 1", ["out/"]
        )
        pod = cluster.pod(seen.stdout.decode().strip().partition("/")[2]).metadata.name
        assert cluster.kubectl("exec", pod, "--", "sh", "-c", "ps ax").returncode == 0
        with pytest.raises(Refused):
            await tenancy.verify_and_teardown(card.lease)
        watched = await over(tenancy, card.lease)
        await tenancy.collect(card.lease)
        ended = await tenancy.verify_and_teardown(card.lease)
    finally:
        await tenancy.aclose()

    assert (watched.state, watched.exit_code) == ("finished", 0)
    assert (ended.state, ended.receipt.ground) == (LeaseState.GONE, "verified")
    assert "the node that it ran on bills" in (ended.receipt.left_behind or "")
    assert cluster.kubectl("get", "jobs", "-o", "name").stdout == b""


async def test_a_pod_that_is_evicted_saves_copies_to_the_store_and_is_told_of_before_it_is_gone(
    cluster: Cluster, tmp_path: Path
) -> None:
    home = Home(configured(cluster, tmp_path / "state"))
    tenancy = open_tenancy({**os.environ, "GPU_TENANT_HOME": str(home.root)})
    store = tmp_path / "store"
    store.mkdir()
    try:
        found = await tenancy.find_offers(provider="kubernetes")
        card = await tenancy.provision(
            smoke="none", quotes=[found.offers[0].quote or ""], unguarded="accept", wait_s=60
        )
        job = "echo on; trap 'sleep 2; mkdir out; echo late >out/saved; exit 1' TERM; while :; do sleep 0.05; done"
        await tenancy.launch_detached(card.lease, job, ["out/"], name="train")
        session = tenancy.context.session(tenancy.ledger.lease(card.lease))
        keeps = {"kind": "directory", "path": str(store)}
        assert (await arm(session, ledger=tenancy.ledger, store=keeps)).state == "armed"
        name = job_name(tenancy.ledger.lease(card.lease).mark)
        pod = cluster.pod(name)
        container = cluster._node.running[f"default_{pod.metadata.name}"]
        while "on" not in (await tenancy.monitor(card.lease, "train", wait_s=1)).log:
            pass

        cluster.kubectl("delete", "pod", pod.metadata.name, "--wait=false")

        heard = None
        for _ in range(200):
            # A call that is under way when the pod is told to end may be ended with it.
            with contextlib.suppress(BoxUnreachable):
                heard = (await session.caretaker.standing()).notice
            if heard is not None:
                break
            await asyncio.sleep(0.05)
        assert heard is not None
        assert (heard.source, heard.jobs) == ("shutdown", ("train",))
        assert eventually(lambda: container.code is not None), "nothing holds the container up"
        copied = list(store.rglob("saved"))
        assert [path.read_text(encoding="utf-8") for path in copied] == ["late\n"]
    finally:
        await tenancy.aclose()


async def test_what_kubectl_deletes_is_seen_as_ended_and_then_as_gone(
    cluster: Cluster, here: KubernetesConnector
) -> None:
    wanted = await intent(here)
    box = await here.create(wanted)
    await ready(here, wanted)

    assert cluster.kubectl("delete", "job", job_name(wanted.mark), "--wait=false").returncode == 0

    await gone(here, box)
