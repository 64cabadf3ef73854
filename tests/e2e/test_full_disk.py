"""A disk that takes no writes hides no box, and a full one keeps none from being torn down."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from e2e.rehearsal import Rehearsal, nothing_left_of
from mcp import Client
from parts import required, root_required

from gpu_tenant.faces.mcp.server import make_server
from gpu_tenant.ledger import Ledger

LOOKS = (
    ("leases",),
    ("leases", "--all"),
    ("monitor",),
    ("terms",),
    ("limits",),
    ("alarms",),
    ("doctor",),
)


class OnItsOwnDisk:
    """A rehearsal of a provider, whose state directory is a small ext4 disk, and a lease that has done its job."""

    def __init__(self, place: Path, options: str = "loop") -> None:
        self.stage = Rehearsal(place)
        self.state = Path(self.stage.environment["GPU_TENANT_HOME"])
        self.filler = self.state / "filler"
        image, aside = place / "disk.img", place / "aside"
        with image.open("wb") as into:
            into.truncate(48 << 20)
        run("mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", image)
        shutil.copytree(self.state, aside)
        run("mount", "-o", options, image, self.state)
        shutil.copytree(aside, self.state, dirs_exist_ok=True)
        project = place / "project"
        project.mkdir()
        (project / "job.sh").write_text("mkdir -p out; echo done > out/result.txt\n")
        self.lease, self.box = self.stage.rented()
        self.stage.does("push", str(project))
        self.stage.does("launch", "--artifact", "out/", "--", "sh", "job.sh")
        assert "finished" in self.stage.does("monitor", "--wait-s", "20")
        self.stage.does("collect")

    @contextmanager
    def full(self) -> Iterator[None]:
        with self.filler.open("wb", buffering=0) as into:
            for block in (1 << 20, 1 << 12):
                try:
                    while True:
                        into.write(bytes(block))
                except OSError:
                    continue
        try:
            yield
        finally:
            self.filler.unlink(missing_ok=True)

    @contextmanager
    def read_only(self) -> Iterator[None]:
        run("mount", "--bind", self.state, self.state)
        run("mount", "-o", "remount,ro,bind", self.state)
        try:
            yield
        finally:
            run("umount", "-l", self.state)

    def said(self, *words: str) -> tuple[int, str]:
        ran = self.stage.ran(*words)
        return ran.returncode, ran.stdout + ran.stderr


def run(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnItsOwnDisk]:
    required("mount")
    root_required()
    begun: list[Rehearsal] = []
    place = tmp_path_factory.mktemp("full")
    with nothing_left_of(begun):
        made = OnItsOwnDisk(place)
        begun.append(made.stage)
        try:
            yield made
        finally:
            run("umount", "-l", made.state)


@pytest.mark.parametrize("kind", ["full", "read_only"])
def test_every_look_works_and_says_that_nothing_is_recorded(disk: OnItsOwnDisk, kind: str) -> None:
    with getattr(disk, kind)():
        told = {words: disk.said(*words) for words in LOOKS}

    for words, (status, said) in told.items():
        assert "Traceback" not in said, (words, said)
        assert "is recorded" in said, (words, said)
        assert status == (1 if words == ("doctor",) else 0), (words, said)
    assert disk.lease in told[("leases",)][1]
    assert "finished" in told[("monitor",)][1]


def test_a_look_works_on_a_disk_that_its_kernel_has_stopped_after_an_error(tmp_path: Path) -> None:
    required("mount")
    root_required()
    begun: list[Rehearsal] = []
    with nothing_left_of(begun):
        disk = OnItsOwnDisk(tmp_path, "loop,errors=remount-ro")
        begun.append(disk.stage)
        try:
            device = subprocess.check_output(
                ["findmnt", "-no", "SOURCE", str(disk.state)], encoding="utf-8"
            )
            trigger = Path("/sys/fs/ext4", Path(device.strip()).name, "trigger_fs_error")
            with closing(Ledger(disk.state / "ledger.sqlite3")):
                trigger.write_text("1", encoding="utf-8")
                status, said = disk.said("leases")
        finally:
            run("umount", "-l", disk.state)

    assert (status, "Traceback" in said) == (0, False), said
    assert disk.lease in said
    assert "takes no writes" in said


@pytest.mark.parametrize("kind", ["full", "read_only"])
def test_what_must_write_says_what_stands_in_its_way(disk: OnItsOwnDisk, kind: str) -> None:
    with getattr(disk, kind)():
        told = [
            disk.said(*words) for words in (("extend", "--hours", "3"), ("audit",), ("push", "."))
        ]

    wants = "1.0 MB" if kind == "full" else "can be written"
    for status, said in told:
        assert (status, "Traceback" in said) == (6, False), said
        assert str(disk.state) in said
        assert wants in said
        assert "backup" not in said


def test_a_look_at_a_full_disk_changes_no_byte_of_the_ledger(disk: OnItsOwnDisk) -> None:
    ledger = disk.state / "ledger.sqlite3"
    with disk.full():
        before = ledger.read_bytes()
        for words in LOOKS:
            disk.said(*words)
        assert ledger.read_bytes() == before
        assert {path.name for path in disk.state.glob(".re*")} == {".reserve-end", ".reserve-watch"}


async def test_an_agent_sees_its_leases_on_a_full_disk(
    disk: OnItsOwnDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in disk.stage.environment.items():
        monkeypatch.setenv(name, value)
    with disk.full():
        async with Client(make_server(watch_every_s=3600)) as agent:
            told = await agent.call_tool("list_leases", {})
            pushed = await agent.call_tool("push", {"lease": disk.lease, "directory": "."})

    assert told.structured_content is not None
    assert [lease["lease"] for lease in told.structured_content["leases"]] == [disk.lease]
    assert "is full" in told.structured_content["alarms"][0]
    assert pushed.is_error
    assert "DISK_FULL" in str(pushed.content)


def test_a_box_is_torn_down_although_the_disk_is_full(disk: OnItsOwnDisk) -> None:
    with disk.full():
        ran = disk.stage.ran("teardown", disk.lease, "--json")

    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["receipt"]["ground"] == "verified"
    assert disk.said("leases")[1].startswith("no lease is live")


@pytest.mark.parametrize("damage", ["a page in its middle", "its header", "all of it"])
def test_what_is_left_of_a_damaged_ledger_is_shown_and_each_provider_is_asked(
    rehearse: Callable[..., Rehearsal], damage: str
) -> None:
    required("sshd")
    stage = rehearse()
    lease, box = stage.rented()
    ledger = Path(stage.environment["GPU_TENANT_HOME"]) / "ledger.sqlite3"
    content = bytearray(ledger.read_bytes())
    at, much = {
        "a page in its middle": (len(content) // 2, 4096),
        "its header": (0, 100),
        "all of it": (0, len(content)),
    }[damage]
    content[at : at + much] = os.urandom(much)
    ledger.write_bytes(content)

    ran = stage.ran("leases", "--json")
    told = json.loads(ran.stdout)
    refused = stage.ran("audit", lease)

    assert "Traceback" not in ran.stderr
    everything = json.dumps(told)
    if damage == "a page in its middle":
        # Not every look meets that page.
        assert lease in everything
    else:
        assert ran.returncode == 6, ran.stderr
        assert "is damaged" in ran.stderr
        assert box in everything, "its provider was asked"
        assert (refused.returncode, "`gpu-tenant leases`" in refused.stderr) == (6, True)
        assert ledger.read_bytes() == bytes(content), "it was left as it is"


@pytest.mark.parametrize("damage", ["a page that no look meets", "all of it"])
def test_doctor_says_what_is_wrong_what_was_salvaged_what_stands_and_what_is_next(
    rehearse: Callable[..., Rehearsal], damage: str
) -> None:
    required("sshd")
    stage = rehearse()
    _, box = stage.rented()
    ledger = Path(stage.environment["GPU_TENANT_HOME"]) / "ledger.sqlite3"
    content = bytearray(ledger.read_bytes())
    if damage == "all of it":
        content = bytearray(os.urandom(len(content)))
    else:
        # The last page of the free list or of some table: what the integrity check alone looks at.
        content[-4096:] = os.urandom(4096)
    ledger.write_bytes(content)

    ran = stage.ran("doctor", "--json")
    told = json.loads(ran.stdout)

    assert "Traceback" not in ran.stderr
    assert ran.returncode == 6, ran.stderr
    assert told["healthy"] is False
    said = {finding["subject"]: finding for finding in told["findings"]}
    assert "is damaged" in said["ledger"]["words"]
    assert "can be read" in said["ledger"]["words"]
    assert "`gpu-tenant leases`" in said["ledger"]["words"], "the next command"
    assert f"`cp -p {ledger}" in said["ledger"]["words"], (
        "nothing takes its place before it is kept"
    )
    assert "takes no writes" not in json.dumps(told), "that is another fault"
    assert box in said["vastai"]["words"], "its provider was asked what stands"
    assert "may be billing" in said["vastai"]["words"]
    assert ledger.read_bytes() == bytes(content), "it was left as it is"
    shown = stage.ran("leases")
    assert box in shown.stdout + shown.stderr, "the next command shows that box"


class _Recording(BaseHTTPRequestHandler):
    """Passes each request on to a rehearsal, and keeps the keys that come with them."""

    at = ""
    keys: ClassVar[set[str | None]] = set()

    def do_GET(self) -> None:
        self.keys.add(self.headers.get("Authorization"))
        try:
            answer = urlopen(f"{self.at}{self.path}", timeout=30)
        except HTTPError as refused:
            answer = refused
        with answer:
            self.send_response(answer.status)
            self.end_headers()
            self.wfile.write(answer.read())

    def log_message(self, *_: object) -> None:
        """Nothing is written."""


def test_a_damaged_ledger_lets_no_key_be_sent_to_what_calls_itself_a_rehearsal(
    rehearse: Callable[..., Rehearsal], tmp_path: Path
) -> None:
    stage = rehearse()
    home = {"HOME": str(tmp_path), "GPU_TENANT_HOME": str(tmp_path / "state")}
    environ = {"PATH": os.environ["PATH"], "VAST_API_KEY": "the-owner-s-own", **home}

    def does(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "gpu_tenant", *words]
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "ledger.sqlite3").write_bytes(os.urandom(4096))
    _Recording.at = stage.url
    with ThreadingHTTPServer(("127.0.0.1", 0), _Recording) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        marker = {"provider": "vastai", "url": f"http://127.0.0.1:{server.server_port}"}
        (tmp_path / "state" / "rehearsal.json").write_text(json.dumps(marker), encoding="utf-8")
        told = does("leases", "--json")
        server.shutdown()

    assert told.returncode == 6, told.stderr
    assert _Recording.keys, "it was asked for the time at least"
    assert _Recording.keys <= {None}, "no key went there"
    assert "is not a rehearsal's: it was not sent" in told.stdout
