"""What a Job and its pods show, where a cluster of our own cannot be brought to show it."""

from pathlib import Path
from typing import Any

import pytest

from gpu_tenant.errors import BadRequest, LocalTrouble
from gpu_tenant.kube.order import Cluster, cluster, job, job_name, label, mark_of
from gpu_tenant.kube.seen import look
from gpu_tenant.model import BoxState
from gpu_tenant.transports.frames import Told

MARK = "gpu-tenant:0a1b2c:kubernetes-abcd"
WHERE = Cluster(context="lab", image="cuda", gpus=("H100 SXM:8",), queue="team", claim="work")


def shown(*, first: str | None = None, **status: object) -> dict[str, Any]:
    ordered: dict[str, Any] = job(MARK, WHERE, gpu_count=8)
    if first is not None:
        ordered["metadata"]["annotations"]["gpu-tenant/first-pod"] = first
    return {**ordered, "status": status}


def pod(uid: str, phase: str, **status: object) -> dict[str, Any]:
    return {
        "metadata": {"uid": uid, "creationTimestamp": uid},
        "status": {"phase": phase, **status},
    }


RUNS = [{"name": "box", "state": {"running": {}}}]


def test_a_job_that_its_queue_holds_back_waits_and_says_where() -> None:
    held = shown(conditions=[{"type": "Suspended", "status": "True"}])

    seen = look(held, [])

    assert (seen.state, seen.words) == (BoxState.BOOTING, "it waits in the queue team")


def test_a_node_that_does_not_answer_is_unknown_and_no_death() -> None:
    for lost in (
        pod("1", "Unknown"),
        pod("1", "Running", containerStatuses=RUNS, conditions=[{"type": "Ready", "status": "False", "reason": "NodeNotReady"}]),
    ):  # fmt: skip
        seen = look(shown(first="1"), [lost])
        assert (seen.state, seen.taken) == (BoxState.UNKNOWN, None)


def test_a_second_pod_is_never_the_box_of_the_first() -> None:
    seen = look(shown(first="1"), [pod("2", "Running", containerStatuses=RUNS)])

    assert (seen.state, seen.taken, seen.pod) == (BoxState.BROKEN, "preempted", None)


def test_a_phase_that_nobody_knows_is_unknown() -> None:
    assert look(shown(), [pod("1", "Dreaming")]).state is BoxState.UNKNOWN


def test_a_mark_is_a_label_and_back_and_anything_else_is_refused() -> None:
    assert mark_of(label(MARK)) == MARK
    assert job_name(MARK) == "gt-0a1b2c-kubernetes-abcd"
    for strange in ("", "gpu-tenant:a:b/c", f"gpu-tenant:a:{'b' * 80}"):
        with pytest.raises(BadRequest):
            label(strange)


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ("[kubernetes]\nimage = 'a'\ngpus = ['H100 SXM:8']", "context"),
        ("[kubernetes]\ncontext = 'a'\nimage = 'a'\ngpus = ['H1000']", "gpus"),
        ("[kubernetes]\ncontext = 'a'\nimage = 'a'\ngpus = ['H100 SXM:8']\nclaim_path = 'data'", "claim_path"),
        ("[kubernetes", "TOML|key|']'|Expected"),
    ],
)  # fmt: skip
def test_a_cluster_that_is_named_by_halves_is_told_by_what_is_wrong(
    tmp_path: Path, said: str, names: str
) -> None:
    (tmp_path / "config.toml").write_text(said, encoding="utf-8")

    with pytest.raises(LocalTrouble, match=names):
        cluster(tmp_path / "config.toml")


def test_what_the_far_end_tells_is_put_together_from_pieces_of_any_size() -> None:
    told, heard = Told(), b""
    said = b"\x01\x00\x00\x00\x05hello" + b"\x01\x00\x00\x00\x01!" + b"\x00\x00\x00\x00\x01\x07"

    for byte in said:
        heard += told.heard(bytes((byte,)))

    assert (heard, told.exit_status) == (b"hello!", 7)


def test_what_another_program_says_in_the_far_end_s_place_is_a_complaint() -> None:
    told = Told()

    assert told.heard(b"exec: python3: not found") == b"exec: python3: not found"
    assert told.exit_status is None
