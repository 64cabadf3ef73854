"""What nobody has claimed is kept or given up by the line that is shown, and a guess leaves no demand behind."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from e2e.leased import end_processes

JOB = (
    "mkdir -p out ~/results-home; echo kept > out/model.txt; head -c 2000000 /dev/zero > out/huge.bin; "
    "echo unclaimed > ~/results-home/result.txt"
)


class Person:
    """Somebody with a local box, who types commands."""

    def __init__(self, root: Path) -> None:
        home = {"HOME": str(root), "GPU_TENANT_HOME": str(root / "state")}
        self._environment = {"PATH": os.environ["PATH"], **home}

    def ran(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "gpu_tenant", *words],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )

    def does(self, *words: str) -> Any:
        ran = self.ran(*words, "--json")
        assert ran.returncode == 0, (words, ran.stderr)
        return json.loads(ran.stdout)

    def is_refused(self, *words: str) -> str:
        ran = self.ran(*words)
        assert ran.returncode not in (0, 1), (words, ran.stdout)
        assert "Traceback" not in ran.stderr, ran.stderr
        return ran.stderr


@pytest.fixture
def person(tmp_path: Path) -> Iterator[Person]:
    yield Person(tmp_path)
    end_processes(tmp_path / "state" / "boxes")


def test_a_guess_is_told_before_it_is_on_record_and_the_line_that_is_shown_works(
    person: Person,
) -> None:
    person.does("provision", "--smoke", "none", "--unasked-gib", "0")
    for everything in ("/", "/*"):
        told = person.is_refused("launch", "--artifact", everything, "--", "sh", "-c", JOB)
        assert "hint:" in told
    launch = ("launch", "--artifact", "out/", "--discard", "out/huge.bin", "--json")
    assert person.ran(*launch, "--", "sh", "-c", JOB).returncode == 0
    assert person.does("monitor", "--wait-s", "20")["state"] == "finished"

    guessed = person.is_refused("collect", "--artifact", "no-such-results/")
    given_up = person.is_refused("collect", "--discard", "nothing-like-it/")
    found = person.does("collect")

    for told in (guessed, given_up):
        assert "nothing was recorded" in told
    assert found["never_appeared"] == [], "a guess is no demand"
    assert found["fetched_bytes"] < 2_000_000, "what is given up is not fetched"
    assert "out/huge.bin" in found["discarded_by"]
    keeps, _, gives_up = found["next"].partition(" keeps it; ")
    assert "results-home" in keeps
    assert gives_up.endswith(" gives it up, if the person signs")
    line = keeps.strip("`").split()[1:]
    ran = person.ran(*(word.strip("'") for word in line))
    assert ran.returncode == 0, (line, ran.stderr)
    ended = person.does("teardown")
    assert ended["receipt"]["ground"] == "verified"
    assert not any("never appeared" in words for words in ended["receipt"]["given_up"])
