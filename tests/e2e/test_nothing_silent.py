"""Nothing is silent while money runs: a person sees what is waited for, and may leave it."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from e2e.rehearsal import Rehearsal
from parts import required
from terminal import at_a_terminal


@pytest.fixture
def stage(rehearse: Callable[..., Rehearsal]) -> Rehearsal:
    required("sshd")
    return rehearse("runpod")


def environ(stage: Rehearsal, home: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(home), **stage.environment}


def test_renting_says_what_it_waits_for_and_leaving_it_says_what_stands(
    stage: Rehearsal, tmp_path: Path
) -> None:
    quote = json.loads(stage.does("offers", "--json"))["cheapest"]
    stage.ask("faults", [{"do": "never_ready"}])

    words = ["provision", "--yes", "--quote", quote, "--smoke", "none"]
    with at_a_terminal(*words, env=environ(stage, tmp_path)) as person:
        person.read_until("boots")
        person.read_until("so far")
        person.interrupt()
        status = person.ended()

    [lease] = json.loads(stage.does("leases", "--json"))["leases"]
    shown = " ".join(person.shown.split())
    assert status == 130
    assert "given back unused" in shown
    assert f"{lease['lease']} stands: its box {lease['box']} boots, and bills at" in shown
    assert f"gpu-tenant teardown {lease['lease']}" in shown


def test_a_teardown_says_what_it_waits_for(stage: Rehearsal, tmp_path: Path) -> None:
    lease, box = stage.rented()
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a").write_text("a")
    stage.does("push", str(tree))
    stage.does("collect")

    with at_a_terminal("teardown", lease, env=environ(stage, tmp_path)) as person:
        assert person.ended() == 0

    assert "is sealed" in person.shown or f"{box} is gone from its provider's list" in person.shown
