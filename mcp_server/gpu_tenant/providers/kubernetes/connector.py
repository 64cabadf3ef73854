"""Boxes in a Kubernetes cluster: a Job with one pod each, in the namespace that its owner names."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    BadRequest,
    CredentialRefused,
    ProviderSilent,
    ProviderTrouble,
    Rejected,
)
from gpu_tenant.domain.model import Box, BoxId, BoxState, Lease, PodAddress
from gpu_tenant.domain.offers import USD_STEP, Attachable, Leftover, Offer, Price, Wish
from gpu_tenant.domain.order import AtProvider
from gpu_tenant.domain.permit import (
    TeardownPermit,
    VolumePermit,
    Waived,
    genuine,
    genuine_for_volume,
)
from gpu_tenant.domain.ports import Setting, wanted_quote
from gpu_tenant.domain.timestamps import instant
from gpu_tenant.domain.untrusted_text import plain, quote_text
from gpu_tenant.domain.volumes import ListedVolume, Volume
from gpu_tenant.providers.drift import Drift
from gpu_tenant.providers.gpu_catalog import described_gpus, known_gpu
from gpu_tenant.providers.kubernetes.claims import (
    claimed_gib,
    claims_of,
    class_of,
    gib,
    may_stay_words,
    reclaim_command,
    volume_claim,
)
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
from gpu_tenant.providers.kubernetes.status import JobView, has_ended, look
from gpu_tenant.providers.list_rows import Subject, read_each, try_read

_SETUP_S = 600
"""Enough for an image of ten gigabytes, on a node that an autoscaler has yet to start."""
_CLAIM = "persistent_volume_claim"


class KubernetesConnector:
    """Our Jobs in one namespace. Only the owner knows what a node costs, and who removes it."""

    has_registry_logins = True

    def __init__(self, setting: Setting) -> None:
        self._configuration = setting.state / "config.toml"
        self._note_of_cluster = setting.state / "kubernetes" / "cluster.json"
        self._environ = setting.environ
        self._drift = Drift(setting)

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
            ProviderTrouble: the leases are in another namespace. Their boxes are not listed here, and are not gone.
        """
        found = await identity(self._calls, self._where.namespace)
        must_be_noted(found, self._note_of_cluster)
        return found

    # --- boxes

    async def create(self, lease: Lease) -> Box:
        """Implement `Connector.create`. The Job's name is derived from the mark, so there cannot be a second Job."""
        quote = wanted_quote(lease)
        source = quote.wish.order.image_at("kubernetes")
        volumes = quote.wish.volumes_at("kubernetes")
        asked = job(
            lease.mark,
            self._where,
            gpu_count=quote.offer.gpu_count,
            image=source.image,
            pull_secret=source.registry,
            disk_gb=quote.wish.order.disk_gb,
            attached=volumes,
        )
        where = {"namespace": self._where.namespace}
        note_once(await self._identify(), self._note_of_cluster)
        # A Job that exists already keeps its claims. So they are checked only for a new Job.
        made = await self._job_of(lease.mark) if volumes else None
        if made is None:
            await self._must_stay(volumes)
            try:
                made = await self._calls.ask(
                    "BatchV1Api", "create_namespaced_job", body=asked, **where
                )
            except Rejected as refused:
                if refused.status != 409:
                    raise
                # The Job exists. The answer to an earlier create was lost, or another process made it.
                made = await self._job_of(lease.mark)
                if made is None:
                    raise silent(
                        f"the Job {job_name(lease.mark)} existed a moment ago, and is gone now"
                    ) from refused
        return self._box(made, look(made, []))

    async def _job_of(self, mark: str) -> Shown | None:
        """Return the Job of that mark. None if there is none.

        Raises:
            ProviderTrouble: the Job of that name is not ours, or is being deleted.
        """
        try:
            made = await self._calls.ask(
                "BatchV1Api",
                "read_namespaced_job",
                name=job_name(mark),
                namespace=self._where.namespace,
            )
        except Rejected as refused:
            if refused.status != 404:
                raise
            return None
        if mark_on(made) != mark:
            raise ProviderTrouble(
                f"a Job called {job_name(mark)} exists, and is not this lease's",
                remedy=f"{Command('leases')} shows what runs",
            )
        if made["metadata"].get("deletionTimestamp"):
            raise ProviderSilent(
                f"the Job {job_name(mark)} is being deleted, and until it is gone no new one can have its name",
                remedy=f"try again in a minute; {Command('leases')} looks again",
            )
        return made

    async def list_boxes(self) -> Sequence[Box]:
        """Implement `Connector.list_boxes`: every Job that carries a mark. Other Jobs there are ignored.

        The first running pod of a Job is noted on the Job, and is the box from then on. If the Job starts another pod
        in its place, that pod is not the box.
        """
        where = {"namespace": self._where.namespace, "label_selector": MARK}
        here = await self._identify()
        # The Jobs are listed first. So if a pod's Job is not listed, the pod was made between the two calls.
        jobs = await self._calls.pages("BatchV1Api", "list_namespaced_job", **where)
        pods = await self._calls.pages("CoreV1Api", "list_namespaced_pod", **where)
        noted = await asyncio.gather(*(self._noted_look(shown, pods) for shown in jobs))
        if any(isinstance(try_read(mark_on, shown), str) for shown in jobs):
            # A Job that was not made from this state directory may become a lease, too.
            note_once(here, self._note_of_cluster)
        return read_each(
            "kubernetes", zip(jobs, noted, strict=True), self._read, _subject, self._drift
        )

    async def destroy(self, permit: TeardownPermit) -> None:
        """Implement `Connector.destroy`: delete the Job and its pod. The claims, their disks and the node stay.

        If somebody has deleted a claim, it stays only while the pod uses it, and ends with the pod. So a pod with such
        a claim is not deleted, unless a person has signed for what would be lost.
        """
        permit = genuine(permit, provider="kubernetes")
        namespace, name, uid = _where(permit.box_id)
        await self._identify()
        if not isinstance(permit.ground, Waived):
            for claim, why in (await self._going_with(namespace, name, uid)).items():
                raise ProviderTrouble(
                    f"the claim {claim} of its pod: {why}; nothing was destroyed",
                    remedy=f"keep that disk, or {Command('waive', permit.lease_id)} gives it up",
                )
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

    # --- volumes

    def refused_volumes(self, volumes: Sequence[Attachable]) -> str | None:
        """Implement `Storing.refused_volumes`. The cluster's scheduler decides where a claim's disk can be."""
        try:
            taken = self._where.taken_paths
        except ProviderTrouble as trouble:
            return trouble.message
        for volume in volumes:
            for path in taken:
                if f"{volume.path}/".startswith(f"{path}/") or path.startswith(f"{volume.path}/"):
                    return f"a pod has something else at {path}, so the volume {volume.name} cannot be at {volume.path}"
        return None

    def volume_usd_month(self, size_gb: int, region: str) -> Decimal | None:
        """Implement `Storing.volume_usd_month`: the owner's rate."""
        return self._usd_month(size_gb)

    async def create_volume(self, volume: Volume) -> ListedVolume:
        """Implement `Storing.create_volume`: a claim, whose disk the cluster makes now or for its first pod."""
        where = self._where
        if volume.region != where.context:
            size = str(volume.size_gb)
            again = Command(
                "volumes", create=volume.name, on="kubernetes", region=where.context, size_gb=size
            )
            raise BadRequest(
                f"[kubernetes] names the context {where.context}, and {volume.region!r} is another",
                remedy=str(again),
            )
        there = {"namespace": where.namespace}
        wanted = volume_claim(volume, where)
        note_once(await self._identify(), self._note_of_cluster)
        create = f"create_namespaced_{_CLAIM}"
        try:
            if where.storage_class is None:
                tried = await self._calls.ask(
                    "CoreV1Api", create, body=wanted, dry_run="All", **there
                )
                if not tried["spec"].get("storageClassName"):
                    raise ProviderTrouble(
                        "the cluster has no default storage class, and a claim would wait forever",
                        remedy="name one as `storage_class` in [kubernetes]; `kubectl get storageclass` lists them",
                    )
            made = await self._calls.ask("CoreV1Api", create, body=wanted, **there)
        except Rejected as refused:
            if refused.status != 409:
                raise
            # The answer to an earlier create was lost. Nobody else makes a claim of that name.
            made = await self._calls.ask(
                "CoreV1Api", f"read_namespaced_{_CLAIM}", name=volume.mark, **there
            )
            if made["metadata"].get("labels", {}).get(MARK) != volume.mark:
                raise ProviderTrouble(
                    f"a claim called {volume.mark} exists, and is not this volume",
                    remedy=f"{Command('leases')} shows what bills",
                ) from refused
        return await self._listed(made, ())

    async def list_volumes(self) -> Sequence[ListedVolume]:
        """Implement `Storing.list_volumes`: every claim of the namespace, with the pods and Jobs that mount it."""
        here = await self._identify()
        claims = await self._claims()
        if claims:
            # A claim that somebody else made may become a volume of ours.
            note_once(here, self._note_of_cluster)
        users = await self._users()
        return [await self._listed(claim, users.get(_name(claim), ())) for claim in claims]

    async def grow_volume(self, volume: Volume, size_gb: int) -> None:
        """Implement `Growing.grow_volume`. The file system grows when the next pod mounts it.

        The claim is named with its uid, so that no later claim of its name is changed.
        """
        await self._identify()
        wanted = {
            "metadata": {"uid": volume.volume_id},
            "spec": {"resources": {"requests": {"storage": f"{size_gb}Gi"}}},
        }
        try:
            await self._calls.ask(
                "CoreV1Api",
                f"patch_namespaced_{_CLAIM}",
                name=volume.mark,
                namespace=self._where.namespace,
                body=wanted,
            )
        except CredentialRefused as refused:
            # The server refuses this with the status of a missing right.
            if "support resize" not in refused.message:
                raise
            raise ProviderTrouble(
                f"the storage class of the claim {volume.mark} lets none grow (`allowVolumeExpansion`)",
                remedy="make a larger volume, and copy what is on this one",
            ) from refused

    async def destroy_volume(self, permit: VolumePermit) -> None:
        """Implement `Storing.destroy_volume`: delete the claim, which nothing uses, and with it its disk.

        Kubernetes itself would accept the request even while a pod has the claim, and delete the claim when that pod
        ends. If the disk would outlive its claim, it would bill on, so the claim is not deleted. For a disk that this
        login may not see, see `may_stay`.
        """
        permit = genuine_for_volume(permit, provider="kubernetes")
        await self._identify()
        found = next((c for c in await self._claims() if _uid(c) == permit.volume_id), None)
        if found is None:
            return
        name = _name(found)
        if users := (await self._users()).get(name):
            raise ProviderTrouble(
                f"{users[0]} uses the claim {name}, which would be deleted as soon as that has ended; nothing was deleted",
                remedy="end that first",
            )
        disk, policy = await self._disk_of(found)
        if policy == "Retain":
            raise ProviderTrouble(
                f"the disk {disk} of the claim {name} would outlive it, and may bill (reclaim policy Retain); nothing "
                "was deleted",
                remedy=f"{reclaim_command(disk, 'Delete')}, then the same command again; to keep the disk, "
                f"`kubectl delete pvc {name}`",
            )
        try:
            await self._calls.ask(
                "CoreV1Api",
                f"delete_namespaced_{_CLAIM}",
                name=name,
                namespace=self._where.namespace,
                body={"preconditions": {"uid": permit.volume_id}},
            )
        except Rejected as refused:
            # A 409 means that another claim has its name now. The list will show that.
            if refused.status not in (404, 409):
                raise

    async def may_stay(self, volume: Volume) -> str | None:
        """Implement `Outliving.may_stay`. If the disk is not shown, the policy of its storage class counts."""
        await self._identify()
        claim = await self._claim(volume.mark)
        if claim is None or _uid(claim) != volume.volume_id:
            return None
        return await self._may_stay(claim)

    async def _may_stay(self, claim: Shown) -> str | None:
        disk, policy = await self._disk_of(claim)
        if disk is None or policy is not None:
            return None
        policy = await self._class_policy(claim)
        return None if policy == "Delete" else may_stay_words(disk, _name(claim), policy)

    async def _class_policy(self, claim: Shown) -> str | None:
        """Return the reclaim policy of the storage class that made the claim's disk. None if that is unknown."""
        name = class_of(claim)
        if name is None:
            return None
        try:
            shown = await self._calls.ask("StorageV1Api", "read_storage_class", name=name)
        except CredentialRefused:
            return None
        except Rejected as refused:
            if refused.status != 404:
                raise
            return None
        made, claimed = (
            instant(each["metadata"].get("creationTimestamp")) for each in (shown, claim)
        )
        if made is None or claimed is None or made > claimed:
            return None  # A class of that name made the disk, but another one has its name now.
        policy = shown.get("reclaimPolicy")
        return policy if isinstance(policy, str) else None

    async def reclaimed_with(self, lease: Lease) -> Mapping[str, str]:
        """Implement `Reclaiming.reclaimed_with`."""
        if lease.box_id is None or lease.quote is None:
            return {}
        await self._identify()
        going = await self._going_with(*_where(lease.box_id))
        volumes = lease.quote.wish.volumes_at("kubernetes")
        return {each.name: going[each.mark] for each in volumes if each.mark in going}

    async def _going_with(self, namespace: str, name: str, uid: str) -> Mapping[str, str]:
        """Return the claims of that Job's pod that are deleted with their disks once it has ended, each with the reason."""
        try:
            shown = await self._calls.ask(
                "BatchV1Api", "read_namespaced_job", name=name, namespace=namespace
            )
        except Rejected as refused:
            if refused.status != 404:
                raise
            return {}
        found = {}
        for used in (
            dict.fromkeys(claims_of(shown["spec"]["template"])) if _uid(shown) == uid else ()
        ):
            claim = await self._claim(used)
            why = None if claim is None else await self._going(claim)
            if why is not None:
                found[used] = why
        return found

    async def _going(self, claim: Shown) -> str | None:
        """Say why the claim will be deleted with its disk once no pod has it. None if at least the disk stays."""
        if not claim["metadata"].get("deletionTimestamp"):
            return None
        disk, policy = await self._disk_of(claim)
        if policy == "Retain":
            return None
        return (
            "somebody has deleted its claim, which stays only until no pod uses it, and then goes with its disk; "
            f"{reclaim_command(disk, 'Retain')} keeps the disk"
        )

    async def _must_stay(self, volumes: Sequence[Attachable]) -> None:
        """Check that each volume's claim exists, is the one on record, and is not deleted together with something else.

        Raises:
            ProviderTrouble: a claim fails one of these checks.
        """
        for volume in volumes:
            claim = await self._claim(volume.mark)
            if claim is None or _uid(claim) != volume.id:
                why = "is not there, and a pod would wait for it forever"
            elif claim["metadata"].get("deletionTimestamp"):
                why = "is being deleted"
            elif owners := claim["metadata"].get("ownerReferences"):
                owner = quote_text(f"{owners[0].get('kind')} {owners[0].get('name')}")
                why = f"goes with its owner, the {owner}"
            else:
                continue
            raise ProviderTrouble(
                f"the claim {volume.mark} of the volume {volume.name} {why}; nothing was ordered",
                remedy=f"`kubectl get pvc -n {self._where.namespace}` shows it; {Command('volumes')} looks again",
            )

    async def _claim(self, name: str) -> Shown | None:
        """Return the claim of that name. None if there is none."""
        try:
            return await self._calls.ask(
                "CoreV1Api",
                f"read_namespaced_{_CLAIM}",
                name=name,
                namespace=self._where.namespace,
            )
        except Rejected as refused:
            if refused.status != 404:
                raise
            return None

    async def _claims(self) -> list[Shown]:
        """Return every claim of the namespace.

        Raises:
            ProviderTrouble: the cluster did not answer, or a claim cannot be read.
        """
        claims = await self._calls.pages(
            "CoreV1Api", f"list_namespaced_{_CLAIM}", namespace=self._where.namespace
        )
        if any(isinstance(try_read(_legible, claim), Exception) for claim in claims):
            raise silent("a claim does not tell its name, or what it asks for")
        return claims

    async def _users(self) -> Mapping[str, tuple[str, ...]]:
        """Return what uses each claim: pods that run or wait, and Jobs that have not ended, as kubectl names them."""
        where = {"namespace": self._where.namespace}
        jobs, pods = await asyncio.gather(
            self._calls.pages("BatchV1Api", "list_namespaced_job", **where),
            self._calls.pages("CoreV1Api", "list_namespaced_pod", **where),
        )
        found: dict[str, tuple[str, ...]] = {}
        for kind, rows in (("pod", pods), ("job", jobs)):
            for row in rows:
                claims = try_read(_claims_in_use, row)
                if isinstance(claims, Exception):
                    raise silent(f"a {kind} does not tell what it mounts")
                for claim in claims:
                    found[claim] = (*found.get(claim, ()), f"{kind}/{_name(row)}")
        return found

    async def _listed(self, claim: Shown, users: Sequence[str]) -> ListedVolume:
        return ListedVolume(
            id=_uid(claim),
            name=plain(_name(claim)),
            region=self._where.context,
            size_gb=claimed_gib(claim),
            usd_month=self._rate_of(claim),
            boxes=tuple(map(plain, users)),
            going=await self._going(claim),
        )

    def _rate_of(self, claim: Shown) -> Decimal | None:
        """Return what the claim costs a month. None if the owner's rate is unknown, or for another storage class."""
        chosen, size_gb = self._where.storage_class, claimed_gib(claim)
        is_ours = claim["metadata"].get("labels", {}).get(MARK) == _name(claim)
        is_rated = is_ours if chosen is None else claim["spec"].get("storageClassName") == chosen
        return self._usd_month(size_gb) if is_rated and size_gb is not None else None

    def _usd_month(self, size_gb: float) -> Decimal | None:
        rate = self._where.rate_usd_gb_month
        return None if rate is None else (rate * Decimal(str(size_gb))).quantize(USD_STEP)

    async def _disk_of(self, claim: Shown) -> tuple[str | None, str | None]:
        """Return the name of the claim's disk and its reclaim policy.

        Both are None if there is no disk. Only the policy is None if this login may not see the disk.
        """
        name = claim.get("spec", {}).get("volumeName")
        if not name:
            return None, None
        try:
            shown = await self._calls.ask("CoreV1Api", "read_persistent_volume", name=name)
        except CredentialRefused:
            # Disks belong to the whole cluster, and a login for one namespace may not read them.
            return plain(name), None
        except Rejected as refused:
            if refused.status != 404:
                raise
            return None, None
        policy = shown.get("spec", {}).get("persistentVolumeReclaimPolicy")
        return plain(name), policy if isinstance(policy, str) else None

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
            name=metadata["name"],
            words=seen.words,
            taken=seen.taken,
            created_at=instant(metadata.get("creationTimestamp")),
        )

    def refused_image(self, source: AtProvider) -> str | None:
        """Implement `Imaging.refused_image`: any image that the cluster can pull, with sh and python3."""
        return "a cluster has no templates: name an image" if source.template else None

    # --- what can be had, and what is left

    async def offers(self, wish: Wish) -> Sequence[Offer]:
        """Implement `Market.offers`: the GPUs that the owner's configuration names.

        Whether the cluster has room for them is known only once a pod is requested.
        """
        notes = await self._notes(wish)
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

    async def _notes(self, wish: Wish) -> tuple[str, ...]:
        queue = self._where.queue
        volumes = wish.volumes_at("kubernetes")
        claims = [await self._claim(volume.mark) for volume in volumes]
        stays = [await self._may_stay(claim) for claim in claims if claim is not None]
        return (
            "nothing outlives the pod but its volumes"
            if volumes and self._where.claim is None
            else await self._survival(),
            *filter(None, stays),
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
        claim = await self._claim(name)
        if claim is None:
            raise ProviderTrouble(
                f"there is no claim {name!r} in {self._where.namespace}, and a pod would wait for it forever",
                remedy="make the claim, or name another as `claim` in [kubernetes]",
            )
        volume = claim.get("spec", {}).get("volumeName")
        if not volume:
            return f"{path} outlives the pod, on the claim {name}; its volume is yet to be made"
        try:
            _, policy = await self._disk_of(claim)
            if policy is None and (stays := await self._may_stay(claim)) is not None:
                return f"{path} outlives the pod, on the claim {name}; {stays}"
            policy = policy or await self._class_policy(claim)
        except ProviderTrouble as trouble:
            return (
                f"{path} outlives the pod, on the claim {name}; whether its disk outlives the claim is unknown "
                f"({trouble.message})"
            )
        after = {
            "Retain": "its disk outlives the claim, too, and continues to bill (reclaim policy Retain)",
            "Delete": "whoever deletes the claim deletes its disk, too (reclaim policy Delete)",
        }.get(str(policy), f"its reclaim policy is {quote_text(str(policy))}")
        return f"{path} outlives the pod, on the claim {name}: {after}"

    async def leftovers(self) -> Sequence[Leftover]:
        """Implement `Residue.leftovers`: claims of the namespace that no pod mounts, and disks that outlived a claim."""
        where = {"namespace": self._where.namespace}
        claims, pods = await asyncio.gather(
            self._claims(), self._calls.pages("CoreV1Api", "list_namespaced_pod", **where)
        )
        used = {claim for pod in pods if not _is_over(pod) for claim in claims_of(pod)}
        found = [
            Leftover(
                provider="kubernetes",
                kind="volume",
                id=claim["metadata"]["uid"],
                name=plain(claim["metadata"]["name"]),
                mark=None,
                size_gb=claimed_gib(claim),
                usd_month=self._rate_of(claim),
            )
            for claim in claims
            if claim["metadata"]["name"] not in used
        ]
        return [*found, *await self._kept_disks()]

    async def _kept_disks(self) -> list[Leftover]:
        """Return the disks whose claim in this namespace is gone. Empty if this login may not list disks."""
        try:
            disks = await self._calls.pages("CoreV1Api", "list_persistent_volume")
        except CredentialRefused:
            return []
        return [
            Leftover(
                provider="kubernetes",
                kind="disk",
                id=plain(_name(disk)),
                name=plain(str(disk["spec"]["claimRef"].get("name"))),
                mark=None,
                size_gb=gib(disk["spec"].get("capacity", {}).get("storage")),
                usd_month=None,
            )
            for disk in disks
            if disk.get("status", {}).get("phase") in ("Released", "Failed")
            and disk.get("spec", {}).get("claimRef", {}).get("namespace") == self._where.namespace
        ]


def connect(setting: Setting) -> KubernetesConnector | None:
    """Return the connector for the cluster of `[kubernetes]`. None if the configuration names no cluster.

    Errors in that table are raised by the connector's calls.
    """
    return KubernetesConnector(setting) if is_named(setting.state / "config.toml") else None


def _where(box_id: str | None) -> tuple[str, str, str]:
    """Return namespace, name and uid of the Job from our id of a box."""
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


def _legible(claim: Shown) -> None:
    """Check that the needed fields of a claim can be read.

    Raises:
        ValueError: the claim does not show its name.
    """
    metadata = claim["metadata"]
    if not all(isinstance(metadata[name], str) and metadata[name] for name in ("name", "uid")):
        raise ValueError("a claim does not tell its name")
    metadata.get("labels", {}).get(MARK), claim["spec"].get("volumeName"), claimed_gib(claim)


def _name(shown: Shown) -> str:
    return str(shown["metadata"]["name"])


def _uid(shown: Shown) -> str:
    return str(shown["metadata"]["uid"])


def _claims_in_use(shown: Shown) -> tuple[str, ...]:
    """Return the claims that a pod has, or that a Job's pods have or will have. Empty once the pod or Job is over."""
    _name(shown)
    template = shown["spec"].get("template")
    over = _is_over(shown) if template is None else has_ended(shown)
    return () if over else tuple(dict.fromkeys(claims_of(template or shown)))


def _is_over(pod: Shown) -> bool:
    """Whether nothing of the pod runs any more, or ever will."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _gpus(shown: Shown) -> int:
    """Return how many GPUs a Job of ours asks for."""
    template: Mapping[str, Any] = shown["spec"]["template"]["spec"]
    limits = (box.get("resources", {}).get("limits", {}) for box in template["containers"])
    return sum(int(each.get("nvidia.com/gpu", 0)) for each in limits)
