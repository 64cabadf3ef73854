"""Builds the command lines that start one job on several boxes together, and records which boxes take part."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gpu_tenant.domain import timeline
from gpu_tenant.domain.choices import Launcher
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.model import LeaseId
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.timeline import Lines

_MODULES: dict[Launcher, str] = {
    "torchrun": "torch.distributed.run",
    "accelerate": "accelerate.commands.launch",
}
_NOT_A_SCRIPT = {"python", "python3", "torchrun", "accelerate", "deepspeed"}


@dataclass(frozen=True, slots=True)
class Node:
    """One of several boxes, and the address at which the others reach it."""

    lease: LeaseId
    address: str
    interface: str
    processes: int
    """How many worker processes run on the box."""
    gpus: int
    infiniband: Literal["active", "none"]


class Gang(Record):
    """One job that runs on several leases together, and has the same name on each."""

    job: str
    launcher: Launcher
    leases: tuple[str, ...]
    """The leases in the order of their ranks. The first has rank 0."""
    command: str
    """The script with its arguments, as requested."""
    lines: tuple[str, ...]
    interface: str

    def others(self, lease: str) -> tuple[str, ...]:
        """Return all leases except that one."""
        return tuple(name for name in self.leases if name != lease)

    @property
    def stop(self) -> str:
        """The command that ends the job on all its leases."""
        return str(Command("stop", *self.leases, job=self.job))


def gangs(events: Lines) -> list[Gang]:
    """Return the gangs that are recorded in a lease's timeline, oldest first."""
    return [
        Gang.model_validate(event.model_dump())
        for _, event in events
        if isinstance(event, timeline.Together)
    ]


def lines(
    nodes: Sequence[Node],
    command: str,
    *,
    launcher: Launcher,
    run_id: str,
    port: int,
    pythons: Sequence[str],
) -> tuple[str, ...]:
    """Build one command line for each node, in the order of the nodes: environment, launcher, then `command`.

    The rendezvous is static: the first node has rank 0 and is the master. So it is known in advance on which box
    rank 0 writes its files. The nodes use addresses, so they need not resolve each other's host names. `pythons` has
    the Python of each node. It runs the launcher as a module (`-m`), because a `torchrun` on PATH may belong to another
    environment than the prepared one.

    Raises:
        BadRequest: there are fewer than two nodes, the command is not a script, or the nodes differ in something
        that must be equal for the launcher.
    """
    if len(nodes) < 2:
        raise BadRequest(
            "one job over several boxes needs two leases or more",
            remedy=f"name all the leases: {Command('launch', 'LEASE', 'LEASE', together='torchrun', artifact='out/', then='train.py')}",
        )
    _must_be_script(command, launcher)
    first = nodes[0]
    if launcher == "accelerate" and not all(node.gpus for node in nodes):
        raise BadRequest(
            "accelerate starts several processes on GPUs only, but a node shows no GPU",
            remedy="use --together torchrun: accelerate's own library runs under it as well",
        )
    if launcher == "accelerate" and len({node.processes for node in nodes}) > 1:
        unlike = ", ".join(f"{node.processes} on {node.lease}" for node in nodes)
        raise BadRequest(
            f"accelerate divides its processes evenly, but there are {unlike}",
            remedy="say --per-node N with a number that every node has, or --together torchrun",
        )
    made = []
    for rank, (node, python) in enumerate(zip(nodes, pythons, strict=True)):
        if launcher == "torchrun":
            options = [
                f"--nnodes={len(nodes)}",
                f"--node-rank={rank}",
                f"--nproc-per-node={node.processes}",
                "--rdzv-backend=static",
                f"--rdzv-id={run_id}",
                f"--rdzv-endpoint={_endpoint(first.address, port)}",
                f"--master-addr={first.address}",
                f"--master-port={port}",
            ]
        else:
            options = [
                "--multi_gpu",
                f"--num_machines={len(nodes)}",
                f"--num_processes={sum(each.processes for each in nodes)}",
                f"--machine_rank={rank}",
                f"--main_process_ip={first.address}",
                f"--main_process_port={port}",
                "--rdzv_backend=static",
                "--same_network",
            ]
        words = [*environment(nodes, node), python, "-m", _MODULES[launcher], *options]
        made.append(f"{' '.join(shlex.quote(word) for word in words)} {command}")
    return tuple(made)


def environment(nodes: Sequence[Node], node: Node) -> list[str]:
    """Return the variables that the libraries (NCCL, Gloo) need on that node, as `env NAME=VALUE ...`.

    Without them the libraries use the interface to which the host's name resolves. In a container this is often
    loopback, or a bridge whose address is the same on every machine. InfiniBand is used by all nodes or by none: if
    only some nodes use it, they wait for each other for ever.
    """
    told = {
        # NCCL reads the value as a prefix; a leading `=` makes it an exact name. Gloo takes the exact name.
        "NCCL_SOCKET_IFNAME": f"={node.interface}",
        "GLOO_SOCKET_IFNAME": node.interface,
        "TP_SOCKET_IFNAME": node.interface,
        "NCCL_SOCKET_FAMILY": "AF_INET6" if ":" in node.address else "AF_INET",
    }
    if any(each.infiniband == "none" for each in nodes):
        told["NCCL_IB_DISABLE"] = "1"
    return ["env", *(f"{name}={value}" for name, value in told.items())]


def _endpoint(address: str, port: int) -> str:
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def _must_be_script(command: str, launcher: Launcher) -> None:
    try:
        first = next(iter(shlex.split(command)), "")
    except ValueError:
        first = ""
    if not first or first.rpartition("/")[2] in _NOT_A_SCRIPT:
        what = f"{first!r} is not a script" if first else "the command is empty"
        raise BadRequest(
            f"{what}: {launcher} starts python by itself",
            remedy="give the script and its arguments, as in `-- train.py --epochs 12`; the launcher's options come before `--`",
        )
