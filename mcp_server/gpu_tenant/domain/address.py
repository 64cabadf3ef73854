"""The ways to reach a box, as frozen records: a local directory, an ssh target, a Slurm job, a pod."""

import re
from typing import Literal, NamedTuple

from pydantic import Field

from gpu_tenant.domain.record import Record


class LocalAddress(Record):
    """A box that is a private directory on this computer."""

    kind: Literal["local"] = "local"
    directory: str
    programs: str | None = Field(
        default=None,
        description="the directory whose programs come first on PATH there; only a rehearsal's box has one",
    )


class SshAddress(Record):
    """A box reached by ssh: `user@host[:port]`, or an alias from the owner's ssh config."""

    kind: Literal["ssh"] = "ssh"
    target: str


_NAME = r"[\w.%+][\w.%+-]*"
_TARGET = re.compile(
    rf"(?:(?P<user>[\w.%+][\w.%+:@-]*)@)?(?:\[(?P<literal>[\w.:%-]+)\]|(?P<host>{_NAME}))(?::(?P<port>[0-9]{{1,5}}))?"
)
"""No character is allowed that a shell interprets: a shell runs the owner's ProxyCommand, with the host name in it."""

_LONGEST_TARGET = 320
"""The longest target, in characters. A host name has at most 253."""


class Ssh(NamedTuple):
    """The parts of an ssh target."""

    user: str | None
    host: str
    port: int | None


def ssh_of(target: str) -> Ssh | None:
    """Split `user@host:port`, `user@[address]:port` or an alias. None if `target` is none of these.

    Letters, digits and `.-_:%+` are allowed, but no leading `-`, which ssh would take for an option.
    """
    told = _TARGET.fullmatch(target)
    if told is None:
        return None
    port = int(told["port"]) if told["port"] else None
    if port is not None and not 0 < port < 65536:
        return None
    return Ssh(told["user"], told["literal"] or told["host"], port)


def ssh_address(target: str) -> SshAddress | None:
    """Return the address for a target from outside, such as a provider's API. None if ssh would not accept it."""
    is_short = len(target) <= _LONGEST_TARGET
    return SshAddress(target=target) if is_short and ssh_of(target) else None


class SlurmAddress(Record):
    """A box that is a Slurm allocation. Each command enters it as a step of its job."""

    kind: Literal["slurm"] = "slurm"
    login: str | None = Field(description="the login node's ssh target; None: this computer")
    before: tuple[str, ...] = Field(description="put before each command of Slurm there")
    job: str = Field(
        description="the job's number for srun, which is another one for a task of an array"
    )
    directory: str = Field(
        description="of the lease; the allocation writes its id there when it starts"
    )

    @property
    def target(self) -> str:
        """The address in a few words."""
        return f"job {self.job} by {self.login}" if self.login else f"job {self.job}"


class PodAddress(Record):
    """A box that is a container of a pod, reached over the API of its cluster."""

    kind: Literal["pod"] = "pod"
    context: str = Field(description="in the kubeconfig")
    namespace: str
    pod: str
    container: str
    kubeconfig: str | None = Field(default=None, description="None: ~/.kube/config")

    @property
    def target(self) -> str:
        """The address in one word."""
        return f"{self.context}/{self.namespace}/{self.pod}"


Address = LocalAddress | SshAddress | SlurmAddress | PodAddress
