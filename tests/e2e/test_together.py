"""One job over several boxes that have a network of their own: proved before, begun on all, told of on each."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from e2e.people import Person, nothing_left_on
from networks import Host, hosts
from sshd import Sshd
from waited import over

from gpu_tenant.domain.errors import BadRequest, BoxTrouble, Refused
from gpu_tenant.jobs.monitor import Watched
from gpu_tenant.leases.multinode_launch import LaunchedTogether, launch_together
from gpu_tenant.transports.ssh import ensure_key

# What `python3 -m torch.distributed.run` is here: it takes the same options, and sets the same environment.
LAUNCHER = """\
import argparse, os, subprocess, sys
parser = argparse.ArgumentParser()
for name in ("nnodes", "node-rank", "nproc-per-node", "master-port"):
    parser.add_argument("--" + name, type=int)
for name in ("rdzv-backend", "rdzv-id", "rdzv-endpoint", "master-addr"):
    parser.add_argument("--" + name)
told, script = parser.parse_known_args()
assert told.rdzv_endpoint == "%s:%s" % (told.master_addr, told.master_port)
workers = [
    subprocess.Popen(
        [sys.executable, *script],
        env=dict(
            os.environ, RANK=str(told.node_rank * told.nproc_per_node + local), LOCAL_RANK=str(local),
            WORLD_SIZE=str(told.nnodes * told.nproc_per_node),
            MASTER_ADDR=told.master_addr, MASTER_PORT=str(told.master_port),
        ),
    )
    for local in range(told.nproc_per_node)
]
sys.exit(max(worker.wait() for worker in workers))
"""
# An all-reduce over TCP: every rank gives a number, and every rank has the sum.
TRAIN = """\
import fcntl, json, os, socket, struct, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
name = os.environ["GLOO_SOCKET_IFNAME"]
assert os.environ["NCCL_SOCKET_IFNAME"] == "=" + name
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    said = fcntl.ioctl(probe.fileno(), 0x8915, struct.pack("256s", name.encode()))
own = socket.inet_ntoa(said[20:24])
if os.path.exists("fails"):
    sys.exit(3)
if rank == 0:
    with socket.create_server(where) as listener:
        links = [listener.accept()[0] for _ in range(world - 1)]
        total = 1 + sum(int(link.recv(16)) for link in links)
        for link in links:
            link.sendall(b"%d" % total)
    os.makedirs("out", exist_ok=True)
    with open("out/sum.json", "w") as kept:
        json.dump({"sum": total, "from": sorted(link.getpeername()[0] for link in links)}, kept)
else:
    until = time.monotonic() + 120
    while True:
        try:
            link = socket.create_connection(where, source_address=(own, 0))
            break
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.05)
    link.sendall(b"%d" % (rank + 1))
    total = int(link.recv(16))
os.write(1, b"sum %d\\n" % total)  # at once: several write to one log
"""


@dataclass(frozen=True)
class Two:
    """Somebody with a lease on each of two boxes, and the job pushed to both."""

    person: Person
    boxes: list[Sshd]
    net: list[Host]
    names: tuple[str, str]

    async def launch(self, name: str, command: str = "train.py") -> LaunchedTogether:
        """The job was launched over both."""
        async with self.person.tenancy() as tenancy:
            return await launch_together(
                tenancy.context,
                self.names,
                command,
                ["out/"],
                [],
                [],
                launcher="torchrun",
                interface=None,
                port=29400,
                processes=2,
                max_runtime_h=None,
                name=name,
                python="prepared",
            )

    async def jobs(self) -> set[str]:
        """Every job that was ever declared on either."""
        async with self.person.tenancy() as tenancy:
            return {job.id for name in self.names for job in tenancy.ledger.jobs(name)}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Two]:
    root = tmp_path_factory.mktemp("together").resolve()
    package = root / "tree" / "torch" / "distributed"
    package.mkdir(parents=True)
    (package / "run.py").write_text(LAUNCHER, encoding="utf-8")
    (root / "tree" / "train.py").write_text(TRAIN, encoding="utf-8")
    person = Person(root / "person")
    ensure_key(person.public_key.with_suffix(""))
    with ExitStack() as opened:
        patch = opened.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("HOME", person.environment["HOME"])
        patch.delenv("SSH_AUTH_SOCK", raising=False)
        net, boxes = opened.enter_context(hosts(2)), []
        for n, host in enumerate(net):
            directory = root / f"box{n}"
            opened.enter_context(nothing_left_on(directory / "home"))
            box = Sshd(
                directory, authorized=person.public_key, address=host.address, within=host.within
            )
            boxes.append(opened.enter_context(box))

        async def leased() -> tuple[str, str]:
            async with person.tenancy() as tenancy:
                names = [(await tenancy.provision("own", box.target)).lease for box in boxes]
                for name in names:
                    await tenancy.push(name, str(root / "tree"))
            return names[0], names[1]

        yield Two(person, boxes, net, asyncio.run(leased()))


async def ended(person: Person, lease: str, job: str) -> Watched:
    async with person.tenancy() as tenancy:
        return await over(tenancy, lease, job)


async def test_a_pair_that_cannot_talk_is_named_and_nothing_is_launched(two: Two) -> None:
    first, second = two.names
    before = await two.jobs()
    two.net[0].loses(two.net[1])
    try:
        with pytest.raises(Refused, match=f"{first} -> {second}: nothing comes back from"):
            await two.launch("apart")
    finally:
        two.net[0].finds(two.net[1])

    assert await two.jobs() == before


def test_an_address_that_every_machine_has_is_found_out(two: Two) -> None:
    for host in two.net:
        host.ip("link", "add", "eth1", "type", "bridge")
        host.ip("addr", "add", "172.17.0.2/16", "dev", "eth1")
    try:
        told = two.person.gpu_tenant("preflight", *two.names, "--interface", "eth1")
    finally:
        for host in two.net:
            host.ip("link", "del", "eth1")

    assert told.status == 1
    assert f"{' and '.join(two.names)} each claim the address 172.17.0.2" in told.out


async def test_where_one_box_cannot_begin_it_is_stopped_on_the_other(two: Two) -> None:
    first, second = two.names
    work = two.boxes[1].home / "gpu-tenant" / second / "work"
    aside = work.rename(work.with_name("aside"))
    work.write_text("no directory", encoding="utf-8")
    try:
        with pytest.raises(
            BoxTrouble, match=f"{second} did not begin half, so the job was stopped"
        ):
            await two.launch("half")
    finally:
        work.unlink()
        aside.rename(work)

    assert (await ended(two.person, first, "half")).state in {"stopped", "killed", "failed"}
    with pytest.raises(Refused, match="a job runs once"):
        await two.launch("half")


async def test_one_member_that_fails_is_told_of_at_the_other_which_waits_and_bills(
    two: Two,
) -> None:
    first, second = two.names
    two.boxes[1].home.joinpath("gpu-tenant", second, "work", "fails").touch()
    await two.launch("failing")
    assert (await ended(two.person, second, "failing")).state == "failed"

    async with two.person.tenancy() as tenancy:
        seen = await tenancy.monitor(first, "failing", wait_s=0)
        await tenancy.stop_job(first, "failing", grace_s=0)
    two.boxes[1].home.joinpath("gpu-tenant", second, "work", "fails").unlink()
    assert seen.state == "running"
    assert f"the job failed on {second}, and the others wait for it" in (seen.gang or "")
    assert f"gpu-tenant stop {first} {second} --job failing" in (seen.gang or "")


async def test_one_job_runs_over_two_boxes_of_which_the_first_alone_has_something_to_keep(
    two: Two,
) -> None:
    first, second = two.names
    words = ("--together", "torchrun", "--per-node", "2", "--artifact", "out/", "--name", "train")
    begun = two.person.gpu_tenant("launch", first, second, *words, "--json", "--", "train.py", "12")
    assert begun.status == 0, begun
    launched = LaunchedTogether.model_validate_json(begun.out)
    assert launched.checked
    assert {pair.state for pair in launched.checked.pairs} == {"talks"}
    again = await two.launch("train", "train.py 12")
    assert [member.already for member in again.members] == [True, True]
    with pytest.raises(BadRequest, match="runs another command"):
        await two.launch("train", "12")

    for name in (second, first):
        seen = await ended(two.person, name, "train")
        assert (seen.state, "sum 10" in seen.log) == ("finished", True), seen
    assert f"{first} finished, {second} finished" in (seen.gang or "")

    async with two.person.tenancy() as tenancy:
        collected = [await tenancy.collect(name) for name in (first, second)]
        kept = Path(collected[0].directory) / "work" / "out" / "sum.json"
        sources = [host.address for host in (two.net[0], two.net[1], two.net[1])]
        assert json.loads(kept.read_text(encoding="utf-8")) == {"sum": 10, "from": sources}
        torn_down = await tenancy.verify_and_teardown(second)
        assert f"train also ran on {first}" in (torn_down.gang or "")
        assert (await tenancy.verify_and_teardown(first)).gang is None
