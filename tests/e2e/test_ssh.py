"""A person's own ssh client reaches the boxes of leases: with our key, and only the host that was pinned."""

import getpass
import re
import subprocess
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from urllib.request import urlopen

import pytest
from click.testing import CliRunner, Result
from e2e.people import NewBox, Person, Told, ended
from sshd import LOOPBACK, Sshd, _free_port, make_key, wait_until

from gpu_tenant.domain.errors import BadRequest, Refused
from gpu_tenant.faces.cli.registry import command
from gpu_tenant.faces.cli.ssh import forward_argument
from gpu_tenant.leases.login import login


async def adopted(person: Person, target: str) -> str:
    async with person.tenancy() as tenancy:
        return (await tenancy.provision("own", target)).lease


async def entry_of(person: Person, lease: str) -> list[str]:
    async with person.tenancy() as tenancy:
        return (await login(tenancy.context, lease)).entry.splitlines()


def plain_ssh(person: Person, *words: str) -> Told:
    ran = subprocess.run(
        ["ssh", "-o", "BatchMode=yes", *words],
        env=person.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=120,
    )
    return Told(ran.returncode, ran.stdout, ran.stderr)


async def test_a_command_runs_on_the_box_and_its_status_comes_back(
    person: Person, box: Sshd
) -> None:
    lease = await adopted(person, box.target)

    ran = person.gpu_tenant("ssh", lease, "--", "sh", "-c", "echo 'in  $HOME' $HOME; exit 7")
    with_plain_ssh = plain_ssh(person, "-F", str(person.state / "ssh_config"), lease, "echo here")

    assert (ran.status, ran.out) == (7, f"in  $HOME {box.home}\n")
    assert (with_plain_ssh.status, with_plain_ssh.out) == (0, "here\n")
    shown = await entry_of(person, lease)
    assert shown[:2] == [f"Host {lease}", f"    HostName {LOOPBACK}"]
    assert "    StrictHostKeyChecking yes" in shown
    assert (person.state / "ssh_config").stat().st_mode & 0o777 == 0o600


async def test_a_command_without_a_lease_runs_on_the_only_one(person: Person, box: Sshd) -> None:
    await adopted(person, box.target)

    ran = person.gpu_tenant("ssh", "--", "echo", "on", "it")

    assert (ran.status, ran.out) == (0, "on it\n")


async def test_another_host_key_is_refused(person: Person, box: Sshd, tmp_path: Path) -> None:
    lease = await adopted(person, box.target)
    box.restart(new_host_key=make_key(tmp_path / "other"))

    ran = plain_ssh(person, "-F", str(person.state / "ssh_config"), lease, "true")

    assert ran.status == 255
    assert "HOST IDENTIFICATION HAS CHANGED" in ran.err


async def test_a_forward_reaches_a_server_that_listens_on_the_box_alone(
    person: Person, box: Sshd
) -> None:
    class Hello(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"tensorboard")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer((LOOPBACK, 0), Hello) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        lease, port = await adopted(person, box.target), _free_port()
        client = person.begin(
            "ssh",
            lease,
            "--forward",
            f"{port}:localhost:{server.server_port}",
            "--",
            "until [ -e done ]; do sleep 0.02; done",
        )
        page = b""

        def came() -> bool:
            nonlocal page
            try:
                with urlopen(f"http://{LOOPBACK}:{port}/", timeout=5) as answer:
                    page = answer.read()
            except OSError:
                return False
            return True

        wait_until(came)
        (box.home / "done").touch()
        assert ended(client).status == 0
        (box.home / "done").unlink()
        # What the order names is forwarded without naming it again; this port is taken here, by the server itself.
        order = person.home / "gpu-tenant.toml"
        order.write_text(f"ports = [{server.server_port}]\n", encoding="utf-8")
        async with person.tenancy() as tenancy:
            await tenancy.verify_and_teardown(lease)
            card = await tenancy.provision("own", box.target, order=str(order))
        assert f"ports {server.server_port} at 127.0.0.1" in " ".join(card.terms)
        page = b""
        client = person.begin(
            "ssh", card.lease, "--ports", "--", "until [ -e done ]; do sleep 0.02; done"
        )
        assert client.stderr is not None
        told = re.search(r"port (\d+) is at 127.0.0.1:(\d+)$", client.stderr.readline().strip())
        assert told is not None
        assert int(told[1]) == server.server_port
        port = int(told[2])
        wait_until(came)
        (box.home / "done").touch()
        assert ended(client).status == 0
        server.shutdown()
    assert page == b"tensorboard"


async def test_an_order_without_a_port_forwards_none(person: Person, box: Sshd) -> None:
    lease = await adopted(person, box.target)

    ran = person.gpu_tenant("ssh", lease, "--ports", "--", "true")

    assert ran.status == 2
    assert "names no port" in ran.err


async def test_an_alias_keeps_its_jump_host_and_each_host_its_pin(
    person: Person, new_box: NewBox
) -> None:
    gate, box = new_box("gate"), new_box("box")
    (person.home / ".ssh").mkdir()
    (person.home / ".ssh" / "config").write_text(
        f"Host gate\n  HostName {LOOPBACK}\n  Port {gate.port}\n"
        f"Host rig\n  HostName {LOOPBACK}\n  Port {box.port}\n  ProxyJump gate\n"
        "  ServerAliveInterval 77\n"
        f"Host *\n  User {getpass.getuser()}\n",
        encoding="utf-8",
    )
    lease = await adopted(person, "rig")

    before = gate.logins
    ran = plain_ssh(person, "-F", str(person.state / "ssh_config"), lease, "pwd")
    shown = await entry_of(person, lease)

    assert (ran.status, ran.out) == (0, f"{box.home}\n")
    assert gate.logins == before + 1
    assert f"    ProxyJump {lease}-jump1" in shown
    assert "    serveraliveinterval 77" in shown


def test_setup_shows_its_one_line_first_and_keeps_the_files_mode(person: Person) -> None:
    config = person.home / ".ssh" / "config"
    config.parent.mkdir()
    config.write_text("Host rig\n  Port 7\n", encoding="utf-8")
    config.chmod(0o640)

    def setup(said: str) -> Result:
        return CliRunner().invoke(command("ssh"), ["--setup"], input=said)

    declined = setup("n\n")
    untouched = config.read_text(encoding="utf-8")
    agreed, again = setup("y\n"), setup("")

    line = f"Include {person.state / 'ssh_config'}".replace(str(person.home), "~")
    assert (declined.exit_code, untouched) == (1, "Host rig\n  Port 7\n")
    assert f"+{line}" in declined.output
    assert config.read_text(encoding="utf-8") == f"{line}\n\nHost rig\n  Port 7\n"
    assert config.stat().st_mode & 0o777 == 0o640
    assert "to undo" in agreed.output
    assert (again.exit_code, "already" in again.output) == (0, True)


async def test_an_ended_lease_has_no_entry_and_a_local_one_says_where_it_is(
    person: Person, box: Sshd
) -> None:
    entries = person.state / "ssh_config"
    async with person.tenancy() as tenancy:
        lease = (await tenancy.provision("own", box.target)).lease
        assert lease in entries.read_text(encoding="utf-8")
        await tenancy.verify_and_teardown(lease)
        assert lease not in entries.read_text(encoding="utf-8")
        local = (await tenancy.provision("local", smoke="none")).lease

        with pytest.raises(Refused, match="it has no box"):
            await login(tenancy.context, lease)
        with pytest.raises(BadRequest, match="is this computer") as told:
            await login(tenancy.context, local)
    assert f"cd {person.state}/boxes/{local}/home/gpu-tenant/{local}/work" in told.value.remedy


@pytest.mark.parametrize(
    ("forward", "passed_on"),
    [
        ("6006", "127.0.0.1:6006:127.0.0.1:6006"),
        ("6006:6007", "127.0.0.1:6006:127.0.0.1:6007"),
        ("6006:localhost:6007", "127.0.0.1:6006:localhost:6007"),
    ],
)
def test_this_end_of_a_forward_is_on_loopback(forward: str, passed_on: str) -> None:
    assert forward_argument(forward) == passed_on


@pytest.mark.parametrize("forward", ["0", "70000", "6006:", "0.0.0.0:6006:localhost:6006"])
def test_a_forward_that_is_none_is_refused(forward: str) -> None:
    with pytest.raises(BadRequest, match="forwards nothing"):
        forward_argument(forward)
