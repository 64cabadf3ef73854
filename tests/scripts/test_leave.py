"""A box ends its bill with its own key; and what stands for a box here never switches this computer off."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from desk import Answer, Desk

from gpu_tenant.emulators.boxes import MARKER, Sites
from gpu_tenant.emulators.faults import Fault
from gpu_tenant.emulators.server import Stage
from gpu_tenant.transports.local import LocalTransport

LEAVE = Path(__file__).parents[2] / "scripts" / "leave.py"
KEY = "the-box-s-own-key"
POWER_OFF = {"kind": "command", "command": "gpu-tenant-no-such-command --now"}
"""Even if every interlock failed, nothing would be run."""


def leave(verb: str, request: object, home: Path, **environ: str) -> dict[str, Any]:
    """What the script says in a box whose login home that is."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(LEAVE), verb, "--request", "-"],
        input=json.dumps(request).encode(),
        stdout=subprocess.PIPE,
        timeout=120,
        check=False,
        cwd=home,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "GPU_TENANT_NO_POWEROFF": "1",
            **environ,
        },
    )
    said: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if said["ok"] else 2 if said["code"] == "BAD_REQUEST" else 1)
    assert KEY not in done.stdout.decode()
    return said


@pytest.fixture(scope="module")
def module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("leave_on_the_box", LEAVE)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.close()


def marked(home: Path, url: str, **environ: str) -> Path:
    home.mkdir(exist_ok=True)
    said = {"environ": environ, "api": url, "power_off": f"{url}/off"}
    (home / MARKER).write_text(json.dumps(said), encoding="utf-8")
    return home


# --- what must never happen ----------------------------------------------------------------------


def test_the_suite_and_every_box_that_stands_on_this_computer_forbid_a_power_off(
    tmp_path: Path,
) -> None:
    assert os.environ["GPU_TENANT_NO_POWEROFF"] == "1"
    assert LocalTransport(tmp_path)._environment()["GPU_TENANT_NO_POWEROFF"] == "1"
    sites = Sites(tmp_path / "boxes", "ssh", "http://127.0.0.1:1")
    try:
        sites.open("box", [])
        made = tmp_path / "boxes" / "box"
        if sites.way == "ssh":
            config = (made / "sshd_config").read_text(encoding="utf-8")
            (setting,) = [line for line in config.splitlines() if line.startswith("SetEnv")]
            assert "GPU_TENANT_NO_POWEROFF=1" in setting.split()
        assert json.loads((made / "home" / MARKER).read_text(encoding="utf-8"))["environ"] == {}
    finally:
        sites.close_all()


@pytest.mark.parametrize(
    "environ",
    [
        {"GPU_TENANT_NO_POWEROFF": ""},
        {"GPU_TENANT_BOX": "/home/somebody/boxes/x"},
        {"SSH_CONNECTION": "127.0.0.1 5022 127.0.0.1 22"},
        {"SSH_CONNECTION": "::1 5022 ::1 22"},
        {"SSH_CONNECTION": "10.0.0.7 5022 10.0.0.7 22"},
    ],
)
def test_no_command_is_run_where_the_box_may_be_this_computer(
    module: ModuleType, environ: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("GPU_TENANT_NO_POWEROFF", "GPU_TENANT_BOX", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    touched = tmp_path / "touched"

    with pytest.raises(module.Cannot):
        module.switch_off(["touch", str(touched)])

    assert not touched.exists()
    way = module.Command({"command": "touch x"}, None)
    with pytest.raises(module.Cannot):
        way.prove()


def test_a_marker_anywhere_above_the_box_forbids_every_command(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked(tmp_path, "http://127.0.0.1:1")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    for name in ("GPU_TENANT_NO_POWEROFF", "GPU_TENANT_BOX", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(inner))

    with pytest.raises(module.Cannot, match="rehearsal"):
        module.switch_off(["touch", str(inner / "touched")])
    assert not (inner / "touched").exists()


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"environ": {}}',
        '{"environ": 1, "api": "", "power_off": ""}',
        '{"environ": {}, "api": "http://127.0.0.1:1", "power_off": "http://192.0.2.1/off"}',
        '{"environ": {}, "api": "https://console.vast.ai", "power_off": "http://127.0.0.1:1/off"}',
    ],
)
def test_a_marker_that_cannot_be_read_stops_everything(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    (tmp_path / MARKER).write_text(content, encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))

    for request in (POWER_OFF, {"kind": "vastai"}, {"kind": "runpod", "may": "terminate"}):
        assert "rehearsal" in module.prove(request)["why"]
        assert "rehearsal" in module.end(request)["why"]


def test_in_a_rehearsal_a_power_off_is_a_request_to_its_own_address(
    tmp_path: Path, desk: Desk
) -> None:
    home = marked(tmp_path / "home", desk.url)

    assert leave("prove", POWER_OFF, home)["armed"] is True
    assert desk.asked == []
    assert leave("end", POWER_OFF, home)["asked"] is True
    assert [(asked.method, asked.path) for asked in desk.asked] == [("POST", "/off")]


# --- whether it could ----------------------------------------------------------------------------


def test_a_power_off_goes_through_sudo_where_we_are_not_root(module: ModuleType) -> None:
    path = module.as_root(["sh", "-x"], 0)

    assert Path(path[0]).is_absolute()
    assert path[1:] == ["-x"]
    with pytest.raises(module.Cannot, match="there is no"):
        module.as_root(["gpu-tenant-no-such-command"], 0)


@pytest.mark.parametrize(("status", "armed"), [(0, True), (1, False)])
def test_a_command_is_proved_by_what_sudo_allows(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, armed: bool
) -> None:
    told = tmp_path / "told"
    for name, does in (
        ("sudo", f'printf "%s " "$@" > {told}; exit {status}'),
        ("halt-it", "exit 9"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o700)
    for name in ("GPU_TENANT_NO_POWEROFF", "GPU_TENANT_BOX", "SSH_CONNECTION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    proved = module.prove({"kind": "command", "command": "halt-it now"})

    assert proved["armed"] is armed, proved
    assert told.read_text(encoding="utf-8") == f"-n -l {tmp_path}/halt-it now "


def test_vast_may_refuse_a_look_and_grant_what_the_key_is_for(tmp_path: Path, desk: Desk) -> None:
    home = marked(
        tmp_path / "home",
        desk.url,
        VAST_CONTAINERLABEL="C.21",
        CONTAINER_ID="21",
        CONTAINER_API_KEY=KEY,
    )
    desk.says(Answer(403, '{"success": false}'), Answer(200, '{"success": true}'))

    assert leave("prove", {"kind": "vastai"}, home)["armed"] is True

    look, start = desk.asked
    assert (look.method, look.path) == ("GET", "/api/v0/instances/21/")
    assert (start.method, json.loads(start.body)) == ("PUT", {"state": "running"})
    assert {asked.headers["authorization"] for asked in desk.asked} == {f"Bearer {KEY}"}
    assert {asked.headers["user-agent"] for asked in desk.asked} == {"gpu-tenant/1"}


@pytest.mark.parametrize(
    "answers",
    [
        [Answer(401), Answer(401)],
        [Answer(200, '{"instances": {"id": 22}}'), Answer(200, '{"success": false}')],
        [Answer(302, "", {"Location": "http://127.0.0.1:1/"}), Answer(500)],
        [Answer(0), Answer(0)],
    ],
)
def test_a_key_that_proves_nothing_arms_nothing(
    tmp_path: Path, desk: Desk, answers: list[Answer]
) -> None:
    home = marked(tmp_path / "home", desk.url, CONTAINER_ID="21", CONTAINER_API_KEY=KEY)
    desk.says(*answers)

    proved = leave("prove", {"kind": "vastai"}, home)

    assert proved["armed"] is False
    assert proved["why"]


@pytest.mark.parametrize("request_", [{"kind": "vastai"}, {"kind": "runpod", "may": "terminate"}])
def test_a_box_without_a_key_is_not_armed(tmp_path: Path, request_: dict[str, str]) -> None:
    home = marked(tmp_path / "home", "http://127.0.0.1:1")

    assert "this box has no" in leave("prove", request_, home)["why"]


def test_a_pod_is_never_terminated_without_its_owners_signature(tmp_path: Path, desk: Desk) -> None:
    home = marked(tmp_path / "home", desk.url, RUNPOD_POD_ID="abc", RUNPOD_API_KEY=KEY)

    desk.says(Answer(200, "{}"))
    assert leave("end", {"kind": "runpod"}, home)["how"] == "pod abc stops itself with its own key"
    assert leave("end", {"kind": "runpod", "may": "stop"}, home)["asked"] is True
    assert {asked.body for asked in desk.asked} == {b'{"action": "stop"}'}

    desk.says(Answer(200, '{"id": "abc"}'), Answer(204, ""))
    signed = {"kind": "runpod", "may": "terminate"}
    assert leave("prove", signed, home)["armed"] is True
    assert leave("end", signed, home) == {
        "ok": True,
        "asked": True,
        "how": "pod abc terminates itself with its own key",
        "why": "",
        "status": 204,
    }
    assert json.loads(desk.asked[-1].body) == {"action": "terminate"}


@pytest.mark.parametrize("request_", [{}, {"kind": "delete"}, {"kind": "runpod", "may": "x"}, []])
def test_a_wrong_request_is_told(tmp_path: Path, request_: object) -> None:
    assert leave("end", request_, tmp_path)["code"] == "BAD_REQUEST"


# --- at the platforms' rehearsals ----------------------------------------------------------------


@pytest.mark.parametrize(("provider", "status"), [("gcp", "TERMINATED"), ("autodl", "shutdown")])
def test_a_box_that_switches_itself_off_bills_no_gpu(
    tmp_path: Path, provider: str, status: str
) -> None:
    with Stage(provider, tmp_path, way="local", time="frozen") as stage:
        stage._emulator.strike(Fault(do="foreign_box"))
        (box,) = stage.world.things()
        home = tmp_path / "boxes" / box.id.rpartition("/")[2] / "home"
        if not home.exists():  # a box of somebody else's lets nobody in
            stage._sites.open(home.parent.name, [])

        assert leave("end", POWER_OFF, home)["asked"] is True

        stage.world.advance(60)
        assert (box.status, box.phase) == (status, "parked")
        assert [span.component for span in box.spans if span.until is None] in ([], ["disk"])
