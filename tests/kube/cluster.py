"""A real Kubernetes of one node: API server, scheduler and controllers as Debian's sources have them.

They are built by `tests/kube/build`. The node is ours: what a kubelet does for a pod is done here, with a
process in namespaces of its own for each container, and exec is served by the kubelet's own code.
"""

import base64
import contextlib
import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast
from urllib.request import urlopen

from arranged import PATIENCE_S
from kubernetes import client, config
from parts import lacks, required, root_required

from gpu_tenant.domain.model import PodAddress
from gpu_tenant.providers.kubernetes import job_manifest
from gpu_tenant.providers.kubernetes.job_manifest import CONTAINER, job

BUILT = Path(os.environ.get("GPU_TENANT_KUBE") or Path.home() / ".cache/gpu-tenant/kube-1.20.2")
PROGRAMS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "lab-exec",
)
NODE, CONTEXT, GPUS = "lab", "lab", 8
CONTROLLERS = (
    "job,resourcequota,garbagecollector,nodelifecycle,podgc,ttl-after-finished,namespace,"
    "persistentvolume-binder,pvc-protection,pv-protection"
)
IMAGE = "lab/box:1"
"""What runs here. A pod of another image is placed, and then is the test's own to give a status."""


class Cluster:
    """Everything that a cluster is, each a process of ours, in one folder of their own."""

    def __init__(self, directory: Path) -> None:
        if not all((BUILT / name).is_file() for name in PROGRAMS):
            lacks("a Kubernetes", "make kube")
        required("openssl", "mount")
        root_required()
        self.directory = directory
        self.kubeconfig = directory / "kubeconfig"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._over = threading.Event()
        self._node: Node | None = None

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._node is not None:
            self._node.close()
        for process in reversed(self._processes):
            process.kill()
            process.wait()

    # --- what tests ask of it

    def kubectl(self, *argv: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """What kubectl did and said."""
        return subprocess.run(
            [BUILT / "kubectl", f"--kubeconfig={self.kubeconfig}", *argv],
            input=stdin,
            capture_output=True,
            check=False,
            timeout=120,
        )

    def pod(self, job: str) -> Any:
        """The newest pod of that Job, when there is one; asserted."""
        # Not by its name: a pod that an earlier Job of that name left is on its way out.
        selected = f"controller-uid={self.batch.read_namespaced_job(job, 'default').metadata.uid}"

        def newest() -> Any:
            found = self.core.list_namespaced_pod("default", label_selector=selected).items
            return max(found, key=lambda each: each.metadata.creation_timestamp, default=None)

        assert eventually(lambda: newest() is not None)
        return newest()

    def status(self, pod: str, **status: object) -> None:
        """The kubelet of the pod's node says so; `pod` is one that nothing runs in."""
        self.core.patch_namespaced_pod_status(pod, "default", {"status": status})

    def expired(self, cursor: str) -> str:
        """The same place of a list, at a revision that the store has forgotten."""
        place = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        self._forget()
        return (
            base64.urlsafe_b64encode(json.dumps({**place, "rv": 1}).encode()).decode().rstrip("=")
        )

    def container(self, pod: str) -> "Container":
        """What runs for that pod."""
        assert self._node is not None
        running = self._node.running
        assert eventually(lambda: f"default_{pod}" in running)
        return running[f"default_{pod}"]

    @contextlib.contextmanager
    def box(self) -> "Iterator[tuple[PodAddress, Container]]":
        """A pod as the connector orders it, and the way to it; gone afterwards."""
        where = job_manifest.Cluster(context=CONTEXT, image=IMAGE, gpus=("A100 SXM 80GB:1",))
        name = secrets.token_hex(4)
        ordered = job(f"gpu-tenant:0a1b2c:kube-{name}", where, gpu_count=1)
        made = self.batch.create_namespaced_job("default", ordered)
        pod = self.pod(made.metadata.name).metadata.name
        container = self.container(pod)
        try:
            yield self.address(pod), container
        finally:
            container.kill()
            self.batch.delete_namespaced_job(
                made.metadata.name, "default", propagation_policy="Background"
            )

    def address(self, pod: str) -> PodAddress:
        """The way to that pod."""
        return PodAddress(
            context=CONTEXT,
            namespace="default",
            pod=pod,
            container=CONTAINER,
            kubeconfig=str(self.kubeconfig),
        )

    @property
    def execs_from(self) -> int:
        """The process that begins every command in a container."""
        return self._processes[-1].pid

    # --- its parts

    def _start(self) -> None:
        at = self.directory
        peers, etcd, api, exec_port = _free_ports(4)
        self._etcd = f"http://127.0.0.1:{etcd}"
        self._run(
            "etcd",
            f"--data-dir={at}/etcd",
            f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
            "--unsafe-no-fsync",
        )
        subprocess.run(
            ["openssl", "genrsa", "-out", at / "accounts.key", "2048"],
            check=True,
            capture_output=True,
        )
        (at / "tokens").write_text(
            "lab-token,admin,1,system:masters\nweak,weak,2\n", encoding="utf-8"
        )
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            f"--secure-port={api}",
            "--bind-address=127.0.0.1",
            "--insecure-port=0",
            f"--cert-dir={at}/certificates",
            f"--token-auth-file={at}/tokens",
            "--authorization-mode=RBAC",
            f"--service-account-key-file={at}/accounts.key",
            f"--service-account-signing-key-file={at}/accounts.key",
            "--service-account-issuer=https://lab",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--disable-admission-plugins=ServiceAccount",
            "--max-requests-inflight=800",
            "--enable-priority-and-fairness=false",
            "--kubelet-preferred-address-types=InternalIP",
            "--watch-cache=false",
        )
        self._wait_for((at / "certificates/apiserver.crt").exists)
        self._write(api)
        made: Any = cast("Any", config).new_client_from_config(
            str(self.kubeconfig), context=CONTEXT
        )
        self.core: Any = client.CoreV1Api(made)
        self.batch: Any = client.BatchV1Api(made)
        self._wait_for(self._answers)
        for name, more in (
            (
                "kube-controller-manager",
                [
                    f"--controllers={CONTROLLERS}",
                    # A class of `kubernetes.io/host-path` makes a directory of this computer for each claim.
                    "--enable-hostpath-provisioner",
                    "--pvclaimbinder-sync-period=1s",
                    "--node-monitor-grace-period=5s",
                    "--node-monitor-period=1s",
                    "--pod-eviction-timeout=1s",
                ],
            ),
            ("kube-scheduler", []),
        ):
            self._run(
                name,
                f"--kubeconfig={self.kubeconfig}",
                "--leader-elect=false",
                "--port=0",
                "--secure-port=0",
                *more,
            )
        boxes = at / "boxes"
        boxes.mkdir()
        self._run("lab-exec", str(boxes), f"127.0.0.1:{exec_port}")
        self._wait_for(lambda: _listens(exec_port))
        self._node = Node(self.core, boxes, exec_port, self._over)
        self._node.join()

    def _forget(self) -> None:
        """The store keeps no revision but the newest."""
        newest = self.core.list_namespace().metadata.resource_version
        asked = json.dumps({"revision": newest, "physical": True}).encode()
        with urlopen(f"{self._etcd}/v3/kv/compaction", asked, timeout=120) as answer:
            assert answer.status == 200

    def _answers(self) -> bool:
        try:
            return bool(self.core.read_namespace("default"))
        except Exception:  # noqa: BLE001 - it is not up yet, however it says so
            return False

    def _run(self, program: str, *argv: str) -> None:
        with (self.directory / f"{program}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [BUILT / program, *argv],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )

    def _wait_for(self, true: Callable[[], bool]) -> None:
        if not eventually(true):
            logs = sorted(self.directory.glob("*.log"))
            raise AssertionError(
                "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in logs)
            )

    def _write(self, port: int) -> None:
        text = f"""\
apiVersion: v1
kind: Config
current-context: {CONTEXT}
clusters:
- {{name: lab, cluster: {{server: "https://127.0.0.1:{port}", certificate-authority: "{self.directory}/certificates/apiserver.crt"}}}}
contexts:
- {{name: {CONTEXT}, context: {{cluster: lab, user: admin}}}}
- {{name: weak, context: {{cluster: lab, user: weak}}}}
users:
- {{name: admin, user: {{token: lab-token}}}}
- {{name: weak, user: {{token: weak}}}}
"""
        self.kubeconfig.write_text(text, encoding="utf-8")


class Node:
    """What a kubelet does for its pods: begins them, says how they are, ends them."""

    def __init__(self, core: Any, boxes: Path, exec_port: int, over: threading.Event) -> None:
        self._core, self._boxes, self._exec_port, self._over = core, boxes, exec_port, over
        self.running: dict[str, Container] = {}
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def join(self) -> None:
        """The node is in the cluster, ready, with GPUs."""
        self._core.create_node({"metadata": {"name": NODE}})
        self._beat()
        self._thread.start()
        assert eventually(lambda: not self._core.read_node(NODE).spec.taints), "it takes no pods"

    def close(self) -> None:
        """Nothing of it runs."""
        if self._thread.is_alive():
            self._thread.join(10)
        for container in self.running.values():
            container.kill()

    def _beat(self) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        there = {
            "cpu": "64",
            "memory": "256Gi",
            "pods": "500",
            "nvidia.com/gpu": str(GPUS),
            "ephemeral-storage": "1Ti",
        }
        status = {
            "capacity": there,
            "allocatable": there,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._exec_port}},
            "conditions": [
                {
                    "type": kind,
                    "status": is_so,
                    "reason": "Lab",
                    "message": "",
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
                for kind, is_so in (
                    ("Ready", "True"),
                    ("MemoryPressure", "False"),
                    ("DiskPressure", "False"),
                    ("PIDPressure", "False"),
                )
            ],
        }
        self._core.patch_node_status(NODE, {"status": status})

    def _serve(self) -> None:
        beaten = time.monotonic()
        while not self._over.wait(0.05):
            try:
                if time.monotonic() - beaten > 1:
                    self._beat()
                    beaten = time.monotonic()
                here = f"spec.nodeName={NODE}"
                for pod in self._core.list_pod_for_all_namespaces(field_selector=here).items:
                    self._look(pod)
            except Exception:  # noqa: BLE001 - the next look finds what is left to do
                if self._over.is_set():
                    return

    def _look(self, pod: Any) -> None:
        name = f"{pod.metadata.namespace}_{pod.metadata.name}"
        container = self.running.get(name)
        if pod.metadata.deletion_timestamp:
            if container is not None and not container.is_over(
                pod.metadata.deletion_grace_period_seconds
            ):
                return
            self._core.delete_namespaced_pod(
                pod.metadata.name, pod.metadata.namespace, grace_period_seconds=0
            )
            self.running.pop(name, None)
            shutil.rmtree(self._boxes / name, ignore_errors=True)
        elif (
            pod.status.phase == "Pending"
            and container is None
            and pod.spec.containers[0].image == IMAGE
        ):
            self.running[name] = Container(
                self._boxes / name, pod.spec.containers[0].command, self._disks_of(pod)
            )
            self._say(pod, "Running", {"running": {"startedAt": None}}, "True")
        elif pod.status.phase == "Running" and container is not None:
            code = container.code
            if code is not None:
                ended = {"exitCode": code, "reason": "Error" if code else "Completed"}
                self._say(pod, "Failed" if code else "Succeeded", {"terminated": ended}, "False")

    def _disks_of(self, pod: Any) -> dict[str, str]:
        """By the path in the container, the directory that stands for each disk that the pod claims."""
        at = {mount.name: mount.mount_path for mount in pod.spec.containers[0].volume_mounts or []}
        found = {}
        for each in pod.spec.volumes or []:
            if each.persistent_volume_claim is not None:
                claim = self._core.read_namespaced_persistent_volume_claim(
                    each.persistent_volume_claim.claim_name, pod.metadata.namespace
                )
                disk = self._core.read_persistent_volume(claim.spec.volume_name)
                found[at[each.name]] = disk.spec.host_path.path
        return found

    def _say(self, pod: Any, phase: str, state: Mapping[str, object], ready: str) -> None:
        spec = pod.spec.containers[0]
        status = {
            "phase": phase,
            "podIP": "127.0.0.1",
            "startTime": pod.metadata.creation_timestamp.isoformat(),
            "conditions": [
                {"type": kind, "status": ready} for kind in ("Ready", "ContainersReady")
            ],
            "containerStatuses": [
                {
                    "name": spec.name,
                    "state": state,
                    "ready": ready == "True",
                    "restartCount": 0,
                    "image": spec.image,
                    "imageID": spec.image,
                    "containerID": f"lab://{pod.metadata.uid}",
                }
            ],
        }
        self._core.patch_namespaced_pod_status(
            pod.metadata.name, pod.metadata.namespace, {"status": status}
        )


class Container:
    """A process with process ids and mounts of its own, in which it is the first."""

    def __init__(self, at: Path, command: Sequence[str], disks: Mapping[str, str]) -> None:
        # The paths are there already: what is made here stays on this computer.
        mounting = [f"mount --bind {shlex.quote(d)} {shlex.quote(p)} &&" for p, d in disks.items()]
        self.home = home = at / "home"
        home.mkdir(parents=True)
        environ = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "GPU_TENANT_NO_POWEROFF": "1",
        }
        (at / "environ").write_text(
            "\n".join(f"{k}={v}" for k, v in environ.items()), encoding="utf-8"
        )
        self._process = subprocess.Popen(
            [
                "unshare",
                "--mount",
                "--pid",
                "--fork",
                "--mount-proc",
                "--kill-child=KILL",
                "--",
                *("sh", "-c", f'{" ".join(mounting)} exec "$@"', "sh"),
                *command,
            ],
            cwd=home,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._told_at: float | None = None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        assert eventually(lambda: children.read_text(encoding="utf-8").split())
        self.pid = int(children.read_text(encoding="utf-8").split()[0])
        # What enters before it has a /proc of its own would see this computer's.
        assert eventually(
            lambda: Path(f"/proc/{self.pid}/comm").read_text(encoding="utf-8") != "unshare\n"
        )
        mounted = Path(f"/proc/{self.pid}/mountinfo")
        assert eventually(
            lambda: all(f" {path} " in mounted.read_text(encoding="utf-8") for path in disks)
        )
        (at / "pid").write_text(str(self.pid), encoding="utf-8")

    @property
    def code(self) -> int | None:
        """How it ended, as a shell says; None while it runs."""
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def is_over(self, grace_s: float | None) -> bool:
        """Whether it has ended; it is told to, and made to when the grace is over."""
        if self.code is not None:
            return True
        if self._told_at is None:
            self._told_at = time.monotonic()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
        if time.monotonic() - self._told_at > (grace_s or 0):
            self.kill()
        return False

    def kill(self) -> None:
        """It and all in it are gone."""
        self._process.kill()
        self._process.wait()


def eventually(true: Callable[[], object], *, within_s: float = PATIENCE_S) -> bool:
    """Whether that came true in time."""
    give_up = time.monotonic() + within_s
    while not true():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.02)  # noqa: TID251 - between two looks at the real world
    return True


def _free_ports(count: int) -> Iterator[int]:
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        ports = [int(probe.getsockname()[1]) for probe in probes]
    return iter(ports)


def _listens(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
