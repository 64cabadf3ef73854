"""Finds the files that a job misses on its box because the push left them out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.model import Lease, LeaseId
from gpu_tenant.files.missing_file import missing_files
from gpu_tenant.ledger import Ledger


@dataclass(frozen=True, slots=True)
class Missing:
    """The files that a job's log reports as missing and that the push of `directory` left out. The names are ours."""

    lease: LeaseId
    directory: str
    names: tuple[str, ...]
    reasons: tuple[str, ...]

    @property
    def words(self) -> str:
        """What is missing on the box, and why."""
        return left_out_words(self.names, self.reasons, "the push")

    @property
    def push(self) -> Command:
        """The command that sends these files."""
        return Command("push", self.directory, self.lease, include=self.names)


def missing_on_box(lease: Lease, log_tail: str, *, ledger: Ledger) -> Missing | None:
    """Find the files that the end of a job's log reports as missing and that the newest push left out. None if none."""
    pushed: dict[str, Mapping[str, str]] = {}
    included: set[str] = set()
    for _, event in ledger.events(lease.id, timeline.Pushed):
        if isinstance(event, timeline.Pushed) and event.tree and event.left_out is not None:
            directory, named = event.tree.get("directory"), event.tree.get("include")
            included |= {str(x).rstrip("/") for x in (named if isinstance(named, list) else [])}
            pushed.pop(str(directory), None)
            pushed[str(directory)] = event.left_out
    root = lease.work_directory.lstrip("~")
    for directory, listed in reversed(pushed.items()):
        left_out = {name: why for name, why in listed.items() if name.rstrip("/") not in included}
        names = missing_files(log_tail, left_out, root=root, here=Path(directory))
        if names:
            return Missing(lease.id, directory, names, reasons_of(names, left_out))
    return None


def reasons_of(names: Sequence[str], left_out: Mapping[str, str]) -> tuple[str, ...]:
    """Return why these files were left out, each reason once. A name that ends in `/` stands for all files below it."""
    reasons = (
        why
        for left, why in left_out.items()
        if any(left == name or (name.endswith("/") and left.startswith(name)) for name in names)
    )
    return tuple(dict.fromkeys(reasons))


def left_out_words(names: Sequence[str], reasons: Sequence[str], by: str) -> str:
    """Say which files a log reports as missing, and why they were left out."""
    return (
        f"its log reports {', '.join(names)} as missing, which {by} left out ({', '.join(reasons)})"
    )
