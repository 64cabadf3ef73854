"""Readers that are too large, or too easily crashed, for this process: each runs in one of its own."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from gpu_tenant.loads.source import Broken, Findings, Source

_LIMIT_S = 1800
_CRASHES = (-4, -6, -7, -8, -11)
"""SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV: the reader fell over the file, nobody killed it."""


def present(package: str) -> bool:
    """Whether the package can be imported here; it is not imported."""
    return find_spec(package) is not None


def read(source: Source, package: str, program: str, findings: Findings) -> None:
    """The file was read by `package` in a process of its own, and its findings are added.

    Where the package is absent, or gives up for a reason of its own, that is stated instead.

    Raises:
        Broken: the package refuses the file, or crashes on it.
        Unread: it is not the file that was to be proved.
    """
    if not present(package):
        findings.not_proved.append(f"not read by {package}, which is not installed")
        return
    source.settle()
    script = Path(__file__).with_name(f"{program}.py")
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(script), str(source.path)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        findings.not_proved.append(f"{package} did not finish within {_LIMIT_S // 60} minutes")
        return
    except OSError as error:
        findings.not_proved.append(f"{package} could not be started: {error}")
        return
    if done.returncode in _CRASHES:
        raise Broken(f"{package} crashes on it (signal {-done.returncode})")
    if done.returncode != 0:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        findings.not_proved.append(f"{package} gave up: {last[:200] or done.returncode}")
        return
    answer: dict[str, list[str]] = json.loads(done.stdout)
    if problems := answer.get("problems"):
        raise Broken(f"{package} refuses it: {problems[0][:300]}")
    findings.proved += answer.get("proved", [])
    findings.not_proved += answer.get("not_proved", [])
    for warning in answer.get("warnings", []):
        findings.warn(warning)
