"""Boxes in a Kubernetes cluster: a Job with one pod each, in the namespace that its owner names."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, ProviderSilent, ProviderTrouble, Rejected
from gpu_tenant.domain.model import Box, BoxId, BoxState, Lease, PodAddress
from gpu_tenant.domain.offers import USD_STEP, Leftover, Offer, Price, Wish
from gpu_tenant.domain.order import AtProvider
from gpu_tenant.domain.permit import TeardownPermit, genuine
from gpu_tenant.domain.ports import Setting, wanted_quote
from gpu_tenant.domain.timestamps import instant
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.providers.gpu_catalog import described_gpus, known_gpu
from gpu_tenant.providers.kubernetes.client import KubernetesClient, Shown, silent
from gpu_tenant.providers.kubernetes.cluster_identity import (
    Identity,
    identity,
    must_be_noted,
    note_once,
)
from gpu_tenant.providers.kubernetes.job_manifest import (
    CONTAINER,
    FIRST_POD,
    MARK,
    Cluster,
    cluster,
    is_named,
    job,
    job_name,
    mark_on,
)
from gpu_tenant.providers.kubernetes.status import JobView, look
from gpu_tenant.providers.list_rows import Subject, read_each, try_read

_SETUP_S = 600
"""Enough for an image of ten gigabytes, on a node that an autoscaler has yet to start."""
_GIB = {
    "Ki": 2**-20,
    "Mi": 2**-10,
    "Gi": 1.0,
    "Ti": 2.0**10,
    "k": 1e3 / 2**30,
    "M": 1e6 / 2**30,
    "G": 1e9 / 2**30,
    "T": 1e12 / 2**30,
}


class KubernetesConnector:
    """Our Jobs in one namespace. Only the owner knows what a node costs, and who removes it."""

    has_registry_logins = True

    def __init__(self, setting: Setting) -> None:
        self._configuration = setting.state / "config.toml"
        self._note_of_cluster = setting.state / "kubernetes" / "cluster.json"
        self._environ = setting.environ

    @cached_property
    def _where(self) -> Cluster:
        """The owner's settings, read only when needed, so that an error in them affects only this provider."""
        return cluster(self._configuration)

    @cached_property
    def _kubeconfig(self) -> str | None:
        return self._where.kubeconfig or self._environ.get("KUBECONFIG") or None

    @cached_property
    def _calls(self) -> KubernetesClient:
        return KubernetesClient(self._where.context, self._kubeconfig)

    async def _identify(self) -> Identity:
        """Return the namespace that is asked. The leases are in it, or no namespace is noted yet.

        Raises:
            ProviderTrouble: the leases are in another namespace. That this one has none of our boxes does not mean
                that they are gone.
        """
        found = await identity(self._calls, self._where.namespace)
        must_be_noted(found, self._note_of_cluster)
        return found

    # --- boxes

    async def create(self, lease: Lease) -> Box:
        """Implement `Connector.create`. The Job's name is derived from the mark, so there cannot be a second Job."""
        quote = wanted_quote(lease)
        source = quote.wish.order.image_at("kubernetes")
        asked = job(
            lease.mark,
            self._where,
            gpu_count=quote.offer.gpu_count,
            image=source.image,
            pull_secret=source.registry,
            disk_gb=quote.wish.order.disk_gb,
        )
        where = {"namespace": self._where.namespace}
        note_once(await self._identify(), self._note_of_cluster)
        try:
            made = await self._calls.ask("BatchV1Api", "create_namespaced_job", body=asked, **where)
        except Rejected as refused:
            if refused.status != 409:
                raise
            # The Job exists. The answer to an earlier create was lost, or another process made it.
            made = await self._calls.ask(
                "BatchV1Api", "read_namespaced_job", name=job_name(lease.mark), **where
            )
            if mark_on(made) != lease.mark:
                raise ProviderTrouble(
                    f"a Job called {job_name(lease.mark)} exists, and is not this lease's",
                    remedy=f"{Command('leases')} shows what runs",
                ) from refused
            if made["metadata"].get("deletionTimestamp"):
                raise ProviderSilent(
                    f"the Job {job_name(lease.mark)} is being deleted, and until it is gone no new one can have its name",
                    remedy=f"try again in a minute; {Command('leases')} looks again",
                ) from refused
        return self._box(made, look(made, []))

    async def list_boxes(self) -> Sequence[Box]:
        """Implement `Connector.list_boxes`: every Job that carries a mark. Other Jobs there are ignored.

        The first pod of a Job that runs is noted on the Job, and is the box from then on. If the Job starts another
        pod in its place, that pod is not the box.
        """
        where = {"namespace": self._where.namespace, "label_selector": MARK}
        here = await self._identify()
        # The Jobs come first. Then a pod whose Job is not listed was made between the two calls.
        jobs = await self._calls.pages("BatchV1Api", "list_namespaced_job", **where)
        pods = await self._calls.pages("CoreV1Api", "list_namespaced_pod", **where)
        noted = await asyncio.gather(*(self._noted_look(shown, pods) for shown in jobs))
        if any(isinstance(try_read(mark_on, shown), str) for shown in jobs):
            # A Job that was not made from this state directory may become a lease, too.
            note_once(here, self._note_of_cluster)
        return read_each("kubernetes", zip(jobs, noted, strict=True), self._read, _subject)

    async def destroy(self, permit: TeardownPermit) -> None:
        """Implement `Connector.destroy`: delete the Job and its pod. The claim, its disk and the node stay."""
        permit = genuine(permit, provider="kubernetes")
        namespace, name, uid = _where(permit.box_id)
        await self._identify()
        try:
            await self._calls.ask(
                "BatchV1Api",
                "delete_namespaced_job",
                name=name,
                namespace=namespace,
                body={"propagationPolicy": "Foreground", "preconditions": {"uid": uid}},
            )
        except Rejected as refused:
            if refused.status != 404 and not await self._is_another(namespace, name, uid):
                raise

    async def _is_another(self, namespace: str, name: str, uid: str) -> bool:
        """Whether the permitted Job is gone, and a later one may have its name."""
        try:
            shown = await self._calls.ask(
                "BatchV1Api", "read_namespaced_job", name=name, namespace=namespace
            )
        except Rejected as refused:
            return refused.status == 404
        return bool(shown["metadata"]["uid"] != uid)

    async def _noted_look(self, shown: Shown, pods: Sequence[Shown]) -> JobView | Exception:
        seen = try_read(lambda it: look(it, _pods_of(it, pods)), shown)
        if isinstance(seen, Exception) or isinstance(try_read(_identity, shown), Exception):
            return seen
        return await self._note(shown, seen)

    def _read(self, row: tuple[Shown, JobView | Exception]) -> Box:
        shown, seen = row
        if isinstance(seen, Exception):
            raise seen
        return self._box(shown, seen)

    async def _note(self, shown: Shown, seen: JobView) -> JobView:
        """Note the running pod on its Job as the first pod. Until it is noted, the box is not ready.

        A Job that is not ours is left as it is.
        """
        metadata = shown["metadata"]
        if (
            seen.state is not BoxState.READY
            or seen.pod is None
            or mark_on(shown) is None
            or FIRST_POD in metadata["annotations"]
        ):
            return seen
        note = {
            "metadata": {
                "uid": metadata["uid"],
                "resourceVersion": metadata["resourceVersion"],
                "annotations": {FIRST_POD: seen.pod["metadata"]["uid"]},
            }
        }
        try:
            await self._calls.ask(
                "BatchV1Api",
                "patch_namespaced_job",
                name=metadata["name"],
                namespace=metadata["namespace"],
                body=note,
            )
        except ProviderTrouble as trouble:
            return JobView(
                BoxState.BOOTING,
                f"its pod runs, but is not noted on its Job yet: {trouble.message}",
            )
        return seen

    def _box(self, shown: Shown, seen: JobView) -> Box:
        metadata = shown["metadata"]
        address = None
        if seen.state is BoxState.READY and seen.pod is not None:
            address = PodAddress(
                context=self._where.context,
                namespace=metadata["namespace"],
                pod=seen.pod["metadata"]["name"],
                container=CONTAINER,
                kubeconfig=self._kubeconfig,
            )
        return Box(
            provider="kubernetes",
            id=BoxId(_identity(shown)),
            mark=mark_on(shown),
            state=seen.state,
            address=address,
            price_usd_h=self._usd_h(_gpus(shown)),
            words=seen.words,
            taken=seen.taken,
            created_at=instant(metadata.get("creationTimestamp")),
        )

    def refused_image(self, source: AtProvider) -> str | None:
        """Implement `Imaging.refused_image`: any image that the cluster can pull, with sh and python3."""
        return "a cluster has no templates: name an image" if source.template else None

    # --- what can be had, and what is left

    async def offers(self, wish: Wish) -> Sequence[Offer]:
        """Implement `Market.offers`: what the owner says may be asked for.

        Whether there is room shows only with a pod.
        """
        notes = await self._notes()
        found = []
        for gpus in self._where.gpus:
            gpu, most = described_gpus(gpus)
            model = known_gpu(gpu)
            if wish.gpu_count > most:
                continue
            offer = Offer(
                provider="kubernetes",
                id=f"{gpu}:{wish.gpu_count}",
                gpu=gpu,
                gpu_count=wish.gpu_count,
                vram_gib=model.vram_gib if model else None,
                region=self._where.context,
                price=self._price(wish.gpu_count),
                disk_gb=wish.disk_gb,
                interruptible=False,
                trust="datacenter",
                reliability=None,
                max_hours=None,
                download_mbps=None,
                upload_mbps=None,
                setup_s=_SETUP_S,
                notes=notes,
            )
            if offer.id == wish.offer if wish.offer is not None else offer.suits(wish):
                found.append(offer)
        return found

    def _price(self, gpu_count: int) -> Price:
        usd_h = self._usd_h(gpu_count)
        # The owner's rate covers everything, so if it is known, nothing else is billed.
        rest = None if usd_h is None else Decimal(0)
        return Price(
            gpu_usd_h=usd_h,
            disk_usd_h=rest,
            parked_usd_h=None,
            upload_usd_gb=rest,
            download_usd_gb=rest,
            source="owner",
        )

    def _usd_h(self, gpu_count: int) -> Decimal | None:
        rate = self._where.rate_usd_h
        return None if rate is None else (rate * gpu_count).quantize(USD_STEP)

    async def _notes(self) -> tuple[str, ...]:
        queue = self._where.queue
        return (
            await self._survival(),
            *(
                (f"it waits in Kueue's queue {queue}; being preempted there ends it",)
                if queue
                else ()
            ),
        )

    async def what_outlives(self, lease: Lease) -> str | None:
        """Implement `Outlived.what_outlives`: the claim with its disk, and the node."""
        node = (
            "the node that it ran on bills until its pool scales down, or a person removes the node"
        )
        if self._where.claim is None:
            return node
        return f"{await self._survival()}; {node}"

    async def _survival(self) -> str:
        """Return in words what becomes of the written data, by the claim and its volume's reclaim policy."""
        name, path = self._where.claim, self._where.claim_path
        if name is None:
            return "nothing outlives the pod: no claim is named in [kubernetes]"
        try:
            claim = await self._calls.ask(
                "CoreV1Api",
                "read_namespaced_persistent_volume_claim",
                name=name,
                namespace=self._where.namespace,
            )
        except Rejected as refused:
            if refused.status != 404:
                raise
            raise ProviderTrouble(
                f"there is no claim {name!r} in {self._where.namespace}, and a pod would wait for it forever",
                remedy="make the claim, or name another as `claim` in [kubernetes]",
            ) from refused
        volume = claim.get("spec", {}).get("volumeName")
        if not volume:
            return f"{path} outlives the pod, on the claim {name}; its volume is yet to be made"
        try:
            shown = await self._calls.ask("CoreV1Api", "read_persistent_volume", name=volume)
        except ProviderTrouble as trouble:
            return (
                f"{path} outlives the pod, on the claim {name}; whether its disk outlives the claim is unknown "
                f"({trouble.message})"
            )
        policy = shown.get("spec", {}).get("persistentVolumeReclaimPolicy")
        after = {
            "Retain": "its disk outlives the claim, too, and continues to bill (reclaim policy Retain)",
            "Delete": "whoever deletes the claim deletes its disk, too (reclaim policy Delete)",
        }.get(str(policy), f"its reclaim policy is {plain(str(policy))}")
        return f"{path} outlives the pod, on the claim {name}: {after}"

    async def leftovers(self) -> Sequence[Leftover]:
        """Implement `Residue.leftovers`: claims of the namespace that no pod mounts."""
        where = {"namespace": self._where.namespace}
        claims, pods = await asyncio.gather(
            self._calls.pages("CoreV1Api", "list_namespaced_persistent_volume_claim", **where),
            self._calls.pages("CoreV1Api", "list_namespaced_pod", **where),
        )
        used = set(_claims(pods))
        return [
            Leftover(
                provider="kubernetes",
                kind="volume",
                id=claim["metadata"]["uid"],
                name=plain(claim["metadata"]["name"]),
                mark=None,
                size_gb=_gib(claim.get("status", {}).get("capacity", {}).get("storage")),
                usd_month=None,
            )
            for claim in claims
            if claim["metadata"]["name"] not in used
        ]


def connect(setting: Setting) -> KubernetesConnector | None:
    """Return the connector for the cluster of `[kubernetes]`. None if the configuration names no cluster.

    Errors in that table are raised by the connector's calls.
    """
    return KubernetesConnector(setting) if is_named(setting.state / "config.toml") else None


def _where(box_id: str | None) -> tuple[str, str, str]:
    """Return namespace, name and uid of the Job that our id of a box stands for."""
    namespace, _, rest = (box_id or "").partition("/")
    name, _, uid = rest.partition("/")
    if not (namespace and name and uid):
        raise BadRequest(f"{box_id!r} is not a Job", remedy=f"{Command('leases')} shows what runs")
    return namespace, name, uid


def _identity(shown: Shown) -> str:
    """Return our id of the box, from its Job.

    Raises:
        ValueError: the Job does not show its name.
    """
    metadata = shown["metadata"]
    parts = [metadata["namespace"], metadata["name"], metadata["uid"]]
    if not all(isinstance(part, str) and part for part in parts):
        raise ValueError("a Job does not tell its name")
    return "/".join(parts)


def _subject(row: tuple[Shown, object]) -> Subject:
    shown, _ = row
    told = [
        try_read(lambda it: it["metadata"]["annotations"][MARK], shown),
        try_read(lambda it: it["metadata"]["labels"][MARK], shown),
    ]
    identity = try_read(_identity, shown)
    # Unless both are readable, it is unknown whose Job it is.
    has_mark = all(isinstance(each, str) for each in told)
    mark = try_read(mark_on, shown) if has_mark else None
    return Subject(
        identity if isinstance(identity, str) else None,
        mark if isinstance(mark, str) else None,
        mark_is_told=has_mark and not isinstance(mark, Exception),
    )


def _pods_of(shown: Shown, pods: Iterable[Shown]) -> list[Shown]:
    """Return the pods of that Job.

    Raises:
        ProviderSilent: a pod does not show which Job it belongs to, so it may belong to this one.
    """
    uid = shown["metadata"]["uid"]
    found, nobody_s = [], 0
    for pod in pods:
        owners = try_read(_owners, pod)
        if isinstance(owners, Exception):
            nobody_s += 1
        elif uid in owners:
            found.append(pod)
    first = shown["metadata"].get("annotations", {}).get(FIRST_POD)
    if nobody_s and first not in [pod["metadata"]["uid"] for pod in found]:
        raise silent("a pod does not tell which Job it belongs to")
    return found


def _owners(pod: Shown) -> list[str]:
    pod["metadata"]["uid"]  # a pod without a uid raises here, and so counts as unreadable
    return [str(owner["uid"]) for owner in pod["metadata"].get("ownerReferences", [])]


def _claims(pods: Iterable[Shown]) -> Iterable[str]:
    for pod in pods:
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            continue
        for volume in pod.get("spec", {}).get("volumes", []) or []:
            if "persistentVolumeClaim" in volume:
                yield volume["persistentVolumeClaim"]["claimName"]


def _gpus(shown: Shown) -> int:
    """Return how many GPUs a Job of ours asks for."""
    template: Mapping[str, Any] = shown["spec"]["template"]["spec"]
    limits = (box.get("resources", {}).get("limits", {}) for box in template["containers"])
    return sum(int(each.get("nvidia.com/gpu", 0)) for each in limits)


def _gib(quantity: str | None) -> float | None:
    for unit, gib in _GIB.items():
        if quantity and quantity.endswith(unit) and quantity.removesuffix(unit).isdigit():
            return int(quantity.removesuffix(unit)) * gib
    return None
