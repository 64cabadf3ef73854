"""What every transport promises, asked of a local directory, a box behind a real sshd, and a real pod."""

import asyncio
import contextlib
import functools
import gc
import os
import resource
import shutil
import socket
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from arranged import LEASE, PATIENCE_S, eventually
from kube.cluster import Cluster
from sshd import Sshd, wait_until
from transferring import children

from gpu_tenant.domain.errors import BadRequest, BoxTrouble, BoxUnreachable, LocalTrouble
from gpu_tenant.domain.model import SshAddress
from gpu_tenant.domain.ports import Channel, Transport
from gpu_tenant.files.state_dir import Home
from gpu_tenant.leases.ssh_config import Reachable, entry
from gpu_tenant.providers.kubernetes.exec import PodTransport
from gpu_tenant.transports.local import LocalTransport
from gpu_tenant.transports.openssh import OpenSsh
from gpu_tenant.transports.ssh import SshTransport, ensure_key

MIB = 1 << 20
Way = Literal["kept", "own"]
HOSTILE_NAMES = [
    "plain",
    "-rf",
    "two words",
    "line\nend",
    'it\'s "quoted" `id` $HOME \\ !! *',
    "naïve 训练",
    os.fsdecode(b"not utf-8 \xff\xfe"),
]


@dataclass(frozen=True)
class Box:
    """A box under test: the way to it, and what it looks like from inside."""

    transport: Transport
    home: Path
    vanish: Callable[[], None]
    writing_pid: int


@pytest.fixture(params=["local", "ssh", "pod"])
async def box(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Box]:
    if request.param == "pod":
        cluster: Cluster = request.getfixturevalue("cluster")
        with cluster.box() as (address, container):
            inside = PodTransport(address)
            yield Box(inside, container.home, container.kill, cluster.execs_from)
            await inside.aclose()
        return
    if request.param == "local":
        home = tmp_path / "home"
        home.mkdir()
        yield Box(LocalTransport(home), home, lambda: shutil.rmtree(home), os.getpid())
        return
    state = Home(tmp_path / "state")
    key, known_hosts = ensure_key(state.client_key), state.known_hosts(LEASE)
    with Sshd(tmp_path / "sshd", authorized=key.with_suffix(".pub")) as sshd:

        def vanish() -> None:
            sshd.kill_sessions()
            sshd.stop()

        address, owner_ssh = SshAddress(target=sshd.target), tmp_path / "no-ssh"
        transport = SshTransport(
            address,
            known_hosts=known_hosts,
            client_key=key,
            tell=lambda _: None,
            owner_ssh=owner_ssh,
            openssh=OpenSsh.find_client(
                LEASE,
                lambda: entry(Reachable(LEASE, address), state, owner_ssh),
                state.channels(LEASE),
            )
            if request.param == "openssh"
            else None,
        )
        if request.param == "openssh":  # which knows only a box that was pinned
            await transport.run(["true"], timeout_s=10)
        yield Box(transport, sshd.home, vanish, sshd.pid)
        await transport.aclose()


@contextlib.contextmanager
def no_file_beyond(size_bytes: int, *, pid: int) -> Iterator[None]:
    """Inside, `pid` and what it starts cannot make a larger file: a full disk without a disk."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


def mine() -> tuple[set[str], int, str]:
    """The threads of this process but for the pool's, how many open files it has, and its children."""
    threads = {thread.name for thread in threading.enumerate()}
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="utf-8")
    open_files = len(list(Path("/proc/self/fd").iterdir()))
    return {name for name in threads if not name.startswith("asyncio_")}, open_files, children


def runs(pid: int) -> bool:
    """Whether that process is more than an entry that nobody has reaped yet."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    except OSError:
        return False


# --- run ----------------------------------------------------------------------------------------


async def test_the_exit_status_and_both_outputs_come_back(box: Box) -> None:
    ended = await box.transport.run(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout_s=10)
    assert (ended.exit_status, ended.stdout, ended.stderr) == (3, b"out\n", b"err\n")


@pytest.mark.parametrize(("name", "number"), [("TERM", 15), ("KILL", 9), ("SEGV", 11)])
async def test_a_death_by_signal_is_128_and_the_signal(box: Box, name: str, number: int) -> None:
    ended = await box.transport.run(["sh", "-c", f"kill -{name} $$"], timeout_s=10)
    assert ended.exit_status == 128 + number


async def test_a_command_that_is_not_there_ends_with_127(box: Box) -> None:
    ended = await box.transport.run(["no-such-command-anywhere"], timeout_s=10)
    assert ended.exit_status == 127


async def test_a_command_runs_in_the_login_home(box: Box) -> None:
    ended = await box.transport.run(["sh", "-c", 'pwd; echo "$HOME"'], timeout_s=10)
    assert ended.stdout.decode().split() == [str(box.home)] * 2


async def test_every_byte_goes_in_and_comes_out_unchanged(box: Box) -> None:
    every = bytes(range(256)) * 3 + b"\r\n\x00"
    ended = await box.transport.run(["cat"], stdin=every, timeout_s=10)
    assert ended.stdout == every


async def test_eight_megabytes_go_through_a_command_both_ways(box: Box) -> None:
    much = os.urandom(8 * MIB)

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(much), 100_001):
            yield much[start : start + 100_001]

    assert (await box.transport.run(["cat"], stdin=much, timeout_s=30)).stdout == much
    assert (await box.transport.run(["cat"], stdin=pieces(), timeout_s=30)).stdout == much


async def test_a_command_need_not_read_what_it_is_fed(box: Box) -> None:
    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"y\n" * 1000
            await asyncio.sleep(0)

    ended = await box.transport.run(["true"], stdin=endless(), timeout_s=10)
    assert ended.exit_status == 0
    assert (await box.transport.run(["true"], stdin=b"x" * MIB, timeout_s=10)).exit_status == 0


async def test_an_error_of_the_feeder_is_raised_as_it_was(box: Box) -> None:
    async def breaking() -> AsyncIterator[bytes]:
        yield b"first"
        raise LocalTrouble("the source broke", remedy="mend it")

    with pytest.raises(LocalTrouble, match="the source broke"):
        await box.transport.run(["cat"], stdin=breaking(), timeout_s=10)


@pytest.mark.parametrize("argument", [*HOSTILE_NAMES, "", "%s%b", "\\0101", "a;b|c&d>e"])
async def test_an_argument_arrives_as_it_was(box: Box, argument: str) -> None:
    ended = await box.transport.run(["printf", "%s", argument], timeout_s=10)
    assert ended.stdout == os.fsencode(argument)


async def test_an_argument_that_no_command_can_have_is_refused(box: Box) -> None:
    for argv in ([], ["echo", "a\0b"]):
        with pytest.raises(BadRequest):
            await box.transport.run(argv, timeout_s=10)


async def test_more_output_than_we_would_hold_is_refused(box: Box) -> None:
    with pytest.raises(BoxTrouble, match="192 MiB"):
        await box.transport.run(["head", "-c", str(193 * MIB), "/dev/zero"], timeout_s=120)


async def test_a_command_that_does_not_end_in_time_leaves_the_box_unknown(box: Box) -> None:
    with pytest.raises(BoxUnreachable, match=r"did not end within 0\.3 s"):
        await box.transport.run(["sleep", "5"], timeout_s=0.3)
    assert (await box.transport.run(["echo", "still here"], timeout_s=10)).exit_status == 0


async def test_a_box_that_vanished_is_unreachable(box: Box) -> None:
    await box.transport.run(["true"], timeout_s=10)
    box.vanish()
    with pytest.raises(BoxUnreachable):
        await box.transport.run(["true"], timeout_s=10)
    with pytest.raises(BoxUnreachable):
        await box.transport.put(Path(__file__), "a")


async def test_two_bursts_of_twenty_commands_all_come_back(box: Box) -> None:
    async def burst(name: str) -> list[bytes]:
        runs = [box.transport.run(["echo", f"{name}{n}"], timeout_s=30) for n in range(20)]
        return [ended.stdout for ended in await asyncio.gather(*runs)]

    first, second = await asyncio.gather(burst("a"), burst("b"))
    assert first == [b"a%d\n" % n for n in range(20)]
    assert second == [b"b%d\n" % n for n in range(20)]


# --- put ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE_NAMES)
async def test_a_file_goes_there_under_any_name(box: Box, tmp_path: Path, name: str) -> None:
    source = tmp_path / name
    source.write_bytes(os.urandom(300_000))
    await box.transport.put(source, name)
    assert (box.home / name).read_bytes() == source.read_bytes()


async def test_a_put_file_has_its_mode_and_replaces_the_old_one(box: Box, tmp_path: Path) -> None:
    source = tmp_path / "source"
    for content, mode in ((b"old", 0o600), (b"", 0o755)):
        source.write_bytes(content)
        await box.transport.put(source, "script", mode=mode)
        assert (box.home / "script").read_bytes() == content
        assert (box.home / "script").stat().st_mode & 0o777 == mode


async def test_a_put_that_cannot_be_leaves_nothing_behind(box: Box, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x")
    (box.home / "directory").mkdir()
    for destination in ("no/such/place", "directory"):
        with pytest.raises(BoxTrouble):
            await box.transport.put(source, destination)
    assert [found.name for found in box.home.rglob("*")] == ["directory"]


async def test_a_box_with_a_full_disk_keeps_its_old_file(box: Box, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x" * 8 * MIB)
    (box.home / "model").write_bytes(b"old")
    with no_file_beyond(4 * MIB, pid=box.writing_pid), pytest.raises(BoxTrouble):
        await box.transport.put(source, "model")
    assert (box.home / "model").read_bytes() == b"old"
    wait_until(lambda: [found.name for found in box.home.iterdir()] == ["model"])


async def test_a_source_that_is_not_there_is_our_own_trouble(box: Box, tmp_path: Path) -> None:
    with pytest.raises(LocalTrouble, match="cannot read"):
        await box.transport.put(tmp_path / "nothing", "a")


# --- open ---------------------------------------------------------------------------------------

WAYS = [
    *[("local", "kept"), ("local", "own"), ("ssh", "kept"), ("ssh", "own"), ("openssh", "own")],
    ("pod", "own"),
]
over_every_way = pytest.mark.parametrize(("box", "way"), WAYS, indirect=["box"])


@contextlib.asynccontextmanager
async def opened(box: Box, way: Way, *argv: str) -> AsyncIterator[Channel]:
    """A channel over which that runs, hung up and closed at the end."""
    channel = await box.transport.open(argv, way=way)
    try:
        with channel.reader, channel.writer:
            yield channel
    finally:
        channel.hang_up()


async def heard(channel: Channel) -> bytes:
    """All that the command says until the link ends."""

    def read() -> bytes:
        said = bytearray()
        while chunk := channel.reader.recv(MIB):
            said += chunk
        return bytes(said)

    return await asyncio.to_thread(read)


async def tell(channel: Channel, content: bytes) -> None:
    """The command was told that, and that there is no more."""

    def write() -> None:
        channel.writer.sendall(content)
        channel.writer.shutdown(socket.SHUT_WR)

    await asyncio.to_thread(write)


@over_every_way
async def test_a_channel_takes_input_and_gives_output_in_turns(box: Box, way: Way) -> None:
    script = 'pwd; while read line; do echo "heard $line"; done; echo end'
    async with opened(box, way, "sh", "-c", script) as channel:
        with channel.reader.makefile("rb") as said:
            first = await asyncio.to_thread(said.readline)
            channel.writer.sendall(b"one\n")
            second = await asyncio.to_thread(said.readline)
            await tell(channel, b"two\n")
            rest = await asyncio.to_thread(said.read)
    assert first == f"{box.home}\n".encode()
    assert (second, rest) == (b"heard one\n", b"heard two\nend\n")


@over_every_way
async def test_eight_megabytes_go_through_a_channel_both_ways_at_once(box: Box, way: Way) -> None:
    much = os.urandom(8 * MIB)
    async with opened(box, way, "cat") as channel:
        said, _ = await asyncio.gather(heard(channel), tell(channel, much))
    assert said == much


@over_every_way
async def test_the_end_of_its_output_is_the_end_of_the_link_though_its_input_is_open(
    box: Box, way: Way
) -> None:
    async with opened(box, way, "echo", "short") as channel:
        assert await heard(channel) == b"short\n"


@over_every_way
async def test_what_a_command_complains_of_is_nobodys_however_much_it_is(
    box: Box, way: Way
) -> None:
    script = "head -c 40000000 /dev/zero >&2; echo out"
    async with opened(box, way, "sh", "-c", script) as channel:
        assert await heard(channel) == b"out\n"


@over_every_way
async def test_a_command_that_is_not_there_says_nothing(box: Box, way: Way) -> None:
    # Where it can be told at once, it is.
    with contextlib.suppress(BoxTrouble):
        async with opened(box, way, "no-such-command-anywhere") as channel:
            assert await heard(channel) == b""


@over_every_way
async def test_no_channel_is_opened_for_what_no_command_can_be(box: Box, way: Way) -> None:
    for argv in ([], ["echo", "a\0b"]):
        with pytest.raises(BadRequest):
            await box.transport.open(argv, way=way)


@over_every_way
async def test_who_waits_for_a_command_that_is_hung_up_hears_the_end(box: Box, way: Way) -> None:
    async with opened(box, way, "sh", "-c", "echo begun; exec sleep 60") as channel:
        assert await asyncio.to_thread(channel.reader.recv, 100) == b"begun\n"
        waiting = asyncio.create_task(heard(channel))
        for _ in range(2):
            await asyncio.to_thread(channel.hang_up)
        assert await waiting == b""


@over_every_way
async def test_a_hung_up_channel_leaves_no_process_no_thread_and_no_open_file(
    box: Box, way: Way
) -> None:
    await box.transport.put(Path(__file__), "a")  # from here on the kept link is there
    wait = functools.partial(asyncio.to_thread, wait_until)  # type: ignore[call-arg]
    before = mine()
    for _ in range(3):
        async with opened(box, way, "sh", "-c", "echo $$; exec cat") as channel:
            pid = int(await asyncio.to_thread(channel.reader.recv, 100))
        await wait(lambda pid=pid: not runs(pid))
    await wait(lambda: mine() == before)


@over_every_way
async def test_a_channel_to_a_box_that_vanished_ends_or_is_not_opened(box: Box, way: Way) -> None:
    box.vanish()
    with contextlib.suppress(BoxUnreachable):
        async with opened(box, way, "echo", "there") as channel:
            assert await heard(channel) == b""


def test_a_command_whose_caller_is_cancelled_over_and_over_leaves_nothing_open(
    tmp_path: Path,
) -> None:
    others = children()  # those of fixtures and of other tests

    async def cancelled() -> None:
        run = LocalTransport(tmp_path).run(["sleep", "600"], timeout_s=600)
        running = asyncio.create_task(run)
        await asyncio.to_thread(eventually, lambda: children() - others)
        for _ in range(10):
            running.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await running

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        asyncio.run(cancelled())
        # The thread that waits for the process keeps its transport alive, and lets go of it last.
        for each in threading.enumerate():
            if each.name.startswith("waitpid-"):
                each.join(PATIENCE_S)
        gc.collect()

    assert [str(each.message) for each in said] == []
    assert not children() - others
