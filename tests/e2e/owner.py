"""Somebody at the command line, with a state directory and a work tree of their own."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from e2e.leased import command
from signed import signs_as_told
from terminal import typed_at

from gpu_tenant.domain.model import LeaseState
from gpu_tenant.domain.terms import Terms
from gpu_tenant.ledger import Ledger

MODEL = "mkdir -p out && echo '[1]' > out/model.json"
"""A job that writes one artifact."""


@dataclass(frozen=True)
class Owner:
    """Somebody with a state directory, a work tree and the command line."""

    state: Path
    tree: Path

    def does(self, *words: str) -> str:
        """What a command that succeeds prints."""
        status, out, err = command(*words)
        assert status == 0, err
        return out

    def does_signed(self, *words: str) -> str:
        """What a command prints once a person has signed for what it wants signed."""
        status, _, err = command(*words)
        assert (status, "SIGNATURE_WANTED" in err) == (3, True), err
        signs_as_told(err, self.state)
        return self.does(*words)

    def does_or_not(self, *words: str) -> str:
        """What a command prints, however it ends."""
        return command(*words)[1]

    def is_told(self, status: int, code: str, *words: str) -> str:
        """What a command that ends with that status says on stderr: the code, and a way on."""
        ended, out, err = command(*words)
        assert (ended, out) == (status, ""), err
        return error_of(err, code)

    def has_run(self, run: str = MODEL, *artifacts: str) -> str:
        """A lease on a local box where the job has ended."""
        lease = self.has_launched(run, *artifacts)
        self.sees_the_end(lease)
        return lease

    def sees_the_end(self, lease: str) -> None:
        """The job has ended, and well."""
        watch = ("monitor", lease, "--wait-s", "45", "--json")
        while (seen := json.loads(self.does(*watch)))["state"] in (
            "starting",
            "running",
            "lingering",
        ):
            pass
        assert seen["state"] == "finished", seen

    def has_launched(self, run: str, *artifacts: str) -> str:
        """A lease on a local box where the job was started."""
        lease = self.has_box()
        self.does("push", str(self.tree), lease)
        kept = [word for pattern in artifacts or ("out/",) for word in ("--artifact", pattern)]
        self.does("launch", "--lease", lease, *kept, "--", run)
        return lease

    def has_box(self) -> str:
        """A lease on a local box."""
        lease: str = json.loads(self.does("provision", "--smoke", "none", "--json"))["lease"]
        return lease

    def work(self, lease: str) -> Path:
        """The work directory on the box."""
        return self.state / "boxes" / lease / "home" / "gpu-tenant" / lease / "work"

    def stands(self, lease: str) -> LeaseState:
        """The lease's state, by the ledger."""
        with closing(Ledger(self.state / "ledger.sqlite3")) as ledger:
            return ledger.lease(lease).state

    def terms(self, lease: str) -> Terms:
        """What is agreed for the lease, by the ledger."""
        with closing(Ledger(self.state / "ledger.sqlite3")) as ledger:
            return ledger.lease(lease).terms

    def starts(self, *words: str, stdin: int = subprocess.PIPE) -> "subprocess.Popen[bytes]":
        """The command in a process of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "gpu_tenant", *words],
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def waives(self, lease: str, typed: str) -> tuple[int, str, str]:
        """How `waive` ends at a terminal where a person types that."""
        return typed_at(["waive", lease], typed)


def error_of(err: str, code: str) -> str:
    """The error and the hint that were printed, after a look at their form."""
    assert re.fullmatch(rf"error: {code}: .+\nhint: .+\n", err), err
    return err


def command_lines() -> Iterator[tuple[int, bytes]]:
    """The arguments of every process of this computer."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            yield int(entry.name), (entry / "cmdline").read_bytes()
        except OSError:
            continue
