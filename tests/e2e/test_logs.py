"""A job's log at a terminal: its end, what came since, the lines with a text, and what comes."""

import json

import pytest
from e2e.leased import command
from e2e.owner import Owner

SCRIPT = "for i in 1 2 3 4 5; do echo line $i; done; printf '\\033]0;title\\007\\033[31mLoss ERROR 7\\033[0m\\n'"


@pytest.fixture
def lease(owner: Owner) -> str:
    return owner.has_run(f"mkdir -p out; {SCRIPT}; echo '[1]' > out/a.json", "out/")


def test_the_log_is_all_that_stands_on_stdout_and_nothing_in_it_moves_a_terminal(
    owner: Owner, lease: str
) -> None:
    status, out, err = command("logs", lease)

    assert status == 0
    assert out == "line 1\nline 2\nline 3\nline 4\nline 5\nLoss ERROR 7\n"
    assert "text from the box" in err


def test_lines_are_found_by_a_text_in_any_case(owner: Owner, lease: str) -> None:
    assert owner.does("logs", lease, "--grep", "error") == "Loss ERROR 7\n"
    assert owner.does("logs", lease, "--grep", "line 3", "--follow") == "line 3\n"

    status, out, err = command("logs", lease, "--grep", "nothing like it")
    assert (status, out) == (1, "")
    assert "no line has 'nothing like it'" in err


def test_what_came_since_a_look_is_shown_from_there(owner: Owner, lease: str) -> None:
    readings = next((owner.state / "readings").iterdir())
    told = json.loads(readings.read_text().splitlines()[-1])
    assert told["log_bytes"] > 0
    earlier = told | {"at": told["at"] - 7200, "log_bytes": len("line 1\nline 2\n")}
    readings.write_text(json.dumps(earlier) + "\n" + json.dumps(told) + "\n")

    assert owner.does("logs", lease, "--since", "1h").startswith("line 3\n")
    assert owner.does("logs", lease, "--since", "3h").startswith("line 1\n")


def test_the_log_of_a_lease_that_has_ended_is_the_one_that_was_collected(
    owner: Owner, lease: str
) -> None:
    owner.does("collect", lease)
    owner.does("teardown", lease)

    assert "line 5" in owner.does("logs", lease, "--job", "job1")


def test_a_log_is_followed_to_the_end_of_its_job(owner: Owner) -> None:
    lease = owner.has_launched(
        "mkdir -p out; for i in 1 2 3; do echo tick $i; sleep 1; done", "out/"
    )

    assert owner.does("logs", lease, "--follow") == "tick 1\ntick 2\ntick 3\n"


def test_several_leases_are_collected_each_into_a_directory_of_its_own(
    owner: Owner, lease: str
) -> None:
    other = owner.has_run("mkdir -p out; echo '[2]' > out/a.json", "out/")
    to = owner.tree.parent / "gathered"

    owner.does("collect", lease, other, "--to", str(to))

    assert (to / lease / "work/out/a.json").read_text() == "[1]\n"
    assert (to / other / "work/out/a.json").read_text() == "[2]\n"
