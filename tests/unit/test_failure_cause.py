"""Why a job ended: facts before the log, the log's last words alone, and unknown rather than wrong."""

import importlib.util
import re
from pathlib import Path

import pytest

from gpu_tenant.box.caretaker import JobState, JobStatus, Reason
from gpu_tenant.domain.command import in_tools
from gpu_tenant.domain.model import BoxState, LeaseId
from gpu_tenant.faces.cli.runbook import guide_page
from gpu_tenant.jobs.failure_cause import ADVICE, BoxSeen, diagnose
from gpu_tenant.jobs.failure_patterns import read_last_words

ROOT = Path(__file__).parents[2]
_at = importlib.util.spec_from_file_location("said", ROOT / "evals" / "endings" / "said.py")
assert _at is not None
assert _at.loader is not None
said = importlib.util.module_from_spec(_at)  # `evals` means the folder beside this one here
_at.loader.exec_module(said)
OOM = {"cgroup_oom": "/sys/fs/cgroup/memory.events: oom_kill went from 0 to 1"}
FULL = {"disk_full": "0 bytes free where the job worked"}
SHM = {"shm_full": "0 of 67108864 bytes free in /dev/shm"}
XID = {"xid": "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."}
CUDA_OOM = said.CUDA_OOM["torch 2"]
STEPS = "".join(f"step {n}/1000 loss 0.5\n" for n in range(30))
NO_SPACE = "Traceback (most recent call last):\n  File 'x'\nOSError: [Errno 28] No space left on device: 'a.pt'"


def ended(
    *,
    exit_code: int | None = None,
    signal: str | None = None,
    code: str = "exit",
    signs: dict[str, str] | None = None,
    shares: dict[str, float] | None = None,
) -> JobStatus:
    told = exit_code is not None and exit_code > 128
    state: JobState = "failed" if exit_code is not None and not told else "killed"
    reason = Reason(code=code, evidence="seen", signs=signs or {}, shares=shares or {})
    return JobStatus(
        job="j", state=state, exit_code=exit_code, signal=signal, reason=reason, now=1.0
    )


def verdict(status: JobStatus, log: str, box: BoxSeen | None = None) -> str | None:
    found = diagnose(status, log, box=box)
    return found.verdict if found else None


@pytest.mark.parametrize("form", said.CUDA_OOM)
def test_every_form_of_a_cuda_oom_is_known(form: str) -> None:
    assert verdict(ended(exit_code=1), STEPS + said.CUDA_OOM[form]) == "cuda_oom"


@pytest.mark.parametrize(
    ("status", "log", "expected"),
    [
        (ended(exit_code=1, signs=FULL), NO_SPACE, "disk_full"),
        (ended(exit_code=1, signs={"inodes_full": "none"}), NO_SPACE, "inodes_full"),
        (ended(exit_code=1), NO_SPACE.replace("a.pt", "/dev/shm/a"), "shm_full"),
        (
            ended(exit_code=1, shares={"disk_share": 0.01, "inode_share": 0.9}),
            NO_SPACE,
            "disk_full",
        ),
        (
            ended(exit_code=1, shares={"disk_share": 0.9, "inode_share": 0.01}),
            NO_SPACE,
            "inodes_full",
        ),
        (ended(exit_code=1, shares={"disk_share": 0.9, "inode_share": 0.9}), NO_SPACE, "disk_full"),
        (
            ended(exit_code=1, shares={"disk_share": 0.9, "inode_share": 0.9}),
            NO_SPACE.replace("a.pt", "/mnt/a"),
            "unknown",
        ),
        (ended(exit_code=1, shares={"disk_share": 0.9}), NO_SPACE, "unknown"),
        (ended(exit_code=2, signs=FULL), "tar: Error is not recoverable: exiting now", "unknown"),
        (
            ended(exit_code=1, signs=FULL),
            "Traceback (most recent call last):\n  x\nKeyError: 'a'",
            "exit",
        ),
        (
            ended(exit_code=1, signs=FULL),
            "cannot save: [Errno 28] No space left on device: 'a'",
            "disk_full",
        ),
        (ended(exit_code=1, signs=OOM), "worker died: -9", "cgroup_oom"),
        (ended(exit_code=1, signs=OOM), "giving up after 9 epochs", "unknown"),
        (ended(exit_code=1, signs=FULL), said.WRITER, "disk_full"),
        (ended(exit_code=1), said.WRITER, "unknown"),
        (ended(exit_code=1), said.LOADER_BUS, "shm_full"),
        (ended(signal="BUS", signs=SHM), "", "shm_full"),
        (ended(signal="BUS", signs=SHM | FULL), "", "unknown"),
        (ended(exit_code=1, signs=OOM), said.LOADER_KILLED, "cgroup_oom"),
        (ended(exit_code=1), said.LOADER_KILLED, "unknown"),
        (ended(signal="ABRT"), said.WATCHDOG, "nccl_timeout"),
        (ended(signal="ABRT", signs=OOM), said.WATCHDOG, "cgroup_oom"),
        (ended(exit_code=1, signs=XID), said.NCCL_REMOTE, "xid"),
        (ended(exit_code=1, signs=XID), STEPS + "KeyError: 'x'", "unknown"),
        (ended(signal="TERM"), said.slurm("TIME LIMIT"), "walltime"),
        (ended(signal="TERM"), said.slurm("PREEMPTION"), "preempted"),
        (ended(signal="KILL"), said.slurm("NODE FAILURE"), "host_lost"),
        (ended(signal="KILL"), said.SLURM_OOM, "cgroup_oom"),
        (ended(signal="HUP"), "", "hangup"),
        (ended(exit_code=129), "", "hangup"),
        (ended(exit_code=137, signs=OOM), "Killed", "cgroup_oom"),
        (ended(signal="KILL", signs={"uncounted": "no count"}), "", "unknown"),
        (ended(signal="KILL", signs=OOM | {"another_killed": "pid 7"}), "", "unknown"),
        (ended(signal="SEGV"), STEPS, "signal"),
        (ended(code="supervisor_lost"), STEPS, "unknown"),
        (ended(code="reboot", signs={"reboot": "boot id was a"}), STEPS, "reboot"),
        (ended(exit_code=1, signs=FULL | {"log_cut": "full"}), CUDA_OOM, "unknown"),
    ],
)
def test_facts_and_last_words_together_make_the_verdict(
    status: JobStatus, log: str, expected: str
) -> None:
    assert verdict(status, log) == expected


@pytest.mark.parametrize(
    ("log", "exit_code", "expected"),
    [
        (CUDA_OOM + "\n" + STEPS + "ValueError: labels", 1, "exit"),
        (CUDA_OOM + "\nretrying with batch 8\nscore too low", 1, "exit"),
        (CUDA_OOM, 3, "exit"),
        ("\n".join("  " + line for line in CUDA_OOM.splitlines()), 1, "exit"),
        ("> " + CUDA_OOM.splitlines()[-1], 1, "exit"),
        ("'No space left on device' is what a full disk says", 2, "exit"),
        ('{"text": "Killed"}', 2, "exit"),
        (
            "Traceback (most recent call last):\n  x\nAssertionError: No space left on device",
            1,
            "exit",
        ),
        ("he wrote: " + said.slurm("TIME LIMIT"), 2, "exit"),
        (" 12%|# | 12/100\n" + CUDA_OOM + "\n 12%|# | 12/100", 1, "cuda_oom"),
        (" 12%|# | 12/100\n" + CUDA_OOM + "\n 13%|# | 13/100\nlabels differ", 1, "exit"),
    ],
)
def test_a_log_that_only_talks_of_a_cause_fools_nobody(
    log: str, exit_code: int, expected: str
) -> None:
    assert verdict(ended(exit_code=exit_code), log) == expected


@pytest.mark.parametrize("state", ["finished", "running", "lingering", "starting", "absent"])
def test_a_job_that_finished_or_lives_has_no_verdict(state: JobState) -> None:
    assert diagnose(JobStatus(job="j", state=state, exit_code=0, now=1.0), CUDA_OOM) is None


@pytest.mark.parametrize("fate", ["preempted", "outbid", "host_lost", "balance_zero", "walltime"])
def test_the_providers_word_explains_what_no_record_does(fate: str) -> None:
    box = BoxSeen(BoxState.PARKED, "it says so", fate)  # type: ignore[arg-type]

    assert verdict(ended(code="supervisor_lost"), STEPS, box) == fate
    assert verdict(ended(signal="TERM"), STEPS, box) == fate
    assert verdict(JobStatus(job="j", state="running", now=1.0), STEPS, box) == fate


def test_the_providers_word_does_not_explain_what_happened_before() -> None:
    box = BoxSeen(BoxState.PARKED, "", "preempted")

    assert verdict(ended(exit_code=1), "KeyError: 'x'", box) == "exit"
    assert verdict(ended(signal="KILL", signs=OOM), "", box) == "cgroup_oom"


@pytest.mark.parametrize("code", ["stopped", "deadline", "walltime"])
def test_what_we_did_ourselves_goes_before_all_else(code: str) -> None:
    assert verdict(ended(signal="KILL", code=code, signs=OOM), CUDA_OOM) == code


def test_the_evidence_is_a_quote_on_one_plain_line() -> None:
    found = diagnose(ended(exit_code=1), f"\x1b[31m{CUDA_OOM}\x1b[0m \u202etxt.exe")

    assert found is not None
    assert "Tried to allocate 2.00 GiB" in found.evidence
    assert not re.search(r"[\x00-\x1f\u202e]", str(found))
    assert len(found.evidence) < 300


@pytest.mark.parametrize("page", sorted({read for _, read in ADVICE.values()}))
def test_the_page_to_read_exists_and_has_that_section(page: str) -> None:
    assert guide_page(page).startswith("#")
    assert len(guide_page(page).splitlines()) > 1


def test_what_to_do_about_a_box_that_was_outbid_names_the_very_lines() -> None:
    found = diagnose(ended(signal="KILL"), "", box=BoxSeen(BoxState.PARKED, "", "outbid"))

    assert found is not None
    told = str(found.of(LeaseId("vast-1")))
    assert "`gpu-tenant recover vast-1` continues on another box" in told
    assert told.endswith("read `gpu-tenant guide gotchas outbid-wakes`")
    assert in_tools(told).endswith(
        "read `skill://gpu-tenant/references/gotchas.md`, at outbid-wakes"
    )


def test_a_line_of_two_thousand_characters_costs_no_time() -> None:
    assert read_last_words("a: " * 20_000 + "\n" + "x" * 1_000_000, exit_code=1).kind == "talk"
