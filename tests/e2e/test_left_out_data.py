"""Data that `.gitignore` leaves out of the work tree: whoever fails for it is told its name and the line that sends it."""

import re
import shlex
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from e2e.renting import Tenant, tenant_at
from e2e.watching import Scene
from errands import Asker, a_tree, an_errand, goes_on

from gpu_tenant.errands.answers import in_few_words

READS = "cat data/train.bin > /dev/null || { echo \"No such file or directory: 'data/train.bin'\"; exit 1; }"
"""It says so as Python does."""


@pytest.fixture
async def renting(tmp_path: Path) -> AsyncIterator[Tenant]:
    async with tenant_at("runpod", tmp_path, time="runs") as tenant:
        yield tenant


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tree = a_tree(tmp_path / "tree", READS)
    (tree / ".gitignore").write_text("data/\n", encoding="utf-8")
    (tree / "data").mkdir()
    (tree / "data" / "train.bin").write_bytes(b"numbers")
    return tree


async def test_a_failed_smoke_test_names_what_was_left_out_and_the_line_that_includes_it(
    renting: Tenant, tree: Path
) -> None:
    failed = await renting.tenancy.run_smoke(str(tree), READS)

    assert failed.missing == ("data/",)
    assert (
        "its log reports data/ as missing, which its copy, like a push, left out (by .gitignore)"
        in failed.next
    )
    (line,) = re.findall(r"`gpu-tenant (smoke [^`]*)`", failed.next)
    words = shlex.split(line.partition(" -- ")[0])
    assert words == ["smoke", str(tree), "--include", "data/"]

    passed = await renting.tenancy.run_smoke(words[1], READS, include=words[3:])

    assert passed.passed


async def test_a_smoke_test_that_fails_for_another_reason_is_told_what_it_had_not(
    renting: Tenant, tree: Path
) -> None:
    failed = await renting.tenancy.run_smoke(str(tree), "echo broken; exit 3")

    assert failed.missing == ()
    assert "if it needs what was left out: `--include NAME`" in failed.next


async def test_a_run_whose_smoke_test_misses_data_names_it_and_the_line_goes_through(
    renting: Tenant, tree: Path
) -> None:
    failed = await goes_on(renting.tenancy, an_errand(renting.tenancy, tree, smoke=READS))

    assert failed.step == "smoke"
    assert (
        "its log reports data/ as missing, which its copy, like a push, left out (by .gitignore)"
        in failed.words
    )
    assert "the same line with `--include data/`" in failed.next

    done = await goes_on(
        renting.tenancy, an_errand(renting.tenancy, tree, smoke=READS, include=("data/",))
    )

    assert done.outcome == "done", done


async def test_a_run_whose_smoke_test_fails_otherwise_names_all_that_was_left_out(
    renting: Tenant, tree: Path
) -> None:
    failed = await goes_on(renting.tenancy, an_errand(renting.tenancy, tree, smoke="exit 3"))

    assert "its copy, like a push, left out: data/ (1 file, 7 B), by .gitignore" in failed.words
    assert "`--include NAME`" in failed.next


async def test_a_run_whose_job_misses_data_is_not_told_to_correct_its_code(
    renting: Tenant, tree: Path
) -> None:
    told = await goes_on(renting.tenancy, an_errand(renting.tenancy, tree), Asker())

    assert told.job_state == "failed"
    assert "its log reports data/ as missing, which the push left out (by .gitignore)" in told.words
    assert "the same line with `--include data/`" in told.next
    assert "correct" not in told.next
    few = in_few_words(told)
    assert "nothing bills for it; the same line with" in few.next


async def test_launch_and_monitor_name_the_push_that_sends_it(renting: Tenant, tree: Path) -> None:
    scene = Scene(renting)
    await scene.rent()
    tenancy, lease = renting.tenancy, scene.lease
    await tenancy.push(lease, str(tree))

    launched = await tenancy.launch_detached(lease, "sh train.sh", ["out/"], name="a")
    seen = await tenancy.monitor(lease, "a", wait_s=0)

    send = f"`gpu-tenant push {tree} {lease} --include data/`"
    assert launched.died is not None
    assert (
        "its log reports data/ as missing, which the push left out (by .gitignore)" in launched.died
    )
    assert launched.next == f"{send}, then launch again"
    assert seen.why is not None
    assert seen.why.startswith(
        "left_out: exit status 1; its log reports data/ as missing, which the push left out (by .gitignore)"
    )
    assert "correct the code" not in seen.why
    assert seen.next == f"{send}, then launch it again"

    await tenancy.push(lease, str(tree), include=["data/"])
    again = await tenancy.launch_detached(lease, "sh train.sh", ["out/"], name="b")

    assert again.died is None


async def test_a_log_that_names_what_we_never_listed_gets_no_say(
    renting: Tenant, tree: Path
) -> None:
    scene = Scene(renting)
    await scene.rent()
    tenancy, lease = renting.tenancy, scene.lease
    await tenancy.push(lease, str(tree))
    lies = "echo \"No such file or directory: 'data/../../.ssh/id'; not found: 'evil; rm'\"; exit 1"

    launched = await tenancy.launch_detached(lease, lies, ["out/"], name="a")
    seen = await tenancy.monitor(lease, "a", wait_s=0)

    assert "--include" not in launched.next
    assert (seen.why or "").startswith("exit: ")
    assert "--include" not in seen.next


async def test_a_push_goes_by_the_smoke_test_of_its_lease_and_names_only_what_is_here(
    renting: Tenant, tree: Path
) -> None:
    tenancy, scene = renting.tenancy, Scene(renting)
    (tree / "kept").mkdir()
    (tree / "kept" / "one").write_text("1")
    mine = await tenancy.run_smoke(str(tree), READS, include=["data/"])
    card = await tenancy.provision(
        smoke=mine.id, quotes=(await renting.quotes())[:1], wait_s=3600, when_done="keep"
    )
    scene.lease = card.lease
    await tenancy.run_smoke(str(tree), READS, include=["data/", "kept/"])

    lacking = await tenancy.push(scene.lease, str(tree))
    shutil.rmtree(tree / "data")
    gone = await tenancy.push(scene.lease, str(tree))

    assert f"{mine.id} passed with data/, which stayed here" in (lacking.lacks or "")
    assert "kept/" not in (lacking.lacks or ""), "that was for another box"
    assert gone.lacks is None, "nothing here is named so"


async def test_a_push_and_a_launch_say_what_the_smoke_test_had_and_wrote_and_they_do_not(
    renting: Tenant, tree: Path
) -> None:
    command = f"{READS} && mkdir -p out && echo 1 > out/a.txt && echo 2 > notes.txt"
    receipt = await renting.tenancy.run_smoke(str(tree), command, include=["data/"])
    scene = Scene(renting)
    await scene.rent(when_done="end", idle_h=None, unasked_gib=0)
    tenancy = renting.tenancy

    lacking = await tenancy.push(scene.lease, str(tree))
    (line,) = re.findall(r"`gpu-tenant (push [^`]*)`", lacking.lacks or "")
    whole = await tenancy.push(scene.lease, str(tree), include=shlex.split(line)[4:])
    loose = await tenancy.launch_detached(scene.lease, command, ["out/"], name="train")
    await scene.ends()
    tenancy.context.watches = True
    (unseen,) = (await tenancy.list_leases()).leases
    declared = await tenancy.launch_detached(
        scene.lease, command, ["out/", "notes.txt"], name="again"
    )

    assert f"{receipt.id} passed with data/, which stayed here" in (lacking.lacks or "")
    assert shlex.split(line) == ["push", str(tree), scene.lease, "--include", "data/"]
    assert (whole.lacks, whole.sent_files) == (None, 1)
    assert f"{receipt.id} wrote notes.txt, which no job here declares" in (loose.undeclared or "")
    assert f"`gpu-tenant collect {scene.lease} --artifact '*.txt'` keeps it" in (
        loose.undeclared or ""
    )
    assert unseen.next.startswith(f"{loose.undeclared}; if all is declared, the watchdog collects")
    assert declared.undeclared is None
