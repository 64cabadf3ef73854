"""What lies on a box and nowhere else is not replaced, not given up unnamed, and not believed away."""

import asyncio
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from e2e.people import Person
from sshd import Sshd
from waited import over

from gpu_tenant.domain.errors import BadRequest, JobRunning, NotSaved, Unverified
from gpu_tenant.service import Tenancy

OLD, NEW = "old", "x" * 5000


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = tmp_path / "tree"
    (tree / "out").mkdir(parents=True)
    (tree / "out" / "weights.bin").write_text(OLD, encoding="utf-8")
    (tree / "train.py").write_text("print(1)\n", encoding="utf-8")
    return tree


async def ran(tenancy: Tenancy, lease: str, command: str, **more: list[str]) -> None:
    """That command has run on the box as a job."""
    artifacts = more.pop("artifacts", ["out/"])
    begun = await tenancy.launch_detached(lease, command, artifacts, **more)
    seen = await over(tenancy, lease, begun.job)
    assert seen.state == "finished", seen


async def trained(tenancy: Tenancy, target: str, tree: Path) -> str:
    """A lease whose job has written weights over those that were pushed."""
    lease = (await tenancy.provision("own", target)).lease
    await tenancy.push(lease, str(tree))
    await ran(tenancy, lease, f"mkdir -p out; printf {NEW} > out/weights.bin")
    return lease


def left_behind(script: str, cwd: Path) -> subprocess.Popen[bytes]:
    """A process that no job is the parent of, as a server of terminals has."""
    return subprocess.Popen(["sh", "-c", script], cwd=cwd, start_new_session=True)


def work(box: Sshd, lease: str) -> Path:
    return box.home / "gpu-tenant" / lease / "work"


async def test_a_push_replaces_nothing_that_is_saved_nowhere(
    person: Person, box: Sshd, tree: Path
) -> None:
    async with person.tenancy() as tenancy:
        lease = await trained(tenancy, box.target, tree)
        (tree / "train.py").write_text("print(2)\n", encoding="utf-8")

        with pytest.raises(NotSaved, match=r"out/weights\.bin \(5,000 bytes\)") as refused:
            await tenancy.push(lease, str(tree))
        there = (work(box, lease) / "train.py").read_text("utf-8")
        await tenancy.collect(lease)
        pushed = await tenancy.push(lease, str(tree))

    assert "collect" in refused.value.remedy
    assert "overwrite" in refused.value.remedy
    assert there == "print(1)\n", "nothing at all was sent"
    assert pushed.sent_files == 2
    assert (work(box, lease) / "out" / "weights.bin").read_text("utf-8") == OLD


async def test_what_is_overwritten_by_name_is_on_the_receipt(
    person: Person, box: Sshd, tree: Path
) -> None:
    async with person.tenancy() as tenancy:
        lease = await trained(tenancy, box.target, tree)
        with pytest.raises(BadRequest, match=r"no 'weights\.bin'"):
            await tenancy.push(lease, str(tree), overwrite=["weights.bin"])
        pushed = await tenancy.push(lease, str(tree), overwrite=["out/weights.bin"])
        await tenancy.collect(lease)
        receipt = (await tenancy.verify_and_teardown(lease)).receipt

    assert pushed.overwritten == ("out/weights.bin",)
    assert "out/weights.bin (5,000 bytes), overwritten by a push" in receipt.given_up


async def test_what_a_job_writes_while_a_push_is_under_way_is_not_replaced_either(
    person: Person, box: Sshd, tree: Path
) -> None:
    async with person.tenancy() as tenancy:
        lease = (await tenancy.provision("own", box.target)).lease
        await tenancy.push(lease, str(tree))
        caretaker = tenancy.context.caretaker(tenancy.ledger.lease(lease))
        (work(box, lease) / "out" / "weights.bin").write_text(NEW, encoding="utf-8")

        with pytest.raises(NotSaved, match=r"meanwhile.*out/weights\.bin"):
            await caretaker.receive({"out/weights.bin": tree / "out" / "weights.bin"}, over={})

    assert (work(box, lease) / "out" / "weights.bin").read_text("utf-8") == NEW


async def test_own_edits_are_pushed_again_and_again_without_a_question(
    person: Person, box: Sshd, tree: Path
) -> None:
    async with person.tenancy() as tenancy:
        lease = (await tenancy.provision("own", box.target)).lease
        for n in range(3):
            (tree / "train.py").write_text(f"print({n})\n", encoding="utf-8")
            await tenancy.push(lease, str(tree))
        (work(box, lease) / ".." / "caretaker" / "pushed.json").unlink()
        (tree / "train.py").write_text("print(9)\n", encoding="utf-8")
        await tenancy.push(lease, str(tree))
        await tenancy.collect(lease)
        assert (await tenancy.verify_and_teardown(lease)).receipt.ground == "verified"


@pytest.mark.parametrize("pattern", ["runs/[2024-01-15]/", "%2e%2e/x", "[b-a]"])
async def test_a_pattern_that_no_box_understands_is_never_put_on_record(
    person: Person, box: Sshd, tree: Path, pattern: str
) -> None:
    async with person.tenancy() as tenancy:
        lease = await trained(tenancy, box.target, tree)
        with pytest.raises(BadRequest) as refused:
            await tenancy.launch_detached(lease, "true", [pattern])
        with pytest.raises(BadRequest):
            await tenancy.collect(lease, artifacts=[pattern])
        assert len(tenancy.ledger.jobs(tenancy.ledger.lease(lease).id)) == 1
        await tenancy.collect(lease)
        assert (await tenancy.verify_and_teardown(lease)).receipt.ground == "verified"

    if pattern.startswith("runs/"):
        assert r"runs/\\[2024-01-15\\]/" in refused.value.message


async def test_an_old_record_of_such_a_pattern_spoils_itself_and_not_the_collect(
    person: Person, box: Sshd, tree: Path
) -> None:
    async with person.tenancy() as tenancy:
        lease = await trained(tenancy, box.target, tree)
        known = tenancy.ledger.lease(lease)
        tenancy.ledger.claim(known.id, artifacts=["[b-a]"], discard=[], at=known.created_at)

        collected = await tenancy.collect(lease)
        with pytest.raises(Unverified, match="bad_pattern"):
            await tenancy.verify_and_teardown(lease)

    assert collected.fetched_files == 2
    assert "[b-a]" in collected.cannot_be_kept[0]


@pytest.mark.parametrize(
    "discard", ["~/?*", "~/gpu-tenant/", "~/gpu-tenant/own-kdhv/", "{home}/", "{parent}/**"]
)
async def test_no_place_is_given_up_as_a_whole_wherever_the_home_is(
    person: Person, box: Sshd, tree: Path, discard: str
) -> None:
    pattern = discard.format(home=box.home, parent=box.home.parent)
    async with person.tenancy() as tenancy:
        lease = await trained(tenancy, box.target, tree)
        with pytest.raises(BadRequest, match="gives up"):
            await tenancy.collect(lease, discard=[pattern])
        with pytest.raises(BadRequest, match="gives up"):
            await tenancy.launch_detached(lease, "true", ["out/"], [pattern])
        assert pattern not in tenancy.ledger.declarations(tenancy.ledger.lease(lease).id)[1]


async def test_a_job_that_the_box_does_not_know_any_more_is_a_loss(
    person: Person, box: Sshd, tree: Path
) -> None:
    async with person.tenancy() as tenancy:
        lease = await trained(tenancy, box.target, tree)
        await tenancy.collect(lease)
        records = work(box, lease).parent / "caretaker"
        for path in sorted((records / "jobs").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        await tenancy.collect(lease)

        with pytest.raises(Unverified, match="everything that job1 wrote"):
            await tenancy.verify_and_teardown(lease)


async def test_an_empty_seal_after_a_full_one_proves_nothing(
    person: Person, box: Sshd, tree: Path
) -> None:
    async with person.tenancy() as tenancy:
        lease = await trained(tenancy, box.target, tree)
        await tenancy.collect(lease)
        (work(box, lease) / "out" / "weights.bin").rename(box.home / "moved")
        (box.home / "moved").unlink()

        with pytest.raises(
            Unverified,
            match=r"gone from the box: 1 file of the last collect: work/out/weights\.bin",
        ):
            await tenancy.verify_and_teardown(lease)
        again = await tenancy.collect(lease, discard=["out/"])
        assert again.only_here == ("work/out/weights.bin",)
        assert (await tenancy.verify_and_teardown(lease)).receipt.ground == "verified"


async def test_work_that_was_handed_to_a_server_of_terminals_is_named_until_it_ends(
    person: Person, box: Sshd, tree: Path
) -> None:
    async with person.tenancy() as tenancy:
        lease = await trained(tenancy, box.target, tree)
        with left_behind("sleep 600; echo x > out/late", work(box, lease)) as handed:
            with pytest.raises(JobRunning, match=rf"process {handed.pid} \(sh -c sleep") as refused:
                await tenancy.collect(lease)
            with pytest.raises(Unverified, match=r"still running: .*at work"):
                await tenancy.verify_and_teardown(lease)
            os.killpg(handed.pid, signal.SIGKILL)
        await tenancy.collect(lease)
        assert (await tenancy.verify_and_teardown(lease)).receipt.ground == "verified"

    assert "kill PID" in refused.value.remedy


async def test_what_was_never_collected_is_refused_without_being_read(
    person: Person, box: Sshd, tree: Path
) -> None:
    async with person.tenancy() as tenancy:
        lease = (await tenancy.provision("own", box.target)).lease
        await tenancy.push(lease, str(tree))
        await ran(tenancy, lease, "mkdir -p out; truncate -s 3T out/sparse.bin")

        with pytest.raises(Unverified, match=r"work/out/sparse\.bin"):
            await asyncio.wait_for(tenancy.verify_and_teardown(lease), 60)


async def test_the_box_remembers_hashes_under_a_key_that_it_does_not_have(
    person: Person, box: Sshd, tree: Path
) -> None:
    async with person.tenancy() as tenancy:
        lease = await trained(tenancy, box.target, tree)
        await tenancy.collect(lease)
        memory = work(box, lease).parent / "caretaker" / "hashes.json"
        record = json.loads(memory.read_text("utf-8"))
        key = tenancy.ledger.seal_key(tenancy.ledger.lease(lease).id)

    assert set(record) == {"proof", "hashes"}
    assert not any(
        key in path.read_text("utf-8", errors="replace")
        for path in (work(box, lease).parent).rglob("*")
        if path.is_file()
    )
