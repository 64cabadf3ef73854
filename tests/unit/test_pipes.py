"""A pipe hides the status of what is before it: it counts where that changes nothing else, and is told otherwise."""

import shutil
import subprocess
from pathlib import Path

import pytest
from arranged import job, lease
from parts import required

from gpu_tenant.box.caretaker import start_request
from gpu_tenant.domain.pipes import hidden_status, only_copied_by_pipes


@pytest.mark.parametrize(
    ("command", "copied", "hidden"),
    [
        ("python3 train.py", False, None),
        ("python3 train.py 2>&1 | tee out/train.log", True, None),
        ("mkdir -p out; LR=1 python3 a.py |& tee log && python3 b.py | tee -a log", True, None),
        ("python3 a.py 2>&1 | ts | tee log", True, None),
        ("python3 a.py | grep loss", False, "grep"),
        ("python3 a.py | tee log | tail -5", False, "tail"),
        ("grep x a.txt | tee b.txt", False, "tee"),
        ("yes | ./install.sh && python3 a.py | tee log", False, "tee"),
        ("a || b", False, None),
        ("python3 a.py --text 'a | tee b'", False, None),
        ("bash -c 'python3 a.py | cat'", False, "cat"),
        ("bash -c 'python3 a.py | tee log'", False, "tee"),
        ("set -o pipefail; python3 a.py | grep x", False, None),
        ("python3 a.py | tee 'cut off", False, None),
    ],
)
def test_the_pipes_of_a_command_are_read(command: str, copied: bool, hidden: str | None) -> None:
    assert only_copied_by_pipes(command) is copied
    assert hidden_status(command) == hidden


@pytest.mark.parametrize("shell", ["bash", "busybox"])
def test_a_failure_before_tee_is_the_status_of_the_job(shell: str, tmp_path: Path) -> None:
    required(shell)
    program = shutil.which(shell)
    assert program is not None
    for name in ("sh", "tee", "cat"):
        (tmp_path / name).symlink_to(program if shell == "busybox" else shutil.which(name) or name)
    if shell == "bash":
        (tmp_path / shell).symlink_to(program)
    for command, status in (("exit 3 | tee /dev/null", 3), ("exit 3 | cat", 0)):
        argv = start_request(job().model_copy(update={"command": command}), lease(), env={})["argv"]
        assert isinstance(argv, list)

        box = {"PATH": str(tmp_path)}
        assert (
            subprocess.run([str(word) for word in argv], env=box, check=False).returncode == status
        )
