"""The verdict on the work: what a job's end, its log and its files say, whatever the exit status says."""

import pytest

from gpu_tenant.domain.outcome import Doubt, outcome_from
from gpu_tenant.jobs.log_end import last_crash

TRACEBACK = """Traceback (most recent call last):
  File "/root/gpu-tenant/l-1/work/train.py", line 3, in <module>
    import no_such_module
  File "/usr/lib/python3.11/importlib/__init__.py", line 126, in import_module
    return _bootstrap._gcd_import(name)
ModuleNotFoundError: No module named 'no_such_module'
"""


def test_the_worst_reason_decides_and_comes_first() -> None:
    seen = outcome_from(
        [
            Doubt("suspect", "a"),
            Doubt("failed", "b"),
            Doubt("incomplete", "c"),
            Doubt("suspect", "a"),
        ]
    )

    assert (seen.grade, seen.words) == ("failed", "failed: b; c; a")
    assert outcome_from([]).words == "done"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (TRACEBACK, "ModuleNotFoundError: No module named 'no_such_module' at train.py:3"),
        (
            f"{TRACEBACK}done\n",
            "ModuleNotFoundError: No module named 'no_such_module' at train.py:3",
        ),
        ("step 1\nsh: 1: pyhton: not found\n", "sh: 1: pyhton: not found"),
        ("run.sh: line 4:   77 Segmentation fault      ./train", None),
        ("Killed\n", "Killed"),
        (f"{TRACEBACK}retrying in 3 s\n", ""),
        (TRACEBACK + "step 2 loss 0.5\nstep 3 loss 0.4\nsaved\n", ""),
        ("step 1\nno error was found\n", ""),
        ("", ""),
    ],
)
def test_only_the_very_end_of_a_log_tells_a_crash(log: str, words: str | None) -> None:
    seen = last_crash(log)

    assert (seen.words if seen else "") == (log.strip() if words is None else words)
