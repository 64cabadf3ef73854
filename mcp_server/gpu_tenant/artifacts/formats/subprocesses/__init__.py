"""Readers that are too large for the reader process, or crash too easily. Each runs in a process of its own."""

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from gpu_tenant.artifacts.formats import resource_limits
from gpu_tenant.artifacts.formats.bounded_file import Broken, Findings, Source, Unread
from gpu_tenant.artifacts.formats.resource_limits import NO_MEMORY

_COMPUTED_TOO_LONG = -24
_ABORTED = -6
"""The exit status after an abort in C++ because there was no memory."""
_LONGEST_ANSWER_BYTES = 1 << 20
_LONGEST_COMPLAINT_BYTES = 4096
_NO_MEMORY_WORDS = ("MemoryError", "numpy._core._exceptions._ArrayMemoryError")
_PATIENCE = 10


def present(package: str) -> bool:
    """Whether the package is installed. This does not import it."""
    return find_spec(package) is not None


def read(source: Source, package: str, program: str, findings: Findings) -> None:
    """Let `package` read the file in a separate process, and add what it finds to `findings`.

    If the package is not installed, or gives up for a reason of its own, the findings say so.

    Raises:
        Broken: the package refuses the file.
        Unread: the package crashed, or took too much and was stopped. Or this is not the file that was to be
            proved.
    """
    if not present(package):
        findings.not_proved.append(f"not read by {package}, which is not installed")
        return
    source.settle()
    computing_s = resource_limits.allowance_s(source.size_bytes)
    script = Path(__file__).with_name(f"{program}.py")
    command = [
        resource_limits.__file__,
        package,
        str(computing_s),
        str(script),
        str(source.path.resolve()),
    ]
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complained:
        try:
            done = subprocess.run(
                [sys.executable, "-P", *command],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=complained,
                env=dict(os.environ, ARROW_DEFAULT_MEMORY_POOL="system", OMP_NUM_THREADS="1"),
                timeout=60 + _PATIENCE * computing_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unread(f"{package} took too long, and was stopped") from None
        except OSError as error:
            findings.not_proved.append(f"{package} could not be started: {error}")
            return
        said.seek(0)
        complained.seek(max(0, complained.seek(0, os.SEEK_END) - _LONGEST_COMPLAINT_BYTES))
        words = said.read(_LONGEST_ANSWER_BYTES)
        last = complained.read().decode(errors="replace").strip().rpartition("\n")[2]
    answer = _verdict(words)
    if done.returncode < 0 and answer is None:
        # A library may crash anywhere if it gets no memory. So a crash is no evidence against the file.
        raise Unread(f"{package} {_ended_by(-done.returncode, computing_s)}")
    if done.returncode > 0:
        if last.startswith(_NO_MEMORY_WORDS):
            raise Unread(f"{package}: {NO_MEMORY}")
        findings.not_proved.append(f"{package} gave up: {last[:200] or done.returncode}")
        return
    if answer is None:
        raise Unread(f"{package} gave no answer that can be read")
    if stopped := answer.get("stopped"):
        raise Unread(f"{package}: {stopped[0][:300]}")
    if problems := answer.get("problems"):
        raise Broken(f"{package} refuses it: {problems[0][:300]}")
    findings.proved += answer.get("proved", [])
    findings.not_proved += answer.get("not_proved", [])
    for warning in answer.get("warnings", []):
        findings.warn(warning)


def _verdict(words: bytes) -> dict[str, list[str]] | None:
    """Read the verdict that our script printed at its end. None if it did not get that far."""
    try:
        said = json.loads(words)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _ended_by(signal: int, computing_s: int) -> str:
    """Say what it means that this signal ended the process before its verdict."""
    if -signal == _COMPUTED_TOO_LONG:
        return f"computed for more than {computing_s} s, and was stopped"
    return f"ended while reading it: {NO_MEMORY if -signal == _ABORTED else f'signal {signal}'}"
