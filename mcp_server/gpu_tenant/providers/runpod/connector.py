"""Boxes at RunPod: pods, made and ended through its REST API, version 2."""

import re
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Literal

from gpu_tenant.domain.address import ssh_address
from gpu_tenant.domain.billing import Balance, Billed
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    BadRequest,
    CredentialRefused,
    NoCapacity,
    ProviderSilent,
    ProviderTrouble,
    Rejected,
)
from gpu_tenant.domain.model import MARK_PREFIX, Box, BoxId, BoxState, Lease, SshAddress
from gpu_tenant.domain.offers import USD_STEP, Attachable, Leftover, Offer, Price, Wish, sane
from gpu_tenant.domain.order import AtProvider, Order
from gpu_tenant.domain.permit import (
    TeardownPermit,
    VolumePermit,
    genuine,
    genuine_for_volume,
)
from gpu_tenant.domain.ports import Asking, Setting, find_marked, wanted_quote
from gpu_tenant.domain.timestamps import instant
from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.domain.volumes import ListedVolume, Volume
from gpu_tenant.providers.drift import Drift
from gpu_tenant.providers.gpu_catalog import known_gpu
from gpu_tenant.providers.http_client import Json, Reply, Wire, counted_gpus, figure, words
from gpu_tenant.providers.list_rows import Subject, must_be_whole, read_each
from gpu_tenant.providers.patience import NOT_NOW, insist_on_delete
from gpu_tenant.providers.response_limits import Leafing, silent
from gpu_tenant.providers.runpod.billing import (
    GRAPHQL,
    MYSELF,
    PODS,
    WHO,
    asks_last_change,
    balance,
    cost,
    in_time,
    last_change,
    leftover,
    owner,
    standard_usd_month,
)

Object = dict[str, Json]
Urgency = Literal["", "teardown"]

_IMAGE = "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404"
"""RunPod's own image. It starts sshd, and authorizes the key in `PUBLIC_KEY`."""

_CUDA = "12.8"
"""The lowest CUDA version that the image runs on. A host with an older driver would never start the image."""

_STARTS_SSHD = (
    "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin; "
    'has() { command -v "$1" >/dev/null 2>&1; }; wanted="openssh-server python3"; '
    "has sshd && has python3 || if has apt-get; then apt-get update; "
    "DEBIAN_FRONTEND=noninteractive apt-get install -y $wanted; "
    "elif has apk; then apk add --no-cache openssh python3; "
    "elif has microdnf; then microdnf install -y $wanted; "
    "elif has dnf; then dnf install -y $wanted; else yum install -y $wanted; fi; "
    'mkdir -p "$HOME/.ssh" /run/sshd; chmod 700 "$HOME/.ssh"; '
    'echo "$PUBLIC_KEY" >>"$HOME/.ssh/authorized_keys"; '
    'env | grep -E "^[A-Za-z_][A-Za-z0-9_]*=" '
    '| grep -vE "^(HOME|PWD|OLDPWD|SHLVL|_|PUBLIC_KEY|wanted)=" >"$HOME/.ssh/environment"; '
    'chmod 600 "$HOME/.ssh/authorized_keys" "$HOME/.ssh/environment"; ssh-keygen -A; '
    'exec "$(command -v sshd)" -D -e -o PermitUserEnvironment=yes'
)
"""The start command for an image that lacks RunPod's sshd.

It installs sshd with the image's own package manager. A login gets the image's variables, such as the PATH with its
python. The command contains no `'`, because it is put between two of them.
"""
_OWN_IMAGES = "runpod/"

_LEAST_VOLUME_GB, _CONTAINER_GB = 10, 20
"""The smallest volume that can be asked for, and RunPod's own size of a container's disk, which holds the home."""

_PROXY_S = 100
"""RunPod's proxy ends an HTTP request that takes longer than this many seconds."""

_VOLUMES = "/v2/network-volumes"

_MONTH_H = 720
"""The hours of the shortest month, so that the price shown is never less than the bill."""

_DISK_USD_MONTH = Decimal("0.10")
_STOPPED_USD_MONTH = Decimal("0.20")
_SETUP_S = 180.0
_CLOUDS = ("SECURE", "COMMUNITY")

_FULL = re.compile(
    r"no longer any instances available|enough disk space|not enough free gpus", re.IGNORECASE
)
"""A lack of capacity has no code of its own. These texts in a 400 mean it."""

_SURE = (400, 404, 405, 422)
"""Statuses of a refused create after which no pod exists. Any other status leaves that unclear."""


class RunpodConnector:
    """One account at RunPod."""

    has_registry_logins = True
    has_strangers = True

    def __init__(self, setting: Setting) -> None:
        self._states = setting.profile.states
        self._public_key = setting.public_key
        self._clock = setting.clock
        self._drift = Drift(setting)
        self._wire = Wire(
            drift=self._drift,
            title=setting.profile.title,
            base_url=setting.api("https://api.runpod.io", variable="RUNPOD_API_BASE_URL"),
            credential=setting.credential,
            clock=setting.clock,
        )

    # --- boxes

    async def create(self, lease: Lease) -> Box:
        """Implement `Connector.create`. Raises NoCapacity also if this account may not use this GPU there."""
        quote = wanted_quote(lease)
        if ours := find_marked(lease, await self.list_boxes()):
            return ours
        order = self._order(lease.mark, quote.offer.id, quote.wish)
        try:
            reply = await self._post(order)
        except Rejected as no:
            if no.status != 422 or "entrypoint" not in order or "entrypoint" not in no.body:
                raise _refusal(no) from no
            del order["entrypoint"]
            try:
                reply = await self._post(order)
            except Rejected as again:
                raise _refusal(again) from again
        if reply.status == 403 and '"title"' not in reply.text:
            # A 403 without a title comes from the firewall in front of the API, which refuses this client.
            raise self._wire.trouble("POST", "/v2/pods", reply)
        if reply.status == 403:
            raise NoCapacity(
                f"this account may not have {quote.offer.gpu} there: {words(reply.text)}",
                remedy="take another offer; if every offer is refused in this way, the key may not create pods",
            )
        return self._box(reply.fields)

    async def _post(self, order: Object) -> Reply:
        return await self._wire.call("POST", "/v2/pods", body=order, expect=(200, 201, 202, 403))

    async def list_boxes(self) -> Sequence[Box]:
        """Implement `Connector.list_boxes`, with the members of clusters. A terminated pod is not listed."""
        shown = [p for p in await self._pods() if p.get("status") != "TERMINATED"]
        return read_each("runpod", shown, self._box, _subject, self._drift)

    @property
    def ahead(self) -> timedelta | None:
        """Implement `Timekeeping.ahead`."""
        return self._wire.ahead

    def asked_with(self, salt: str) -> Asking:
        """Implement `Accounted.asked_with`."""
        return self._wire.asked_with(salt)

    async def account(self) -> str | None:
        """Implement `Accounted.account`, through the older API. Also None if the key may not use that API."""
        try:
            return owner((await self._wire.call("POST", GRAPHQL, body=WHO)).fields)
        except CredentialRefused:
            return None

    async def find_box(self, lease: Lease) -> Box | None:
        """Implement `Findable.find_box`. A 404 can also mean that this key may not see the pod."""
        reply = await self._wire.get(f"/v2/pods/{lease.box_id}", expect=(200, 404))
        if reply.status == 404 or reply.fields.get("status") == "TERMINATED":
            return None
        return self._box(reply.fields)

    async def destroy(self, permit: TeardownPermit) -> None:
        """Implement `Connector.destroy`."""
        permit = genuine(permit, provider="runpod")
        path = f"/v2/pods/{permit.box_id}"
        reply = await insist_on_delete(
            self._wire,
            path,
            clock=self._clock,
            words=f"RunPod does not end {permit.box_id} yet; it bills until then",
        )
        if reply.status in NOT_NOW:
            raise self._wire.trouble("DELETE", path, reply)
        # A 404 can mean that the pod is gone, or that this key may not see it.
        if reply.status == 404 and permit.box_id in {
            p.get("id") for p in await self._pods("teardown")
        }:
            raise self._wire.trouble("DELETE", path, reply)

    async def park(self, lease: Lease) -> None:
        """Implement `Parking.park`."""
        await self._act(lease, "stop", done=("EXITED",))

    async def resume(self, lease: Lease) -> None:
        """Implement `Parking.resume`. A pod stays on its host, and either starts there or waits.

        Its host may have rented out the GPU meanwhile, and start the pod without one. Such a pod is stopped again.
        """
        await self._act(lease, "start", done=("RUNNING", "STARTING", "PROVISIONING"))
        pod = (await self._wire.get(f"/v2/pods/{lease.box_id}")).fields
        if figure(_at(pod, "gpu", "count")) != 0:
            return
        try:
            await self.park(lease)
        except ProviderTrouble as trouble:
            # Any other error would say that it is parked as before.
            raise silent(
                f"RunPod has started {lease.box_id} without a GPU, and did not stop it again: {trouble.message}"
            ) from trouble
        raise NoCapacity(
            f"the GPU of {lease.id} is in use by somebody else now: RunPod started its pod without one, and it was "
            "stopped again",
            remedy=f"{Command('resume', lease.id)} tries again; its volume is kept, and bills",
        )

    async def _act(self, lease: Lease, action: str, *, done: Sequence[str]) -> None:
        """Tell the pod to do the action. A refusal is not an error if the pod has already done it."""
        pod = f"/v2/pods/{lease.box_id}"
        try:
            await self._wire.call(
                "POST",
                f"{pod}/action",
                body={"action": action},
                repeatable="repeatable",
                urgent="teardown" if action == "stop" else "",
            )
        except Rejected as no:
            if no.status in (400, 409) and _FULL.search(no.body):
                raise NoCapacity(
                    f"the GPU of {lease.id} is in use by somebody else now, and its host has no other:"
                    f" {words(no.body)}",
                    remedy=f"{Command('resume', lease.id)} tries again; its volume is kept, and bills",
                ) from no
            if no.status != 409 or (await self._wire.get(pod)).fields.get("status") not in done:
                raise

    def refused_image(self, source: AtProvider) -> str | None:
        """Implement `Imaging.refused_image`: any image of any registry, and any template, public or one's own."""
        return None

    def refused_ports(self, ports: Sequence[str]) -> str | None:
        """Implement `Publishing.refused_ports`: http through RunPod's proxy, and tcp at a port of the host."""
        return None

    # --- volumes

    def refused_volumes(self, volumes: Sequence[Attachable]) -> str | None:
        """Implement `Storing.refused_volumes`. The API accepts one network mount."""
        return "RunPod mounts one network volume on a pod" if len(volumes) > 1 else None

    def volume_usd_month(self, size_gb: int, region: str) -> Decimal | None:
        """Implement `Storing.volume_usd_month`."""
        return standard_usd_month(size_gb)

    async def create_volume(self, volume: Volume) -> ListedVolume:
        """Implement `Storing.create_volume`, in the standard tier, whose price is known."""
        if ours := next((v for v in await self.list_volumes() if v.name == volume.mark), None):
            return ours
        order: Object = {
            "name": volume.mark,
            "size": volume.size_gb,
            "dataCenter": volume.region,
            "type": "STANDARD",
        }
        try:
            reply = await self._wire.call("POST", _VOLUMES, body=order, expect=(201,))
        except Rejected as no:
            if no.status in (*_SURE, 402, 403):
                raise
            raise ProviderSilent(f"{no.message}; a volume may exist", remedy=no.remedy) from no
        return _listed_volume(reply.fields, ())

    async def list_volumes(self) -> Sequence[ListedVolume]:
        """Implement `Storing.list_volumes`."""
        pods = await self._pods()
        return [
            _listed_volume(v, [str(pod.get("id")) for pod in pods if v.get("id") in _mounts(pod)])
            for v in await self._every(_VOLUMES, "networkVolumes", {})
        ]

    async def grow_volume(self, volume: Volume, size_gb: int) -> None:
        """Implement `Growing.grow_volume`. RunPod refuses a smaller size."""
        path = f"{_VOLUMES}/{volume.volume_id}"
        await self._wire.call("PATCH", path, body={"size": size_gb}, repeatable="repeatable")

    async def destroy_volume(self, permit: VolumePermit) -> None:
        """Implement `Storing.destroy_volume`."""
        permit = genuine_for_volume(permit, provider="runpod")
        path = f"{_VOLUMES}/{permit.volume_id}"
        await self._wire.call(
            "DELETE", path, expect=(204, 404), repeatable="repeatable", urgent="teardown"
        )

    # --- asking

    def _order(self, mark: str, offer: str, wish: Wish) -> Object:
        """Return the body of a create."""
        cloud, count, gpu, places = _parts(offer)
        volumes = wish.volumes_at("runpod")
        return {
            "name": mark,
            **_source(wish.order),
            "cloud": cloud,
            "gpu": {"id": gpu, "count": count, **_cuda(wish.order)},
            **({"dataCenterIds": list(places)} if places else {}),
            # The work lies on the volume, which outlives a stop. So the requested disk size is the volume's.
            "disk": _container_gb(wish),
            "mounts": {"network": [{"volumeId": v.id, "path": v.path} for v in volumes]}
            if volumes
            else {"persistent": {"size": _volume_gb(wish.disk_gb), "path": "/workspace"}},
            "ports": ["22/tcp", *wish.order.public_ports],
            "startSsh": True,
            # The mark is in the environment, because the name can be changed in the console. Our key is there, too,
            # because we must not change the account's own keys.
            "env": {"GPU_TENANT_MARK": mark, "PUBLIC_KEY": self._public_key()},
        }

    def _box(self, pod: Object) -> Box:
        identity, status = pod.get("id"), pod.get("status")
        if not isinstance(identity, str) or not identity or not isinstance(status, str):
            raise _unreadable("a pod without an id or a status")
        state = self._states.get(status, BoxState.UNKNOWN)
        uptime_s = figure(_at(pod, "runtime", "uptime"))
        if state is BoxState.READY and uptime_s is None and _direct(pod) is None:
            state = BoxState.BOOTING  # its container has not started yet
        gpu = shown if isinstance(shown := pod.get("gpu"), dict) else {}
        return Box(
            provider="runpod",
            id=BoxId(identity),
            mark=_mark(pod),
            state=state,
            address=_direct(pod),
            price_usd_h=_price_usd_h(pod, state),
            name=name if isinstance(name := pod.get("name"), str) and name else None,
            gpus=counted_gpus(gpu.get("count"), gpu.get("id")),
            words=_words(pod, status, state),
            runs_since=self._clock.now() - timedelta(seconds=uptime_s)
            if uptime_s is not None and state is BoxState.READY
            else None,
            published=_published(pod) if state is BoxState.READY else (),
            created_at=instant(pod.get("createdAt")),
        )

    # --- what can be rented

    async def offers(self, wish: Wish) -> Sequence[Offer]:
        """Implement `Market.offers`, with one request for each of RunPod's two clouds that suits the wish."""
        if wish.interruptible == "yes":
            return []
        # Only its own data centers have network volumes.
        is_anywhere = wish.trust == "any" and not wish.volumes_at("runpod")
        clouds = _CLOUDS if is_anywhere else _CLOUDS[:1]
        if wish.offer is not None:
            try:
                cloud, count, _, _ = _parts(wish.offer)
            except BadRequest:
                return []
            if cloud not in clouds and not is_anywhere and wish.volumes_at("runpod"):
                return []
            clouds, wish = (cloud,), wish.model_copy(update={"gpu_count": count})
        found: list[Offer | None] = []
        for cloud in clouds:
            asked = {
                "include": "AVAILABILITY",
                "product": "POD",
                "count": str(wish.gpu_count),
                "cloud": cloud,
                **_cuda(wish.order),
            }
            gpus = (await self._wire.get("/v2/catalog/gpus", query=asked)).fields.get("gpus")
            found += [_offer(gpu, wish, cloud) for gpu in _objects(gpus, "GPUs")]
        return [offer for offer in found if offer is not None]

    async def leftovers(self) -> Sequence[Leftover]:
        """Implement `Residue.leftovers`: network volumes, which outlive every pod."""
        mounted = {volume for pod in await self._pods() for volume in _mounts(pod)}
        volumes = await self._every(_VOLUMES, "networkVolumes", {})
        return [leftover(volume) for volume in volumes if volume.get("id") not in mounted]

    async def ask_bill(self, lease: Lease) -> Billed | None:
        """Implement `Billing.ask_bill`."""
        now = self._clock.now()
        answer = await self._wire.get(PODS, query=in_time(lease, now))
        return cost(answer.fields, str(lease.box_id), now)

    async def balance(self) -> Balance | None:
        """Implement `Funded.balance`, through the older API, because this one has no call for it."""
        try:
            return balance((await self._wire.call("POST", GRAPHQL, body=MYSELF)).fields)
        except CredentialRefused as no:
            raise ProviderTrouble(
                "RunPod tells a balance by GraphQL alone, and this key may not use that",
                remedy="nothing else needs it; a key with GraphQL `Read only` may, and the console shows it",
            ) from no

    async def last_change(self, lease: Lease) -> str | None:
        """Implement `Chronicling.last_change`, through the older API, because this one does not report stops."""
        pod = str(lease.box_id)
        try:
            asked = await self._wire.call("POST", GRAPHQL, body=asks_last_change(pod))
        except CredentialRefused:
            return None
        return last_change(asked.fields, pod)

    async def _pods(self, urgent: Urgency = "") -> list[Object]:
        return await self._every("/v2/pods", "pods", {"includeClusterPods": "true"}, urgent)

    async def _every(
        self, path: str, name: str, query: dict[str, str], urgent: Urgency = ""
    ) -> list[Object]:
        """Return every item of that list, to its last page.

        Raises:
            ProviderSilent: a page failed, or the cursor to the next one is missing or wrong.
        """
        found: dict[str, Object] = {}
        seen: set[str] = set()
        leafing = Leafing(f"RunPod's list of {name}")
        while True:
            reply = await self._wire.get(path, query=query, urgent=urgent)
            fields = reply.fields
            for item in _objects(fields.get(name), name):
                found[str(item.get("id"))] = item
            pagination = fields.get("pagination")
            if pagination is None:
                must_be_whole(
                    f"RunPod's list of {name}",
                    fields,
                    len(found),
                    known=(name,),
                    drift=self._drift,
                )
                return list(found.values())
            if not isinstance(pagination, dict):
                self._drift.note("page", "pagination", fields)
                raise _unreadable(f"{name} with an unknown form of pagination")
            if pagination.get("hasNextPage") is False:
                return list(found.values())
            cursor = pagination.get("nextCursor")
            if not isinstance(cursor, str) or not cursor or cursor in seen:
                self._drift.note("page", "nextCursor", fields)
                raise _unreadable(f"a page of {name} that does not lead to the next")
            seen.add(cursor)
            leafing.turn(len(reply.text))
            query = {**query, "cursor": cursor}


# --- asking


def _source(order: Order) -> Object:
    """Return what a pod is started from. If the image is not RunPod's own, our start command installs sshd."""
    source = order.image_at("runpod")
    login: Object = {} if source.registry is None else {"registry": source.registry}
    if source.template is not None:
        return {"templateId": source.template, **login}
    if source.image is None:
        return {"image": _IMAGE}
    if source.image.startswith(_OWN_IMAGES):
        return {"image": source.image, **login}
    # `args` are the arguments of the image's ENTRYPOINT. `env` runs them, as no ENTRYPOINT would. Whether a create may
    # name an entrypoint is not known: if it may not, it is refused, and ordered again without.
    return {
        "image": source.image,
        "entrypoint": ["env"],
        "args": f"sh -c '{_STARTS_SSHD}'",
        **login,
    }


def _cuda(order: Order) -> dict[str, str]:
    """Return the lowest CUDA version that the host must have. Without an order, it is known only for our image."""
    if order.cuda is not None:
        return {"minCudaVersion": order.cuda}
    return {"minCudaVersion": _CUDA} if order.image_at("runpod") == AtProvider() else {}


# --- reading


def _refusal(no: Rejected) -> ProviderTrouble:
    """Return the error for a refused create."""
    if no.status == 400 and _FULL.search(no.body):
        return NoCapacity(
            f"RunPod has no such GPU free: {words(no.body)}",
            remedy=f"{Command('offers')} shows what there is now",
        )
    if no.status in _SURE:
        return no
    return ProviderSilent(
        f"{no.message}; a pod may exist",
        remedy=f"{Command('leases')} looks again; the meter of a box may be running",
    )


def _words(pod: Object, status: str, state: BoxState) -> str | None:
    if state in (BoxState.BROKEN, BoxState.UNKNOWN):
        return f"RunPod calls it {quote_text(status)}"
    if state is BoxState.READY and _price_usd_h(pod, state) is None:
        return "RunPod does not tell its price now"
    if state is BoxState.READY and figure(_at(pod, "gpu", "count")) == 0:
        return "RunPod has started it without a GPU"
    if state is BoxState.READY and _direct(pod) is None:
        return "it runs, and RunPod shows no public port for ssh: not every host of its community cloud has one"
    return None


def _published(pod: Object) -> tuple[str, ...]:
    """Return the pod's open ports, each with the address it has now. A tcp port has none until the pod runs."""
    asked, mapped = pod.get("ports"), _at(pod, "runtime", "ports")
    return tuple(
        _public_address(str(pod.get("id")), port, mapped)
        for port in (asked if isinstance(asked, list) else ())
        if isinstance(port, str) and port != "22/tcp"
    )


def _public_address(pod: str, port: str, mapped: Json) -> str:
    number, _, kind = port.partition("/")
    if kind == "http":
        at = f"https://{pod}-{number}.proxy.runpod.net"
        return f"{port} at {at}, which ends a request after {_PROXY_S} s"
    for row in mapped if isinstance(mapped, list) else ():
        if isinstance(row, dict) and str(row.get("private")) == number:
            return f"{port} at {row.get('ip')}:{row.get('public')}"
    return f"{port}, which has no address now"


def _mark(pod: Object) -> str | None:
    told = (pod.get("name"), _at(pod, "env", "GPU_TENANT_MARK"))
    return next((m for m in told if isinstance(m, str) and m.startswith(MARK_PREFIX)), None)


def _subject(pod: Object) -> Subject:
    return Subject.of_row(pod.get("id"), [pod.get("name"), _at(pod, "env", "GPU_TENANT_MARK")])


def _direct(pod: Object) -> SshAddress | None:
    """Return the address of the pod's own sshd. The proxy carries neither files nor commands."""
    user, host, port = (_at(pod, "ssh", "direct", key) for key in ("username", "host", "port"))
    if not (isinstance(user, str) and isinstance(host, str) and isinstance(port, int)):
        return None
    return ssh_address(f"{user}@{host}" if port == 22 else f"{user}@{host}:{port}")


def _price_usd_h(pod: Object, state: BoxState) -> Decimal | None:
    """Return what the pod costs now. RunPod's figure is for the compute alone, and 0.0 when the pod is stopped."""
    kept_gb, disk_gb = _at(pod, "mounts", "persistent", "size") or 0, pod.get("disk")
    if not isinstance(kept_gb, int) or not isinstance(disk_gb, int):
        return None
    if state is BoxState.PARKED:
        return (_STOPPED_USD_MONTH * kept_gb / _MONTH_H).quantize(USD_STEP)
    compute = _usd(pod.get("cost"))
    return (
        None if compute is None else (compute + _disk_usd_h(disk_gb + kept_gb)).quantize(USD_STEP)
    )


def _offer(gpu: Object, wish: Wish, cloud: str) -> Offer | None:
    """Return that GPU type in that cloud as an offer. None if it does not fit or is not available."""
    theirs, memory = gpu.get("id"), gpu.get("memory")
    if not isinstance(theirs, str):
        return None
    model = known_gpu(theirs)
    name = model.name if model else theirs
    vram_gib = figure(memory)
    within = _parts(wish.offer)[3] if wish.offer else ()
    part = "" if wish.offer else (wish.region or "").lower()
    places = [
        place
        for place, called in _places(gpu).items()
        if (place in within if within else part in f"{place} {called}".lower())
    ]
    volumes = wish.volumes_at("runpod")
    if volumes:
        # A pod can mount only a network volume of its own data center.
        places = [place for place in places if place == volumes[0].region]
    if part or volumes:
        within = tuple(places)
    identity = _id(cloud, wish.gpu_count, theirs, within)
    most = _at(gpu, "maxCount", cloud.lower())
    if (
        gpu.get("availability") in (None, "NONE")
        or gpu.get(cloud.lower()) is not True
        or (not places and (within or part or volumes))
        or wish.offer not in (None, identity)
        or gpu.get("manufacturer") != "NVIDIA"  # the image needs CUDA
        or not isinstance(most, int)
        or most < wish.gpu_count
        or wish.preference(name) is None
        or (wish.vram_gib is not None and (vram_gib is None or vram_gib < wish.vram_gib))
    ):
        return None
    each = _usd(_at(gpu, "price", cloud.lower()))
    kept_gb = 0 if volumes else _volume_gb(wish.disk_gb)
    disk_gb = _container_gb(wish) + kept_gb
    stop = (
        "a stop wipes everything but the volume"
        if volumes
        else f"a stop keeps /workspace ({kept_gb} GB) and wipes the home directory"
    )
    price = Price(
        gpu_usd_h=None if each is None else each * wish.gpu_count,
        disk_usd_h=_disk_usd_h(disk_gb),
        parked_usd_h=(_STOPPED_USD_MONTH * kept_gb / _MONTH_H).quantize(USD_STEP),
        upload_usd_gb=Decimal(0),
        download_usd_gb=Decimal(0),
        source="api",
    )
    return Offer(
        provider="runpod",
        id=identity,
        gpu=name,
        gpu_count=wish.gpu_count,
        vram_gib=vram_gib,
        region=", ".join(within) or None,
        price=price,
        disk_gb=kept_gb or disk_gb,
        interruptible=False,
        reliability=None,
        max_hours=None,
        trust="datacenter" if cloud == "SECURE" else "unverified",
        download_mbps=None,
        upload_mbps=None,
        setup_s=_SETUP_S,
        notes=tuple(
            filter(
                None,
                (
                    stop,
                    f"in {', '.join(places)}" if places else "",
                    "its host may have no public port for ssh; then it is given back after 3 min"
                    if cloud == "COMMUNITY"
                    else "",
                ),
            )
        ),
    )


def _id(cloud: str, count: int, gpu: str, places: Sequence[str]) -> str:
    """Return the offer's id: the cloud, the number of GPUs, the GPU, and the data centers if it is limited to some."""
    return f"{cloud}/{count}/{gpu}" + (f"/{','.join(places)}" if places else "")


def _parts(offer: str) -> tuple[str, int, str, tuple[str, ...]]:
    cloud, _, rest = offer.partition("/")
    count, _, rest = rest.partition("/")
    gpu, _, places = rest.partition("/")
    if cloud not in _CLOUDS or not count.isdigit() or not gpu:
        raise BadRequest(
            f"{quote_text(offer)} is not an offer of RunPod",
            remedy=f"{Command('offers')} shows what there is",
        )
    return cloud, int(count), gpu, tuple(places.split(",")) if places else ()


def _places(gpu: Object) -> dict[str, str]:
    """Return the data centers that have the GPU in stock now, and their names."""
    centers = gpu.get("dataCenters")
    return {
        str(center["id"]): str(center.get("name", ""))
        for center in (centers if isinstance(centers, list) else [])
        if isinstance(center, dict) and "id" in center and center.get("availability") != "NONE"
    }


def _mounts(pod: Object) -> list[Json]:
    """Return the network volumes that the pod uses."""
    network = _at(pod, "mounts", "network")
    return [_at(mount, "volumeId") for mount in network] if isinstance(network, list) else []


def _at(value: Json, *keys: str) -> Json:
    """Return the value at the end of `keys`. None if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _objects(value: Json, what: str) -> list[Object]:
    if not isinstance(value, list):
        raise _unreadable(f"no list of {what}")
    objects = [item for item in value if isinstance(item, dict)]
    if len(objects) != len(value):
        raise _unreadable(f"a list of {what} with something else in it")
    return objects


def _container_gb(wish: Wish) -> int:
    """Return the size of the container's disk. If there is a network volume, it has all the ordered space."""
    return max(_CONTAINER_GB, wish.disk_gb) if wish.volumes_at("runpod") else _CONTAINER_GB


def _listed_volume(volume: Object, boxes: Sequence[str]) -> ListedVolume:
    identity, place = volume.get("id"), volume.get("dataCenter")
    if not isinstance(identity, str) or not identity or not isinstance(place, str):
        raise _unreadable("a network volume without an id or a data center")
    told = leftover(volume)
    return ListedVolume(
        id=identity,
        name=told.name,
        region=place,
        size_gb=told.size_gb,
        usd_month=told.usd_month,
        boxes=tuple(boxes),
    )


def _volume_gb(disk_gb: int) -> int:
    return max(_LEAST_VOLUME_GB, disk_gb)


def _disk_usd_h(size_gb: int) -> Decimal:
    return (_DISK_USD_MONTH * size_gb / _MONTH_H).quantize(USD_STEP)


def _usd(value: Json) -> Decimal | None:
    """Return the price. None for zero, because nothing that runs is free."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        return None
    return sane(Decimal(str(value)))


def _unreadable(what: str) -> ProviderSilent:
    return ProviderSilent(
        f"RunPod answered with {what}; nothing can be concluded", remedy="try again in a minute"
    )


def connect(setting: Setting) -> RunpodConnector:
    """Return the connector for one account at RunPod."""
    return RunpodConnector(setting)
