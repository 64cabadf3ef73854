"""Whoever waits for a smoke test hears how long it has run, and how far its log has come."""

import os
from pathlib import Path

from e2e.renting import tenant_at
from errands import Asker, a_tree, an_errand, goes_on

from gpu_tenant.files.protected_files import Guarded
from gpu_tenant.jobs.smoke import SmokeReceipt, fingerprint, passed_before, smoke
from gpu_tenant.ledger import Ledger


async def test_while_it_runs_its_time_and_the_last_line_of_its_log_are_told(
    tmp_path: Path, ledger: Ledger
) -> None:
    heard = list[tuple[float, str]]()
    tree = tmp_path / "tree"
    tree.mkdir()

    receipt = await smoke(
        tree,
        "echo epoch 1; sleep 1; echo; echo epoch 2; sleep 1; echo epoch 3",
        time_limit_s=60,
        environ=os.environ,
        ledger=ledger,
        guarded=Guarded((), tmp_path),
        hear=lambda seconds, line: heard.append((seconds, line)),
        hear_every_s=0.05,
    )

    assert receipt.passed
    assert receipt.log_tail.split() == ["epoch", "1", "epoch", "2", "epoch", "3"], "no byte is lost"
    assert next(line for _, line in heard if line) == "epoch 1"
    assert "epoch 2" in [line for _, line in heard]
    assert [seconds for seconds, _ in heard] == sorted(seconds for seconds, _ in heard)


async def test_what_would_be_doubted_of_a_job_that_ends_like_it_is_told(
    tmp_path: Path, ledger: Ledger
) -> None:
    (tmp_path / "tree").mkdir()
    command = (
        "mkdir out; echo '<html>429</html>' > out/model.bin; echo '{}' > out/adapter_config.json; "
        'printf \'{"a": 1}\\n{"a": 2}\\n\' > out/metrics.json; echo Killed'
    )

    receipt = await smoke(
        tmp_path / "tree",
        command,
        time_limit_s=60,
        environ=os.environ,
        ledger=ledger,
        guarded=Guarded((), tmp_path),
    )

    assert receipt.passed
    assert receipt.doubtful == (
        'out/model.bin does not load: "it is a web page or an error in XML, as a failed download leaves it"',
        "Killed, although its exit status is 0",
    )


async def test_a_passed_test_counts_again_for_the_same_files_and_command_alone(
    tmp_path: Path, ledger: Ledger
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "train.sh").write_text("exit 0\n", encoding="utf-8")

    async def tried() -> SmokeReceipt:
        return await smoke(
            tree,
            "sh train.sh",
            time_limit_s=60,
            environ=os.environ,
            ledger=ledger,
            guarded=Guarded((), tmp_path),
        )

    receipt = await tried()

    def counts(command: str = "sh train.sh", *include: str, where: Path = tree) -> bool:
        files = {"train.sh": tree / "train.sh"}
        known = passed_before(
            str(where.resolve()), command, include, fingerprint(files)[0], ledger=ledger
        )
        return known == receipt

    assert receipt.passed
    assert counts()
    assert not counts("sh train.sh --fast")
    assert not counts("sh train.sh", "data/")
    assert not counts(where=tmp_path)
    (tree / "train.sh").write_text("exit 3  # another\n", encoding="utf-8")
    assert not counts()
    assert not (await tried()).passed
    assert not counts()


async def test_a_run_whose_job_is_its_own_smoke_test_says_first_that_a_shorter_command_can_be_named(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        tree = a_tree(tmp_path / "tree")
        own, short = Asker(None), Asker(None)

        await goes_on(tenant.tenancy, an_errand(tenant.tenancy, tree, smoke=None), own)
        await goes_on(
            tenant.tenancy, an_errand(tenant.tenancy, tree, artifacts=("out", "x")), short
        )

    words = (
        "the job's own command is its smoke test, and is stopped after 2 min; `--smoke 'COMMAND'`"
    )
    assert next(line for line in own.heard if "smoke" in line).startswith(words[:60]), own.heard
    assert not any("own command" in line for line in short.heard)
