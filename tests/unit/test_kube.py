"""What a Job and its pods show, where a cluster of our own cannot be brought to show it."""

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from arranged import PATIENCE_S, a_volume, setting

from gpu_tenant.domain.errors import (
    BadRequest,
    BoxUnreachable,
    ProviderSilent,
    ProviderTrouble,
)
from gpu_tenant.domain.model import BoxState, PodAddress
from gpu_tenant.faces.install.service_environment import what_is_lacking
from gpu_tenant.providers.kubernetes import exec
from gpu_tenant.providers.kubernetes.claims import claimed_gib, gib, volume_claim
from gpu_tenant.providers.kubernetes.cluster_identity import Identity, must_be_noted, note_once
from gpu_tenant.providers.kubernetes.connector import connect
from gpu_tenant.providers.kubernetes.job_manifest import (
    Cluster,
    cluster,
    job,
    job_name,
    label,
    mark_of,
)
from gpu_tenant.providers.kubernetes.status import look
from gpu_tenant.providers.kubernetes.websocket import StderrParser

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
        pod(
            "1",
            "Running",
            containerStatuses=RUNS,
            conditions=[{"type": "Ready", "status": "False", "reason": "NodeNotReady"}],
        ),
    ):
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
        (
            "[kubernetes]\ncontext = 'a'\nimage = 'a'\ngpus = ['H100 SXM:8']\nclaim_path = 'data'",
            "claim_path",
        ),
        ("[kubernetes", "TOML|key|']'|Expected"),
    ],
)
def test_a_cluster_that_is_named_by_halves_is_told_by_what_is_wrong(
    tmp_path: Path, said: str, names: str
) -> None:
    (tmp_path / "config.toml").write_text(said, encoding="utf-8")

    with pytest.raises(ProviderTrouble, match=names):
        cluster(tmp_path / "config.toml")


async def test_what_is_wrong_with_the_cluster_stops_its_own_calls_alone(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[kubernetes]\ncontex = 'a'", encoding="utf-8")

    made = connect(setting(tmp_path, "kubernetes"))

    assert made is not None
    with pytest.raises(ProviderTrouble, match="context"):
        await made.list_boxes()
    assert connect(setting(tmp_path / "unnamed", "kubernetes")) is None


def test_a_namespace_is_known_by_its_uid_and_by_its_server_where_that_is_hidden(
    tmp_path: Path,
) -> None:
    note = tmp_path / "kubernetes" / "cluster.json"
    here = Identity(server="https://a", authority="1", namespace="lab", uid="u1")
    must_be_noted(here, note)
    note_once(here, note)

    for same in (
        here,
        here.model_copy(update={"server": "https://b", "authority": "2"}),
        here.model_copy(update={"uid": None}),
    ):
        note_once(same, note)
    for other in (
        here.model_copy(update={"uid": "u2"}),
        here.model_copy(update={"uid": None, "server": "https://b"}),
        here.model_copy(update={"uid": None, "authority": "2"}),
        here.model_copy(update={"uid": None, "namespace": "kitchen"}),
    ):
        with pytest.raises(ProviderTrouble, match="the leases are in lab") as told:
            must_be_noted(other, note)
        assert str(note) in told.value.remedy
    note.write_bytes(b"{")
    with pytest.raises(ProviderTrouble, match="cannot be read"):
        must_be_noted(here, note)


@pytest.mark.parametrize(
    ("said", "shell", "told"),
    [
        ("[kubernetes]\ncontext = 'a'", {"KUBECONFIG": "/k"}, 'kubeconfig = "/k"'),
        ("[kubernetes]\nkubeconfig = '/k'", {"KUBECONFIG": "/k"}, None),
        ("", {"KUBECONFIG": "/k", "SLURM_CONF": "/s"}, None),
        ("[slurm]", {"SLURM_CONF": "/s"}, 'before = ["env", "SLURM_CONF=/s"]'),
        ("[slurm]\nlogin = 'there'", {"SLURM_CONF": "/s"}, None),
    ],
)
def test_a_cluster_that_only_this_shell_names_is_told_before_nobody_attends(
    tmp_path: Path, said: str, shell: dict[str, str], told: str | None
) -> None:
    (tmp_path / "config.toml").write_text(said, encoding="utf-8")

    sentences = [*what_is_lacking(tmp_path / "config.toml", (), shell)]

    assert len(sentences) == (told is not None)
    assert told is None or told in sentences[0]


async def test_a_cluster_that_takes_a_connection_and_says_nothing_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec, "_DIAL_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        (tmp_path / "kubeconfig").write_text(
            f"""\
clusters: [{{name: a, cluster: {{server: "http://127.0.0.1:{deaf.getsockname()[1]}"}}}}]
contexts: [{{name: a, context: {{cluster: a, user: a}}}}]
users: [{{name: a, user: {{token: a}}}}]
""",
            encoding="utf-8",
        )
        way = exec.PodTransport(
            PodAddress(
                context="a",
                namespace="lab",
                pod="p",
                container="box",
                kubeconfig=str(tmp_path / "kubeconfig"),
            )
        )

        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(BoxUnreachable, match="does not answer"):
                await way.open(["true"], way="own")
            dialling = [each for each in threading.enumerate() if each.name == "dial"]
            assert all(each.daemon for each in dialling), "this program's end waits for none"
            for each in dialling:
                await asyncio.to_thread(each.join, PATIENCE_S)
            assert not any(each.is_alive() for each in dialling)


def test_what_the_far_end_tells_is_put_together_from_pieces_of_any_size() -> None:
    told, heard = StderrParser(), b""
    said = b"\x01\x00\x00\x00\x05hello" + b"\x01\x00\x00\x00\x01!" + b"\x00\x00\x00\x00\x01\x07"

    for byte in said:
        heard += told.complaints(bytes((byte,)))

    assert (heard, told.exit_status) == (b"hello!", 7)


def test_what_another_program_says_in_the_far_end_s_place_is_a_complaint() -> None:
    told = StderrParser()

    assert told.complaints(b"exec: python3: not found") == b"exec: python3: not found"
    assert told.exit_status is None


def test_an_order_names_the_image_and_the_room_on_the_nodes_disk() -> None:
    mark = "gpu-tenant:0a1b2c:kubernetes-abcd"

    usual: Any = job(mark, WHERE, gpu_count=1)
    ordered: Any = job(
        mark, WHERE, gpu_count=1, image="me/train:1", pull_secret="pull-me", disk_gb=64
    )

    def box(made: Any) -> Any:
        return made["spec"]["template"]["spec"]["containers"][0]

    assert (box(usual)["image"], box(ordered)["image"]) == ("cuda", "me/train:1")
    assert "imagePullSecrets" not in usual["spec"]["template"]["spec"]
    assert ordered["spec"]["template"]["spec"]["imagePullSecrets"] == [{"name": "pull-me"}]
    assert "ephemeral-storage" not in box(usual)["resources"]["limits"]
    assert box(ordered)["resources"]["limits"]["ephemeral-storage"] == "64G"


# Claims


@pytest.mark.parametrize(
    ("quantity", "size"),
    [
        ("50Gi", 50),
        ("1.5Ti", 1536),
        ("53687091200", 50),
        ("1000G", 931.3225746154785),
        ("5e3Mi", None),
        ("1e9", 0.9313225746154785),
        ("1E", 931322574.6154785),
        ("53687091200000m", 50),
        ("many", None),
        ("", None),
        (None, None),
    ],
)
def test_every_form_of_a_size_that_kubernetes_writes_is_read(
    quantity: str | None, size: float | None
) -> None:
    assert gib(quantity) == (None if size is None else pytest.approx(size))


def test_a_claim_is_as_large_as_it_is_or_as_it_was_asked_to_be() -> None:
    """A disk is enlarged, and billed, before its file system is."""
    asked = {"spec": {"resources": {"requests": {"storage": "100Gi"}}}}

    assert claimed_gib({**asked, "status": {"capacity": {"storage": "50Gi"}}}) == 100
    assert claimed_gib({**asked, "status": {"capacity": {"storage": "128Gi"}}}) == 128
    assert claimed_gib(asked) == 100
    assert claimed_gib({}) is None


def test_a_claim_has_no_owner_and_a_pod_has_it_where_the_order_wants_it() -> None:
    volume = a_volume("kubernetes", "lab", volume_id="uid")

    claim: dict[str, Any] = volume_claim(volume, WHERE)
    ordered: dict[str, Any] = job(MARK, WHERE, gpu_count=1, attached=[volume.attachable("/cache")])

    assert "ownerReferences" not in claim["metadata"]
    spec = ordered["spec"]["template"]["spec"]
    claimed = {v["name"]: v.get("persistentVolumeClaim") for v in spec["volumes"]}
    (mount,) = [m for m in spec["containers"][0]["volumeMounts"] if m["mountPath"] == "/cache"]
    assert (
        claimed[mount["name"]]
        == {"claimName": volume.mark}
        == {"claimName": claim["metadata"]["name"]}
    )


GOOD_CLAIM = {"metadata": {"name": "work", "uid": "u"}, "spec": {}}


@pytest.mark.parametrize(
    "listed",
    [
        {"persistent_volume_claim": [{}]},
        {"persistent_volume_claim": [{"metadata": {"name": 5, "uid": "u"}, "spec": {}}]},
        {"persistent_volume_claim": [{**GOOD_CLAIM, "spec": "none"}]},
        {"persistent_volume_claim": [{**GOOD_CLAIM, "status": {"capacity": 5}}]},
        {"pod": [{"metadata": {"name": "p"}}]},
        {
            "pod": [
                {"metadata": {"name": "p"}, "spec": {"volumes": [{"persistentVolumeClaim": {}}]}}
            ]
        },
        {"job": [{"metadata": {}, "spec": {"template": {}}}]},
    ],
)
async def test_a_list_with_an_odd_claim_pod_or_job_proves_nothing_about_a_volume(
    listed: dict[str, list[dict[str, Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.toml").write_text(
        '[kubernetes]\ncontext = "lab"\nimage = "cuda"\ngpus = ["H100 SXM:8"]\n', encoding="utf-8"
    )
    at = connect(setting(tmp_path, "kubernetes"))
    assert at is not None
    identity = Identity(server="https://here", authority=None, namespace="default", uid="u")

    async def identify() -> Identity:
        return identity

    async def pages(group: str, method: str, **fields: object) -> list[dict[str, Any]]:
        return listed.get(method.removeprefix("list_namespaced_"), [])

    monkeypatch.setattr(at, "_identify", identify)
    monkeypatch.setattr(at._calls, "pages", pages)

    with pytest.raises(ProviderSilent, match="does not tell"):
        await at.list_volumes()
