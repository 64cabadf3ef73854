"""The audit judges boxes as a careful tenant would, and survives what a box may send."""

import ast
import copy
import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_tenant.box.audit import Audit, Needs, audit, judge, no_python
from gpu_tenant.box.audit.probe import pci_address, read_smi

HERE = Path(__file__).parent
PROBE = HERE.parents[2] / "scripts/probe.py"
MACHINES = sorted((HERE / "machines").glob("*.json"))
ASKED_AT = datetime.fromtimestamp(1_800_000_000, UTC)
ANSWERED_AT = datetime.fromtimestamp(1_800_000_004, UTC)

Observed = dict[str, object]


def merged(ground: Observed, changes: Observed) -> Observed:
    """The ground with the changes in it, part by part and field by field."""
    result = copy.deepcopy(ground)
    for name, change in changes.items():
        old = result.get(name)
        if isinstance(old, dict) and isinstance(change, dict):
            result[name] = merged(old, change)
        else:
            result[name] = change
    return result


def machine(changes: Observed) -> Observed:
    observed = merged(json.loads((HERE / "healthy.json").read_text(encoding="utf-8")), changes)
    if isinstance(observed["smi"], str):
        text = (HERE / "smi" / observed["smi"]).read_text(encoding="utf-8")
        observed["smi"] = {"status": 0, "out": text, "err": ""}
    return observed


def judged(observed: Observed, needs: Needs | None = None) -> Audit:
    return audit(observed, needs=needs or Needs(), asked_at=ASKED_AT, answered_at=ANSWERED_AT)


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: path.stem)
def test_each_machine_has_exactly_the_faults_it_should(path: Path) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))

    told = judged(machine(case["changes"]), Needs(**case["needs"]))

    faults = [finding for finding in told.findings if finding.level != "ok"]
    assert sorted((fault.level, fault.subject) for fault in faults) == sorted(
        (fault["level"], fault["subject"]) for fault in case["expected"]
    )
    for wanted in case["expected"]:
        assert any(
            wanted["says"] in f"{fault.seen}: {fault.reason}"
            for fault in faults
            if (fault.level, fault.subject) == (wanted["level"], wanted["subject"])
        ), wanted


@pytest.mark.parametrize("path", MACHINES, ids=lambda path: path.stem)
def test_no_finding_holds_what_a_terminal_would_obey(path: Path) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))

    for finding in judged(machine(case["changes"]), Needs(**case["needs"])).findings:
        for text in (finding.subject, finding.seen, finding.reason):
            assert text.isprintable()
            assert len(text) <= 400


def test_an_audit_tells_what_may_be_used_and_not_what_the_host_has() -> None:
    case = json.loads((HERE / "machines/cgroup-v2-container.json").read_text(encoding="utf-8"))

    told = judged(machine(case["changes"]))

    assert (told.cpus, told.ram_gib) == (12.5, 48)
    assert told.disk_free_gib == 3500
    assert (told.driver, told.cuda) == ("550.54.15", "12.4")
    assert [(gpu.name, gpu.bus) for gpu in told.gpus] == [("NVIDIA H100 80GB HBM3", "0000:3b:00")]
    assert (told.blockers, told.warnings) == (0, 2)


def test_blockers_come_first() -> None:
    case = json.loads((HERE / "machines/shared-gpu.json").read_text(encoding="utf-8"))

    levels = [f.level for f in judged(machine(case["changes"]), Needs(vram_gib=80)).findings]

    assert levels == sorted(levels, key=("blocker", "warning", "ok").index)


def test_a_box_without_python_is_blocked() -> None:
    assert no_python().level == "blocker"


def test_a_probe_that_saw_nothing_is_judged_and_nothing_is_well() -> None:
    told = judged({})

    assert {finding.level for finding in told.findings} == {"warning"}


@pytest.mark.parametrize(
    ("error", "subject", "seen"),
    [
        ("FileNotFoundError: [Errno 2] '/datapath'", "platform's /datapath", "not there"),
        ("no answer in 5 s", "disk /datapath", "not seen: "),
    ],
)
def test_a_platforms_path_that_is_absent_or_unseen_is_one_finding(
    error: str, subject: str, seen: str
) -> None:
    observed = machine({})
    disks = observed["disks"]
    assert isinstance(disks, dict)
    disks["places"].append({"role": "platform", "path": "/datapath", "error": error})

    told = audit(
        observed,
        needs=Needs(),
        asked_at=ASKED_AT,
        answered_at=ANSWERED_AT,
        caps={"/datapath": None},
    )

    (found,) = (finding for finding in told.findings if "/datapath" in finding.subject)
    assert found.seen.startswith(seen)
    assert found.subject.replace('"', "") == subject


def test_a_slow_answer_is_not_a_wrong_clock() -> None:
    observed = machine({"clock": {"started_s": 1_800_000_018.0, "ended_s": 1_800_000_019.0}})
    much_later = datetime.fromtimestamp(1_800_000_020, UTC)

    findings = judge(observed, needs=Needs(), asked_at=ASKED_AT, answered_at=much_later)

    assert next(f for f in findings if f.subject == "clock").level == "ok"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(
    st.sampled_from(sorted(json.loads((HERE / "healthy.json").read_text(encoding="utf-8")))), JSON
)
def test_whatever_a_part_holds_the_audit_is_made(name: str, part: object) -> None:
    judged({**machine({}), name: part})


@pytest.mark.parametrize("text", ["", "<", "<a/>", "No devices were found", "<nvidia_smi_log>" * 9])
def test_a_text_that_is_no_report_of_the_driver_is_none(text: str) -> None:
    assert read_smi(text) is None


def test_a_pci_address_is_one_in_every_spelling() -> None:
    assert {pci_address(text) for text in ("00000000:3B:00.0", "0000:3b:00", "0000:3B:00.0")} == {
        "0000:3b:00"
    }


def probe(*asked: str) -> Observed:
    """What the probe sees here, run as it is run over ssh."""
    said = subprocess.run(
        [sys.executable, "-", *asked],
        input=PROBE.read_text(encoding="utf-8"),
        capture_output=True,
        encoding="utf-8",
        check=True,
        timeout=120,
    )
    assert said.stdout.count("\n") == 1
    observed: Observed = json.loads(said.stdout)
    return observed


def test_the_probe_sees_this_machine_and_the_audit_understands_it(tmp_path: Path) -> None:
    asked_at = datetime.fromtimestamp(time.time(), UTC)  # noqa: TID251 (the probe's clock is real)
    observed = probe("--work", str(tmp_path / "not" / "yet"))
    answered_at = datetime.fromtimestamp(time.time(), UTC)  # noqa: TID251

    told = audit(observed, needs=Needs(), asked_at=asked_at, answered_at=answered_at)

    by_subject = {finding.subject: finding for finding in told.findings}
    assert by_subject["clock"].level == "ok"
    assert by_subject["python"].level == "ok"
    assert f"disk {tmp_path}" in by_subject
    assert told.cpus
    assert told.ram_gib
    assert told.disk_free_gib
    assert list(tmp_path.iterdir()) == []


def test_the_probe_is_written_for_python_3_7() -> None:
    ast.parse(PROBE.read_text(encoding="utf-8"), feature_version=(3, 7))


def test_the_probe_says_which_hosts_it_reached() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LISTENER], stdout=subprocess.PIPE, encoding="utf-8"
    ) as listener:
        assert listener.stdout is not None
        port = listener.stdout.readline().strip()
        told = probe("--reach", f"127.0.0.1:{port}", "127.0.0.1:1")["reach"]
        received = listener.stdout.read()

    assert isinstance(told, dict)
    assert told[f"127.0.0.1:{port}"]["address"] == "127.0.0.1"
    assert "refused" in told["127.0.0.1:1"]["error"]
    assert received == "0\n"


LISTENER = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    connection, _ = server.accept()
    print(len(connection.recv(1000)))
"""


def test_a_driver_older_than_the_order_is_a_blocker() -> None:
    levels = {
        wanted: next(
            f.level
            for f in judged(machine({}), Needs(cuda=wanted)).findings
            if f.subject == "driver"
        )
        for wanted in ("11.8", "99.0")
    }

    assert levels == {"11.8": "ok", "99.0": "blocker"}
