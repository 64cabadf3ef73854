"""One way a job can end: its true cause, written down before it is produced."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gpu_tenant.jobs.failure_cause import BoxSeen, Verdict

Need = Literal["mounts", "memory", "pids", "network", "processes", "loop", "compiler"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A job, the box around it, what befalls it, and why it will have ended.

    In words `@ROOT@` is the case's own folder, `@WORK@` where the job works, `@GROUP@` its memory group.
    """

    name: str
    truth: Verdict
    """`unknown` where an honest witness could not tell."""
    argv: Sequence[str]
    written: bool = False
    """Whether a framework's words in the log are ours, for want of a GPU or a scheduler."""
    disk: tuple[Literal["tmpfs", "ext4"], str] | None = None
    memory: str = ""
    within_group: bool = False
    """Whether the job's own group has no limit, and one around it has."""
    pids: int = 0
    within: Sequence[Literal["mounts", "network", "processes"]] = ()
    set: Sequence[str] = ()
    """Shell lines that set the namespace before the job begins."""
    then: Sequence[str] = ()
    max_runtime_s: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    log_on_disk: bool = False
    compiled: bool = False
    late: bool = False
    """Whether it was written after the rules, to see what they are worth."""
    box: BoxSeen | None = None

    @property
    def needs(self) -> frozenset[Need]:
        """What a machine must lend for it."""
        needs: set[Need] = {*self.within}
        if self.disk:
            needs.add("mounts")
        if self.disk and self.disk[0] == "ext4":
            needs.add("loop")
        if self.memory:
            needs.add("memory")
        if self.pids:
            needs.add("pids")
        if self.compiled:
            needs.add("compiler")
        return frozenset(needs)
