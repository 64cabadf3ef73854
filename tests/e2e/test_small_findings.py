"""Small things that first users stumbled over: what they typed, and what they are told now."""

import json
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from e2e.leased import command, end_processes
from e2e.owner import Owner

from gpu_tenant.domain.clock import WallClock


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Owner]:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path / "state"))
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "train.py").write_text("print(1)\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "tree")
    yield Owner(tmp_path / "state", tmp_path / "tree")
    end_processes(tmp_path / "state" / "boxes")


def rented(owner: Owner) -> str:
    told = json.loads(owner.does("provision", "--smoke", "none", "--json"))
    return str(told["lease"])


def test_a_failed_job_names_no_page_that_no_command_shows(owner: Owner) -> None:
    lease = rented(owner)
    owner.does("push", ".")
    command("launch", "--artifact", "out/", "--", "sh", "-c", "exit 3")
    while "running" in owner.does("monitor", lease).partition("why")[0]:
        pass

    looked = owner.does("monitor", lease)

    assert "read the end of the log" in looked
    assert "references/" not in looked
    (page,) = re.findall(r"read `gpu-tenant (guide [^`]+)`", looked)
    assert owner.does(*page.split()).startswith("#")
    assert "<untrusted" not in owner.does("stop", lease)
    assert f"`gpu-tenant {page}`" in json.loads(owner.does("monitor", lease, "--json"))["why"]


def test_a_report_in_the_work_tree_is_not_sent_with_the_next_push(owner: Owner) -> None:
    lease = rented(owner)
    owner.does("push", ".")
    wrote = owner.does("report", lease, "--to", ".")

    pushed = owner.does("push", ".")

    assert f"gpu-tenant-{lease}.html" in wrote
    assert "1 unchanged" in pushed
    assert "0 files sent" in pushed
    assert re.search(rf"gpu-tenant-{lease}\.html \(.+\), a report of a lease", pushed)


def test_a_report_of_a_lease_that_kept_nothing_goes_to_the_state_directory(owner: Owner) -> None:
    lease = rented(owner)
    before = sorted(owner.tree.iterdir())

    wrote = owner.does("report", lease)

    (place,) = re.findall(rf"(\S+/reports)/gpu-tenant-{lease}\.md", wrote)
    assert (Path(place) / f"gpu-tenant-{lease}.html").is_file()
    assert sorted(owner.tree.iterdir()) == before


def test_a_form_that_a_report_has_not_is_written_under_names_that_are_told(owner: Owner) -> None:
    lease = rented(owner)

    wrote = owner.does("report", lease, "--to", "a.pdf")

    assert str(owner.tree / "a.pdf.html") in wrote
    assert str(owner.tree / "a.pdf.md") in wrote


def test_a_command_after_two_dashes_is_no_lease(owner: Owner) -> None:
    lease = rented(owner)

    said = owner.is_told(2, "BAD_REQUEST", "ssh", "--", "hostname")

    assert f"the box of {lease} is this computer" in said


def test_a_clock_that_was_set_back_makes_no_lease_younger_than_nothing(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = rented(owner)
    now = WallClock().now()
    monkeypatch.setattr(WallClock, "now", lambda _: now - timedelta(hours=3))

    told = json.loads(owner.does("leases", "--json"))

    assert [(one["lease"], one["age_s"]) for one in told["leases"]] == [(lease, 0)]


def test_a_lease_that_has_ended_counts_nothing_down(owner: Owner) -> None:
    lease = rented(owner)
    owner.does("teardown", lease)

    live = json.loads(owner.does("leases", "--json"))
    every = json.loads(owner.does("leases", "--all", "--json"))

    assert [card["deadline_in_s"] for card in every["leases"]] == [None]
    assert live["spent_usd"] == every["spent_usd"]


def test_each_line_of_a_watchdog_begins_with_its_time(
    owner: Owner,
) -> None:
    lease = rented(owner)
    owner.does("push", ".")
    owner.does(
        "launch", "--artifact", "out/", "--", "sh", "-c", "mkdir out; echo 1 >out/a.json; sleep 60"
    )
    dog = subprocess.Popen(
        [sys.executable, "-m", "gpu_tenant", "watchdog", "--every", "5"],
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    try:
        assert dog.stderr is not None
        end = time.monotonic() + 90
        while not select.select([dog.stderr], [], [], 1)[0]:
            assert time.monotonic() < end, "it said nothing"
        line = dog.stderr.readline()
    finally:
        dog.terminate()
        _, rest = dog.communicate()

    at = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC  "
    first = rf"{at}watches 1 lease \({lease}\), and those to come: a look every 5 s"
    assert re.match(first, line), line
    last = rf"{at}ends, and leaves 1 lease; who watches now: nobody: "
    assert re.match(last, rest.splitlines()[-1]), rest
    assert dog.returncode == 0


def test_an_audit_imports_no_module_that_lies_in_the_home_of_the_box(owner: Owner) -> None:
    lease = rented(owner)
    (home,) = (owner.state / "boxes").iterdir()
    for name in ("json", "torch", "platform", "socket"):
        (home / f"{name}.py").write_text(
            f"open('ran-{name}', 'w').close(); __version__ = '99'\n", encoding="utf-8"
        )

    told = json.loads(owner.does("audit", lease, "--json"))

    assert list(home.glob("ran-*")) == []
    assert [x["seen"] for x in told["findings"] if x["subject"] == "torch"] == ["not installed"]


def test_where_nobody_bills_and_nothing_is_given_up_neither_is_counted(owner: Owner) -> None:
    lease = rented(owner)
    owner.does("push", ".")

    collected = owner.does("collect", lease)
    ended = owner.does("teardown", lease)
    listed = owner.does("leases", "--all")

    assert "may be lost" not in collected
    assert re.search(r"cost +nobody bills\n", ended)
    assert "nobody bills" in listed
    assert "unknown" not in listed
