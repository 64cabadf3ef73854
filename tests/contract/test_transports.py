"""What every transport promises, asked of a local directory and of a box behind a real sshd."""

import asyncio
import contextlib
import hashlib
import os
import resource
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sshd import Sshd, wait_until

from gpu_tenant.errors import BadRequest, BoxTrouble, BoxUnreachable, DiskFull, LocalTrouble
from gpu_tenant.model import SshAddress
from gpu_tenant.ports import Transport
from gpu_tenant.transports.local import LocalTransport
from gpu_tenant.transports.ssh import SshTransport, ensure_key

MIB = 1 << 20
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


@pytest.fixture(params=["local", "ssh"])
async def box(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Box]:
    if request.param == "local":
        home = tmp_path / "home"
        home.mkdir()
        yield Box(LocalTransport(home), home, lambda: shutil.rmtree(home), os.getpid())
        return
    key = ensure_key(tmp_path / "state" / "key")
    with Sshd(tmp_path / "sshd", authorized=key.with_name("key.pub")) as sshd:

        def vanish() -> None:
            sshd.kill_sessions()
            sshd.stop()

        transport = SshTransport(
            SshAddress(target=sshd.target),
            known_hosts=tmp_path / "known_hosts",
            client_key=key,
            tell=lambda _: None,
            owner_ssh=tmp_path / "no-ssh",
        )
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


def ignore(_: int) -> None:
    """Progress nobody looks at."""


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


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
    with pytest.raises(BoxTrouble, match="64 MiB"):
        await box.transport.run(["head", "-c", str(65 * MIB), "/dev/zero"], timeout_s=30)


async def test_a_command_that_does_not_end_in_time_leaves_the_box_unknown(box: Box) -> None:
    with pytest.raises(BoxUnreachable, match=r"did not end in time.*0\.3 s"):
        await box.transport.run(["sleep", "5"], timeout_s=0.3)
    assert (await box.transport.run(["echo", "still here"], timeout_s=10)).exit_status == 0


async def test_a_box_that_vanished_is_unreachable(box: Box, tmp_path: Path) -> None:
    await box.transport.run(["true"], timeout_s=10)
    box.vanish()
    with pytest.raises(BoxUnreachable):
        await box.transport.run(["true"], timeout_s=10)
    with pytest.raises(BoxUnreachable):
        await box.transport.put(Path(__file__), "a")
    with pytest.raises(BoxUnreachable):
        await box.transport.get("a", tmp_path / "a", on_bytes=ignore)


async def test_two_bursts_of_twenty_commands_all_come_back(box: Box) -> None:
    async def burst(name: str) -> list[bytes]:
        runs = [box.transport.run(["echo", f"{name}{n}"], timeout_s=30) for n in range(20)]
        return [ended.stdout for ended in await asyncio.gather(*runs)]

    first, second = await asyncio.gather(burst("a"), burst("b"))
    assert first == [b"a%d\n" % n for n in range(20)]
    assert second == [b"b%d\n" % n for n in range(20)]


# --- put ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE_NAMES)
async def test_a_file_goes_there_and_back_under_any_name(
    box: Box, tmp_path: Path, name: str
) -> None:
    source = tmp_path / name
    source.write_bytes(os.urandom(300_000))
    await box.transport.put(source, name)
    assert (box.home / name).read_bytes() == source.read_bytes()
    back = tmp_path / "back"
    await box.transport.get(name, back, on_bytes=ignore)
    assert back.read_bytes() == source.read_bytes()


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


# --- get ----------------------------------------------------------------------------------------


async def test_what_is_here_already_is_not_fetched_again(box: Box, tmp_path: Path) -> None:
    (box.home / "model").write_bytes(os.urandom(3 * MIB))
    here = tmp_path / "model"
    here.write_bytes((box.home / "model").read_bytes()[:MIB])
    lengths: list[int] = []
    await box.transport.get("model", here, on_bytes=lengths.append)
    assert sum(lengths) == 2 * MIB
    assert digest(here) == digest(box.home / "model")
    await box.transport.get("model", here, on_bytes=lengths.append)
    assert sum(lengths) == 2 * MIB


async def test_an_empty_file_is_fetched_as_one(box: Box, tmp_path: Path) -> None:
    (box.home / "empty").touch()
    await box.transport.get("empty", tmp_path / "empty", on_bytes=ignore)
    assert (tmp_path / "empty").read_bytes() == b""


async def test_a_source_shorter_than_what_is_here_is_refused(box: Box, tmp_path: Path) -> None:
    (box.home / "log").write_bytes(b"short")
    here = tmp_path / "log"
    here.write_bytes(b"rather longer")
    with pytest.raises(BoxTrouble, match="shorter than the 13 bytes"):
        await box.transport.get("log", here, on_bytes=ignore)
    assert here.read_bytes() == b"rather longer"


async def test_what_is_no_file_on_the_box_is_refused(box: Box, tmp_path: Path) -> None:
    (box.home / "directory").mkdir()
    os.mkfifo(box.home / "pipe")
    for source in ("directory", "pipe", "nothing", "/no/such\x1b[2Jplace"):
        with pytest.raises(BoxTrouble) as raised:
            await box.transport.get(source, tmp_path / "here", on_bytes=ignore)
        assert "\x1b" not in str(raised.value)
    assert not (tmp_path / "here").exists()


async def test_a_full_disk_here_keeps_what_came_and_goes_on_later(box: Box, tmp_path: Path) -> None:
    (box.home / "model").write_bytes(os.urandom(8 * MIB))
    here = tmp_path / "model"
    with no_file_beyond(5 * MIB, pid=os.getpid()), pytest.raises(DiskFull, match="stays"):
        await box.transport.get("model", here, on_bytes=ignore)
    assert here.read_bytes() == (box.home / "model").read_bytes()[: 5 * MIB]
    await box.transport.get("model", here, on_bytes=ignore)
    assert digest(here) == digest(box.home / "model")


async def test_no_space_left_here_is_a_full_disk(box: Box, tmp_path: Path) -> None:
    (box.home / "model").write_bytes(b"x" * MIB)
    (tmp_path / "here").symlink_to("/dev/full")
    with pytest.raises(DiskFull, match="No space left"):
        await box.transport.get("model", tmp_path / "here", on_bytes=ignore)
