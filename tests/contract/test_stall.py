"""A box that gets nothing done is given up soon, whatever it says; one that is slow is waited for."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from arranged import LEASE, lease
from kube.cluster import Cluster
from sshd import Sshd

from gpu_tenant.box.caretaker import Caretaker
from gpu_tenant.box.stall_detection import StallLimit
from gpu_tenant.domain.errors import BoxUnreachable, CaretakerFailed
from gpu_tenant.domain.model import SshAddress
from gpu_tenant.domain.ports import Transport
from gpu_tenant.files.skill_files import script
from gpu_tenant.files.state_dir import Home
from gpu_tenant.providers.kubernetes.exec import PodTransport
from gpu_tenant.transports.local import LocalTransport
from gpu_tenant.transports.ssh import SshTransport, ensure_key

AT_ONCE = StallLimit(within_s=1, bytes_s=50_000, tells_s=0.1)
SOON = StallLimit(within_s=6, bytes_s=50_000, tells_s=0.1)
_BEGINS = """
import json, sys, time
request = json.loads(sys.stdin.buffer.read())
assert request["tells_s"] == 0.1
def say(text):
    sys.stdout.write(text)
    sys.stdout.flush()
    time.sleep(0.05)
"""
LIES = {
    "says nothing": "time.sleep(3600)",
    "sends blank lines": "while True: say('\\n')",
    "sends blanks": "while True: say(' ')",
    "repeats what was done": "while True: say('{\"done\":[7,9000000000]}\\n')",
    "counts up and down": """
while True:
    say('{"done":[0,9000000000]}\\n')
    say('{"done":[0,0]}\\n')
""",
    "reads a byte at a time": """
n = 0
while True:
    n += 1
    say('{"done":[0,%d]}\\n' % n)
""",
    "counts in what is no number": 'while True: say(\'{"done":[0,1e999]}\\n{"done":[true,-5]}\\n{"done":{}}\\n\')',
    "drips an answer": """
say('{"ok":true,"files":{"')
while True: say('aaaaaaaa')
""",
}
SLOW = """
for n in range(28):
    say('{"done":[%d,%d]}\\n' % (n, n * 300000))
    time.sleep(0.25)
print(json.dumps({"ok": True, "files": {}}))
"""
MANY_FILES = SLOW.replace("% (n, n * 300000)", "% (n * 61, 0)")
LONG_ANSWER = """
say('{"ok":true,"files":{},"noise":"')
for n in range(28):
    say('a' * 61000)
    time.sleep(0.25)
print('"}')
"""


@pytest.fixture(params=["local", "ssh", "pod"])
async def way(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Transport]:
    if request.param == "pod":
        cluster: Cluster = request.getfixturevalue("cluster")
        with cluster.box() as (address, _):
            inside = PodTransport(address)
            yield inside
            await inside.aclose()
        return
    if request.param == "local":
        home = tmp_path / "home"
        home.mkdir()
        yield LocalTransport(home)
        return
    state = Home(tmp_path / "state")
    key = ensure_key(state.client_key)
    with Sshd(tmp_path / "sshd", authorized=key.with_suffix(".pub")) as sshd:
        transport = SshTransport(
            SshAddress(target=sshd.target),
            known_hosts=state.known_hosts(LEASE),
            client_key=key,
            tell=lambda _: None,
            owner_ssh=tmp_path / "no-ssh",
        )
        yield transport
        await transport.aclose()


def with_program(way: Transport, tmp_path: Path, text: str, limit: StallLimit = SOON) -> Caretaker:
    """Who asks a box where that stands in the caretaker's place."""
    program = tmp_path / "program.py"
    program.write_text(_BEGINS + text, encoding="utf-8")
    return Caretaker(lease(), way, program, stall=limit)


@pytest.mark.parametrize("lie", LIES)
async def test_a_box_that_gets_nothing_done_is_given_up_whatever_it_says(
    tmp_path: Path, lie: str
) -> None:
    with pytest.raises(BoxUnreachable, match="almost no progress for 1 s of `index`"):
        await with_program(LocalTransport(tmp_path), tmp_path, LIES[lie], AT_ONCE).index(["a"])


@pytest.mark.parametrize("lie", ["says nothing", "repeats what was done", "drips an answer"])
async def test_by_every_way_it_is_given_up_and_the_way_stays_open(
    way: Transport, tmp_path: Path, lie: str
) -> None:
    with pytest.raises(BoxUnreachable, match="almost no progress"):
        await with_program(way, tmp_path, LIES[lie], AT_ONCE).index(["a"])

    assert (await way.run(["echo", "back"], timeout_s=30)).stdout == b"back\n"


@pytest.mark.parametrize("text", [MANY_FILES, LONG_ANSWER], ids=["many files", "a long answer"])
async def test_a_box_that_is_slow_is_waited_for(tmp_path: Path, text: str) -> None:
    asked = with_program(LocalTransport(tmp_path), tmp_path, text)

    assert (await asked.index(["a"])).files == {}


async def test_by_every_way_a_slow_box_is_waited_for(way: Transport, tmp_path: Path) -> None:
    assert (await with_program(way, tmp_path, SLOW).index(["a"])).files == {}


async def test_how_far_a_box_is_is_no_answer(tmp_path: Path) -> None:
    way = LocalTransport(tmp_path)

    with pytest.raises(CaretakerFailed, match="no reply"):
        await with_program(way, tmp_path, "say('{\"done\":[1,1]}\\n')").index(["a"])


async def test_a_large_file_is_sealed_however_long_that_takes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    standing = lease()
    work = home / standing.work_directory
    work.mkdir(parents=True)
    with (work / "large").open("wb") as file:
        file.truncate(4 << 30)
    caretaker = Caretaker(
        standing, LocalTransport(home), script("caretaker.py"), key="k", stall=SOON
    )

    seal = await caretaker.manifest(
        accounted=(), artifacts=["large"], discard=(), since="ever", unread_bytes=4 << 30
    )

    assert [entry.size_bytes for entry in seal.entries] == [4 << 30]
    assert seal.digest


async def test_what_this_side_holds_back_is_not_held_against_the_box(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    small = tmp_path / "small"
    small.write_bytes(b"x" * 10)
    caretaker = Caretaker(lease(), LocalTransport(home), script("caretaker.py"), stall=SOON)

    async def before(size_bytes: int) -> None:
        await asyncio.sleep(SOON.within_s + 0.5)

    assert list((await caretaker.receive({"small": small}, before=before)).files) == ["small"]


async def test_a_box_that_does_not_take_what_is_sent_is_given_up(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    large = tmp_path / "large"
    large.write_bytes(bytes(8 << 20))
    program = tmp_path / "program.py"
    program.write_text("import time; time.sleep(3600)", encoding="utf-8")
    caretaker = Caretaker(lease(), LocalTransport(home), program, stall=AT_ONCE)

    with pytest.raises(BoxUnreachable, match="`receive`"):
        await caretaker.receive({"large": large})
