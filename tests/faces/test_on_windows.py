"""On Windows there is no command but the sentence that leads to WSL 2."""

import subprocess
import sys

import pytest

AS_ON_WINDOWS = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {"fcntl", "grp", "pwd", "resource", "termios"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

for name in {"fcntl", "grp", "pwd", "resource", "termios"} & set(sys.modules):
    del sys.modules[name]
sys.meta_path.insert(0, Absent())
sys.platform = "win32"
from gpu_tenant.__main__ import main
main()
"""


@pytest.mark.parametrize("line", [[], ["--help"], ["demo"], ["run", "--", "true"]], ids=" ".join)
def test_the_first_command_says_in_one_sentence_that_it_wants_wsl_2(line: list[str]) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", AS_ON_WINDOWS, *line],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )

    assert (ran.returncode, ran.stdout) == (6, "")
    assert ran.stderr == (
        "error: LOCAL_TROUBLE: on Windows gpu-tenant runs in WSL 2: run `wsl --install` in PowerShell, then install"
        " gpu-tenant in the Linux that it opens, and use it there\n"
    )
