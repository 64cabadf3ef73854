"""What the way over ssh promises beyond every transport: pinned keys, one kept link, no lost bytes."""

import asyncio
import contextlib
import functools
import getpass
import hmac
import os
import subprocess
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from arranged import LEASE
from parts import required
from sshd import LOOPBACK, Relay, Sshd, make_key, wait_until

from gpu_tenant.domain.errors import BadRequest, BoxTrouble, BoxUnreachable, HostKeyChanged
from gpu_tenant.domain.model import SshAddress
from gpu_tenant.domain.ports import Channel
from gpu_tenant.files.state_dir import Home
from gpu_tenant.leases.ssh_config import Reachable, entry
from gpu_tenant.transports.openssh import OpenSsh
from gpu_tenant.transports.shell import command_line
from gpu_tenant.transports.ssh import SshTransport, ensure_key

MIB = 1 << 20
Client = Literal["ours", "OpenSSH"]
HANDSHAKE_BYTES = 8_000
"""A key exchange and a login take the client fewer bytes than this; a file is larger."""
SHELLS = ["bash", "dash", "zsh", "fish", "tcsh", "busybox sh"]


@dataclass
class Owner:
    """A person with a state directory, a `~/.ssh` and one lease."""

    directory: Path
    told: list[str] = field(default_factory=list)
    opened: list[SshTransport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = Home(self.directory / "state")
        self.key = ensure_key(self.state.client_key)
        self.public_key = self.key.with_suffix(".pub")
        self.known_hosts = self.state.known_hosts(LEASE)
        self.ssh = self.directory / "dot-ssh"
        self.ssh.mkdir()

    def transport(self, target: str, client: Client = "ours") -> SshTransport:
        """A fresh one, as another process of this owner would have, whose own channels that client opens."""
        address = SshAddress(target=target)
        made = SshTransport(
            address,
            known_hosts=self.known_hosts,
            client_key=self.key,
            tell=self.told.append,
            owner_ssh=self.ssh,
            openssh=OpenSsh.find_client(
                LEASE,
                lambda: entry(Reachable(LEASE, address), self.state, self.ssh),
                self.config,
            )
            if client == "OpenSSH"
            else None,
        )
        self.opened.append(made)
        return made

    @property
    def config(self) -> Path:
        """What the system's own client is told of the box."""
        return self.state.channels(LEASE)


@pytest.fixture
async def owner(tmp_path: Path) -> AsyncIterator[Owner]:
    made = Owner(tmp_path)
    yield made
    for transport in made.opened:
        await transport.aclose()


@pytest.fixture
def box(tmp_path: Path, owner: Owner) -> Iterator[Sshd]:
    with Sshd(tmp_path / "box", authorized=owner.public_key) as sshd:
        yield sshd


@pytest.fixture
def relay(box: Sshd) -> Iterator[Relay]:
    with Relay(box.port) as made:
        yield made


@pytest.fixture
def agent_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A key that a running ssh-agent holds, and nobody else."""
    key, socket = make_key(tmp_path / "mine"), tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        wait_until(socket.exists)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        subprocess.run(["ssh-add", "-q", key], check=True)
        key.unlink()
        yield key
    finally:
        agent.terminate()
        agent.wait(timeout=120)


def fingerprint(host_key: str) -> str:
    told = subprocess.run(
        ["ssh-keygen", "-l", "-f", "-"],
        input=host_key,
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    return told.stdout.split()[1]


def hashed_name(name: str) -> str:
    """`name` as OpenSSH hides it under HashKnownHosts."""
    salt = os.urandom(20)
    hidden = hmac.digest(salt, name.encode(), "sha1")
    return f"|1|{b64encode(salt).decode()}|{b64encode(hidden).decode()}"


# --- host keys ----------------------------------------------------------------------------------


async def test_first_contact_pins_the_key_says_so_and_only_then_sends(
    owner: Owner, box: Sshd
) -> None:
    ended = await owner.transport(box.target).run(["cat", str(owner.known_hosts)], timeout_s=10)
    assert ended.stdout.decode().strip() == f"[{LOOPBACK}]:{box.port} {box.host_key}"
    assert owner.known_hosts.stat().st_mode & 0o777 == 0o600
    (told,) = owner.told
    assert told.startswith(f"pinned {fingerprint(box.host_key)} for [{LOOPBACK}]:{box.port}")
    await owner.transport(box.target).run(["true"], timeout_s=10)
    assert owner.told == [told]


async def test_a_changed_host_key_gets_no_login_and_no_byte_of_ours(
    owner: Owner, box: Sshd, relay: Relay, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(os.urandom(MIB))
    transport = owner.transport(relay.target)
    await transport.run(["true"], timeout_s=10)
    old = box.host_key
    box.restart(new_host_key=make_key(tmp_path / "other"))
    sent, log = relay.sent_by_client, len(box.log)
    for attempt in (
        transport.put(secret, "secret"),
        transport.run(["cat"], stdin=secret.read_bytes(), timeout_s=10),
        owner.transport(relay.target).run(["true"], timeout_s=10),
    ):
        with pytest.raises(HostKeyChanged) as raised:
            await attempt
        assert fingerprint(old) in raised.value.message
        assert fingerprint(box.host_key) in raised.value.message
        assert str(owner.known_hosts) in raised.value.remedy
    assert relay.sent_by_client - sent < 3 * HANDSHAKE_BYTES
    assert "userauth-request" not in box.log[log:]
    assert len(owner.told) == 1


async def test_a_host_key_of_another_kind_is_a_changed_one(
    owner: Owner, box: Sshd, tmp_path: Path
) -> None:
    await owner.transport(box.target).run(["true"], timeout_s=10)
    box.restart(new_host_key=make_key(tmp_path / "rsa", kind="rsa"))
    with pytest.raises(HostKeyChanged):
        await owner.transport(box.target).run(["true"], timeout_s=10)


@pytest.mark.parametrize("hashed", ["plain", "hashed"])
async def test_a_key_the_owner_knows_already_is_the_pin(
    owner: Owner, box: Sshd, hashed: str
) -> None:
    known = owner.ssh / "known_hosts"
    known.write_text(
        f"not a line\n{LOOPBACK} ssh-ed25519 {'A' * 68}\n[{LOOPBACK}]:{box.port} {box.host_key}\n",
        encoding="utf-8",
    )
    if hashed == "hashed":
        known.write_text(
            hashed_name(f"[{LOOPBACK}]:{box.port}") + f" {box.host_key}\n", encoding="utf-8"
        )
    await owner.transport(box.target).run(["true"], timeout_s=10)
    assert "as in your own known_hosts" in owner.told[0]


async def test_a_key_other_than_the_owner_knows_is_refused_at_first_contact(
    owner: Owner, box: Sshd, tmp_path: Path
) -> None:
    other = make_key(tmp_path / "other").with_name("other.pub").read_text(encoding="utf-8")
    (owner.ssh / "known_hosts").write_text(f"[{LOOPBACK}]:{box.port} {other}", encoding="utf-8")
    with pytest.raises(HostKeyChanged) as told:
        await owner.transport(box.target).run(["true"], timeout_s=10)
    assert str(owner.ssh / "known_hosts") in told.value.remedy
    assert not owner.known_hosts.exists()
    assert "userauth-request" not in box.log


async def test_a_host_known_at_another_port_is_a_stranger(
    owner: Owner, box: Sshd, tmp_path: Path
) -> None:
    other = make_key(tmp_path / "other").with_name("other.pub").read_text(encoding="utf-8")
    (owner.ssh / "known_hosts").write_text(f"{LOOPBACK} {other}", encoding="utf-8")
    await owner.transport(box.target).run(["true"], timeout_s=10)
    assert "seen for the first time" in owner.told[0]


# --- the kept connection ------------------------------------------------------------------------


async def test_twenty_commands_in_a_row_and_forty_at_once_take_one_login(
    owner: Owner, box: Sshd
) -> None:
    transport = owner.transport(box.target)
    for _ in range(20):
        await transport.run(["true"], timeout_s=10)
    many = [transport.run(["sh", "-c", "sleep 0.05; echo x"], timeout_s=30) for _ in range(40)]
    assert all(ended.stdout == b"x\n" for ended in await asyncio.gather(*many))
    assert box.logins == 1


async def test_a_box_with_fewer_sessions_than_we_would_use_still_serves_all(
    owner: Owner, tmp_path: Path
) -> None:
    with Sshd(tmp_path / "few", authorized=owner.public_key, options="MaxSessions 2") as box:
        transport = owner.transport(box.target)
        many = [transport.run(["echo", "x"], timeout_s=30) for _ in range(12)]
        assert all(ended.stdout == b"x\n" for ended in await asyncio.gather(*many))
        assert box.logins == 1


async def test_a_host_that_only_forwards_says_so(owner: Owner, tmp_path: Path) -> None:
    refusing = "MaxSessions 0"
    with (
        Sshd(tmp_path / "none", authorized=owner.public_key, options=refusing) as box,
        pytest.raises(BoxTrouble, match="would not run a command"),
    ):
        await owner.transport(box.target).run(["true"], timeout_s=30)


async def test_a_restarted_sshd_is_reached_again_without_a_word(owner: Owner, box: Sshd) -> None:
    transport = owner.transport(box.target)
    await transport.run(["true"], timeout_s=10)
    box.restart()
    assert (await transport.run(["echo", "back"], timeout_s=10)).stdout == b"back\n"
    assert box.logins == 2


async def test_a_link_that_swallows_everything_is_left_for_a_new_one(
    owner: Owner, relay: Relay, box: Sshd
) -> None:
    transport = owner.transport(relay.target)
    await transport.run(["true"], timeout_s=10)
    relay.black_hole()
    assert (await transport.run(["echo", "back"], timeout_s=20)).stdout == b"back\n"
    assert box.logins == 2


async def test_a_command_under_a_cut_link_is_never_sent_again(
    owner: Owner, box: Sshd, relay: Relay
) -> None:
    transport = owner.transport(relay.target)
    running = asyncio.create_task(
        transport.run(["sh", "-c", "echo ran >>ran; sleep 5"], timeout_s=30)
    )
    await asyncio.to_thread(wait_until, (box.home / "ran").exists)
    relay.cut()
    with pytest.raises(BoxUnreachable, match="may still be running"):
        await running
    assert (await transport.run(["cat", "ran"], timeout_s=10)).stdout == b"ran\n"


async def test_a_box_that_answers_nothing_is_unknown_in_time(owner: Owner, relay: Relay) -> None:
    relay.stall()
    with pytest.raises(BoxUnreachable):
        await owner.transport(relay.target).run(["true"], timeout_s=0.5)


# --- files over a link that breaks --------------------------------------------------------------


@pytest.mark.parametrize("client_bytes", [20_000, 3 * MIB, 7 * MIB])
async def test_a_put_that_is_cut_leaves_no_destination(
    owner: Owner,
    box: Sshd,
    relay: Relay,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    client_bytes: int,
) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(8 * MIB))
    transport = owner.transport(relay.target)
    await transport.run(["true"], timeout_s=10)
    relay.cut_after_client(client_bytes=client_bytes)
    with pytest.raises(BoxUnreachable):
        await transport.put(source, "model")
    assert caplog.messages == []
    wait_until(lambda: not list(box.home.iterdir()))
    await transport.put(source, "model")
    assert (box.home / "model").read_bytes() == source.read_bytes()


# --- channels -----------------------------------------------------------------------------------

by_either_client = pytest.mark.parametrize("client", ["ours", "OpenSSH"])


async def heard(channel: Channel, *, told: bytes = b"") -> bytes:
    """All that came over a channel until its end, which was told that first; it is closed."""

    def converse() -> bytes:
        with channel.reader, channel.writer:
            with contextlib.suppress(OSError):  # what has ended takes nothing more
                channel.writer.sendall(told)
            said = bytearray()
            with contextlib.suppress(OSError):
                while chunk := channel.reader.recv(MIB):
                    said += chunk
            channel.hang_up()
            return bytes(said)

    return await asyncio.to_thread(converse)


def clients() -> list[list[bytes]]:
    """The words of every ssh that this process has started."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="utf-8")
    argvs = [Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in listed.split()]
    return [argv for argv in argvs if Path(os.fsdecode(argv[0])).name == "ssh"]


def started_with(config: Path) -> list[str]:
    """Every process that has that file among its words."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.fsencode(config) in (process / "cmdline").read_bytes():
                found.append(process.name)
    return found


async def test_a_channel_over_the_kept_connection_needs_no_login(owner: Owner, box: Sshd) -> None:
    transport = owner.transport(box.target, "OpenSSH")
    await transport.run(["true"], timeout_s=10)
    for _ in range(10):  # more than there may be at once
        assert await heard(await transport.open(["echo", "in"], way="kept")) == b"in\n"
    assert box.logins == 1


async def test_as_many_kept_channels_as_a_connection_has_leave_the_next_waiting(
    owner: Owner, box: Sshd
) -> None:
    transport = owner.transport(box.target)
    held = [await transport.open(["cat"], way="kept") for _ in range(8)]
    waiting = asyncio.create_task(transport.run(["echo", "came"], timeout_s=10))
    done, _ = await asyncio.wait([waiting], timeout=0.1)
    assert not done
    for channel in held:
        channel.hang_up()
    assert (await waiting).stdout == b"came\n"
    for channel in held:
        channel.reader.close()
        channel.writer.close()


@by_either_client
async def test_a_channel_of_its_own_has_a_login_of_its_own(
    owner: Owner, box: Sshd, client: Client
) -> None:
    transport = owner.transport(box.target, client)
    await transport.run(["true"], timeout_s=10)
    channels = [await transport.open(["sh", "-c", "echo in; cat"], way="own") for _ in range(3)]
    said = [await asyncio.to_thread(channel.reader.recv, 3) for channel in channels]
    assert said == [b"in\n"] * 3
    assert (box.logins, len(clients())) == (4, 3 if client == "OpenSSH" else 0)
    for channel in channels:
        channel.hang_up()
        assert await heard(channel) == b""


def test_where_no_ssh_is_installed_there_is_none_to_ask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert OpenSsh.find_client(LEASE, str, tmp_path / "config") is None


async def test_no_key_is_among_the_words_of_a_client_or_in_what_it_is_told_of_the_box(
    owner: Owner, box: Sshd
) -> None:
    transport = owner.transport(box.target, "OpenSSH")
    await transport.run(["true"], timeout_s=10)
    channel = await transport.open(["sh", "-c", "echo in; cat"], way="own")
    await asyncio.to_thread(channel.reader.recv, 3)
    (words,) = clients()
    channel.hang_up()
    await heard(channel)

    shown = b" ".join(words) + owner.config.read_bytes()
    secret = owner.key.read_bytes().splitlines()[1:-1]
    assert secret
    assert not [line for line in secret if line in shown]
    assert b"PRIVATE KEY" not in shown
    assert os.fsencode(owner.key) not in b" ".join(words)
    assert owner.config.stat().st_mode & 0o777 == 0o600
    assert owner.config.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in owner.config.parent.iterdir()] == [LEASE]


@by_either_client
async def test_a_stranger_in_the_box_s_place_is_told_nothing_over_a_channel_of_its_own(
    owner: Owner, box: Sshd, relay: Relay, tmp_path: Path, client: Client
) -> None:
    transport = owner.transport(relay.target, client)
    await transport.run(["true"], timeout_s=10)
    box.restart(new_host_key=make_key(tmp_path / "other"))
    sent, log = relay.sent_by_client, len(box.log)

    try:
        channel = await transport.open(["sh", "-c", "echo met; cat"], way="own")
    except HostKeyChanged:
        assert client == "ours"
    else:
        assert await heard(channel, told=b"script " * 10_000) == b""
        with pytest.raises(HostKeyChanged):  # the kept connection is what tells
            await transport.open(["true"], way="kept")

    assert relay.sent_by_client - sent < 2 * HANDSHAKE_BYTES
    assert "userauth-request" not in box.log[log:]


@by_either_client
async def test_a_channel_to_a_box_that_is_not_pinned_yet_is_as_first_contact_or_none(
    owner: Owner, box: Sshd, client: Client
) -> None:
    channel = await owner.transport(box.target, client).open(["echo", "in"], way="own")
    said = await heard(channel)
    # Only our own client can say what it pins.
    assert (said, len(owner.told)) == ((b"in\n", 1) if client == "ours" else (b"", 0))
    assert box.logins == len(owner.told)


@by_either_client
async def test_a_channel_of_its_own_goes_by_the_jump_host_that_the_owner_names(
    owner: Owner, box: Sshd, tmp_path: Path, client: Client
) -> None:
    with Sshd(tmp_path / "jump", authorized=owner.public_key) as jump:
        (owner.ssh / "config").write_text(
            f"Host bastion\n  HostName {LOOPBACK}\n  Port {jump.port}\n"
            f"Host far\n  HostName {LOOPBACK}\n  Port {box.port}\n"
            f"Host *\n  User {getpass.getuser()}\n  ProxyJump bastion\n",
            encoding="utf-8",
        )
        transport = owner.transport("far", client)
        await transport.run(["true"], timeout_s=10)
        said = await heard(await transport.open(["echo", "far"], way="own"))
        assert (said, jump.logins, box.logins) == (b"far\n", 2, 2)
        # Neither is a stranger in the jump host's place told anything.
        jump.restart(new_host_key=make_key(tmp_path / "other"))
        log = len(jump.log)
        with contextlib.suppress(HostKeyChanged):
            assert await heard(await transport.open(["echo", "far"], way="own")) == b""
        assert "userauth-request" not in jump.log[log:]
        assert box.logins == 2
        # The client for the way there ends with the one that it was started by.
        await asyncio.to_thread(wait_until, lambda: not started_with(owner.config))


@by_either_client
async def test_what_the_owner_wants_of_a_terminal_is_not_for_a_channel(
    owner: Owner, box: Sshd, client: Client, tmp_path: Path
) -> None:
    (owner.ssh / "config").write_text(
        f"Host far\n  HostName {LOOPBACK}\n  Port {box.port}\n  User {getpass.getuser()}\n"
        f"  RequestTTY force\n  RemoteCommand tmux\n  LocalForward {tmp_path}/socket {LOOPBACK}:1\n"
        f"  PermitLocalCommand yes\n  LocalCommand touch {tmp_path}/touched\n",
        encoding="utf-8",
    )
    transport = owner.transport("far", client)
    await transport.run(["true"], timeout_s=10)
    channel = await transport.open(["sh", "-c", "echo in; cat"], way="own")
    assert await asyncio.to_thread(channel.reader.recv, 9) == b"in\n"
    channel.hang_up()
    await heard(channel)
    assert not (tmp_path / "touched").exists()
    assert not (tmp_path / "socket").exists()


@pytest.mark.parametrize("way", ["kept", "own"])
@by_either_client
async def test_a_channel_whose_link_is_cut_ends_behind_what_had_come(
    owner: Owner, relay: Relay, client: Client, way: Literal["kept", "own"]
) -> None:
    transport = owner.transport(relay.target, client)
    await transport.run(["true"], timeout_s=10)
    relay.cut_after(server_bytes=3 * MIB)
    channel = await transport.open(["sh", "-c", "head -c 8000000 /dev/zero; cat"], way=way)
    said = await heard(channel)
    assert len(said) < 3 * MIB
    assert said == bytes(len(said))


async def test_a_box_that_lets_us_in_and_runs_nothing_leaves_no_connection(
    owner: Owner, tmp_path: Path
) -> None:
    refusing = "MaxSessions 0"
    with Sshd(tmp_path / "none", authorized=owner.public_key, options=refusing) as box:
        with pytest.raises(BoxTrouble):
            await owner.transport(box.target).open(["true"], way="own")
        gone = functools.partial(wait_until, lambda: box.log.count("Disconnected from user") == 1)
        await asyncio.to_thread(gone)


# --- who we are, and how we get there -----------------------------------------------------------


async def test_a_box_that_knows_none_of_our_keys_is_told_which_to_add(
    owner: Owner, tmp_path: Path
) -> None:
    stranger = make_key(tmp_path / "stranger").with_name("stranger.pub")
    with Sshd(tmp_path / "closed", authorized=stranger) as box:
        with pytest.raises(BoxTrouble) as raised:
            await owner.transport(box.target).run(["true"], timeout_s=10)
        assert owner.public_key.read_text(encoding="utf-8").strip() in raised.value.remedy
        assert not isinstance(raised.value, BoxUnreachable)


async def test_an_alias_of_the_owner_and_the_owners_own_key_are_used(
    owner: Owner, tmp_path: Path
) -> None:
    make_key(owner.ssh / "locked", passphrase="not for us")
    mine = make_key(owner.ssh / "mine")
    with Sshd(tmp_path / "theirs", authorized=mine.with_name("mine.pub")) as box:
        (owner.ssh / "config").write_text(
            f"Host gpu-*\n  HostName {LOOPBACK}\n  Port {box.port}\n  User {getpass.getuser()}\n"
            f"  IdentityFile {owner.ssh}/absent\n  IdentityFile {owner.ssh}/locked\n"
            f"  IdentityFile {mine}\n  IdentitiesOnly yes\n",
            encoding="utf-8",
        )
        ended = await owner.transport("gpu-1").run(["echo", "in"], timeout_s=10)
    assert ended.stdout == b"in\n"


async def test_a_key_in_the_agent_opens_the_box(
    owner: Owner, agent_key: Path, tmp_path: Path
) -> None:
    with Sshd(tmp_path / "theirs", authorized=agent_key.with_name("mine.pub")) as box:
        ended = await owner.transport(box.target).run(["echo", "in"], timeout_s=10)
    assert ended.stdout == b"in\n"


async def test_a_box_behind_a_jump_host_is_reached_and_both_are_pinned(
    owner: Owner, box: Sshd, tmp_path: Path
) -> None:
    with Sshd(tmp_path / "jump", authorized=owner.public_key) as jump:
        (owner.ssh / "config").write_text(
            f"Host bastion\n  HostName {LOOPBACK}\n  Port {jump.port}\n"
            f"Host far\n  HostName {LOOPBACK}\n  Port {box.port}\n"
            f"Host *\n  User {getpass.getuser()}\n  ProxyJump bastion\n",
            encoding="utf-8",
        )
        ended = await owner.transport("far").run(["echo", "far"], timeout_s=10)
        assert ended.stdout == b"far\n"
        assert (jump.logins, box.logins) == (1, 1)
        pins = owner.known_hosts.read_text(encoding="utf-8")
        assert jump.host_key in pins
        assert box.host_key in pins
        jump.restart(new_host_key=make_key(tmp_path / "other"))
        with pytest.raises(HostKeyChanged):
            await owner.transport("far").run(["true"], timeout_s=10)
        assert box.logins == 1


@pytest.mark.parametrize("target", ["", "a b", "-oProxyCommand=x", "host:", "host:99999", "[::1"])
async def test_a_target_that_makes_no_sense_is_a_bad_request(owner: Owner, target: str) -> None:
    with pytest.raises(BadRequest):
        await owner.transport(target).run(["true"], timeout_s=10)


@pytest.mark.parametrize("shell", SHELLS)
def test_every_login_shell_reads_our_line_alike(shell: str) -> None:
    required(shell.split()[0])
    odd = [*map(chr, range(1, 128)), "!!", "\\n", "\\'", "a\nb\n", "$(id)", "é", "\udcff", "", "-n"]
    told = subprocess.run(
        [*shell.split(), "-c", command_line(["printf", "%s\\0", *odd])],
        capture_output=True,
        check=True,
    )
    assert told.stdout == b"".join(os.fsencode(argument) + b"\0" for argument in odd)


def test_our_key_is_private_and_made_once(tmp_path: Path) -> None:
    key = ensure_key(tmp_path / "state" / "key")
    content = key.read_bytes()
    assert (key.stat().st_mode & 0o777, key.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert key.with_name("key.pub").read_text(encoding="utf-8").split()[::2] == [
        "ssh-ed25519",
        "gpu-tenant",
    ]
    key.chmod(0o644)
    assert ensure_key(key).read_bytes() == content
    assert key.stat().st_mode & 0o777 == 0o600
    assert sorted(found.name for found in key.parent.iterdir()) == ["key", "key.pub"]
