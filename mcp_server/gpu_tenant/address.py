"""The ways to a box, as frozen records: a directory here, an ssh target, an allocation of a scheduler."""

from typing import Literal

from pydantic import Field

from gpu_tenant.record import Record


class LocalAddress(Record):
    """A box that is a private directory on this computer."""

    kind: Literal["local"] = "local"
    directory: str


class SshAddress(Record):
    """A box reached by ssh: `user@host[:port]`, or an alias from the owner's ssh config."""

    kind: Literal["ssh"] = "ssh"
    target: str


class SlurmAddress(Record):
    """A box that is an allocation of Slurm, entered by a step of its job."""

    kind: Literal["slurm"] = "slurm"
    login: str | None = Field(description="the login node, as for ssh; None: it is this computer")
    before: tuple[str, ...] = Field(description="what stands before each command of Slurm there")
    job: str = Field(description="as srun takes it: a task of an array has a number of its own")
    directory: str = Field(description="the lease's, where the allocation signs in when it starts")

    @property
    def target(self) -> str:
        """Where it is, in a word."""
        return f"job {self.job} by {self.login}" if self.login else f"job {self.job}"


class PodAddress(Record):
    """A box that is a container of a pod, reached over the API of its cluster."""

    kind: Literal["pod"] = "pod"
    context: str = Field(description="of the kubeconfig")
    namespace: str
    pod: str
    container: str
    kubeconfig: str | None = Field(default=None, description="None: ~/.kube/config")

    @property
    def target(self) -> str:
        """Where it is, in a word."""
        return f"{self.context}/{self.namespace}/{self.pod}"


Address = LocalAddress | SshAddress | SlurmAddress | PodAddress
