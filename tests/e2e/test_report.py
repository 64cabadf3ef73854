"""A lease lived through on this computer, and written down as a file afterwards, whatever its job called things."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from e2e.leased import command, end_processes
from pages import require_harmless, require_square
from waited import over

from gpu_tenant.app import open_tenancy
from gpu_tenant.faces.report import Report, as_html, as_markdown, report_of

NAME = "a<script>alert(1)|`x`](javascript:alert(1)) onload=.json"
JOB = f"""
import json, os, sys
name = {NAME!r}
os.makedirs("out")
for step in range(1, 31):
    print(f"step {{step}}/30 loss={{3 / step:.4f}} <script>alert(1)</script>|`](javascript:x)", flush=True)
print("step 30/30 loss=nan")
json.dump({{"loss": 0.1}}, open("out/" + name, "w"))
"""


@dataclass(frozen=True)
class Lived:
    """A lease that has ended, and what was reported of it while it lived."""

    id: str
    before: Report
    after: Report


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    root = tmp_path_factory.mktemp("reported")
    (root / "tree").mkdir()
    (root / "tree" / "run.py").write_text(JOB, encoding="utf-8")

    async def live() -> Lived:
        tenancy = open_tenancy()
        lease = (await tenancy.provision(smoke="none")).lease
        await tenancy.audit(lease)
        await tenancy.push(lease, str(root / "tree"))
        await tenancy.launch_detached(
            lease,
            f"python3 run.py # {NAME}",
            ["out/"],
            discard=["cache|`<b>"],
            name="train",
            env=["TOKEN=text:not-to-be-seen"],
        )
        seen = await over(tenancy, lease)
        assert seen.state == "finished", seen
        before = await report_of(tenancy.context, lease)
        await tenancy.collect(lease)
        await tenancy.verify_and_teardown(lease)
        after = await report_of(tenancy.context, lease)
        await tenancy.aclose()
        return Lived(lease, before, after)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(root))
        patch.setenv("GPU_TENANT_HOME", str(root / "state"))
        yield asyncio.run(live())
        end_processes(root / "state" / "boxes")


def test_the_report_of_a_running_lease_says_that_it_is_not_over(lived: Lived) -> None:
    page = as_html(lived.before)

    require_harmless(page)
    assert "It is not over" in page
    assert lived.before.kept is None
    assert len(lived.before.readings.times) >= 1


def test_the_report_of_an_ended_lease_has_its_receipt_its_evidence_and_its_course(
    lived: Lived,
) -> None:
    told = lived.after

    assert told.receipt is not None
    assert (told.receipt.ground, told.is_over) == ("verified", True)
    assert told.machine is not None
    assert told.machine.startswith("no GPU")
    assert "The box was audited: " in as_markdown(told)
    assert told.kept is not None
    assert (told.kept.proved, told.kept.verified_at is not None) == (told.kept.total, True)
    assert any("script" in file.name and file.outcome == "loads" for file in told.kept.files)
    (train,) = told.jobs
    assert train.env_names == ("TOKEN",)
    assert train.metrics["loss"].values[:2] == (3.0, 1.5)
    assert train.metrics["loss"].not_finite == 1
    assert [one.what for one in told.given_up] == [("cache|`<b>",)]


def test_both_files_bear_what_the_job_called_things_and_hide_no_value(lived: Lived) -> None:
    html, markdown = as_html(lived.after), as_markdown(lived.after)

    page, shown = require_harmless(html), require_square(markdown)
    assert NAME in "".join(page.words)
    assert "alert(1)|`x`](javascript:alert(1))" in shown
    assert page.tags.count("svg") >= 1
    for text in (html, markdown, lived.after.model_dump_json()):
        assert "not-to-be-seen" not in text


def test_the_command_writes_both_files_again_and_leaves_another_s_alone(
    lived: Lived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    for _ in range(2):
        status, said, wrong = command("report", lived.id)
        assert (status, wrong) == (0, "")
    kept = Path(os.environ["GPU_TENANT_HOME"]) / "kept" / lived.id
    assert list(tmp_path.iterdir()) == [], "nothing is written where the command was typed"
    for name in (f"gpu-tenant-{lived.id}.html", f"gpu-tenant-{lived.id}.md"):
        assert str(kept / name) in said
        assert (kept / name).is_file()
    require_harmless((kept / f"gpu-tenant-{lived.id}.html").read_text(encoding="utf-8"))

    (tmp_path / "mine.md").write_text("mine", encoding="utf-8")
    status, said, wrong = command("report", lived.id, "--to", "mine.md")
    assert (status, said) == (2, "")
    assert "was left alone" in wrong
    assert "hint: `gpu-tenant report" in wrong
    assert (tmp_path / "mine.md").read_text(encoding="utf-8") == "mine"


def test_the_command_answers_in_json_as_well(lived: Lived, tmp_path: Path) -> None:
    place = tmp_path / "one.md"

    status, said, _ = command("report", lived.id, "--to", str(place), "--json")

    told = json.loads(said)
    assert status == 0
    assert told["files"] == [str(place)]
    assert told["report"]["receipt"]["ground"] == "verified"
    require_square(place.read_text(encoding="utf-8"))


@pytest.mark.parametrize("changed", [False, True])
def test_a_report_tells_the_commit_of_what_ran_and_whether_the_tree_was_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, changed: bool
) -> None:
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path / "state"))
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "run.py").write_text("print(1)\n", encoding="utf-8")
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", "x")):
        subprocess.run(["git", "-C", str(tree), *words], check=True)
    asked = ["git", "-C", str(tree), "rev-parse", "HEAD"]
    at = subprocess.run(asked, capture_output=True, encoding="utf-8", check=True).stdout[:12]
    if changed:
        (tree / "new.py").write_text("print(2)\n", encoding="utf-8")
    lease = json.loads(command("provision", "--smoke", "none", "--json")[1])["lease"]
    assert command("push", str(tree), lease)[0] == 0

    assert command("report", lease, "--to", str(tmp_path / "a.md"))[0] == 0

    said = (tmp_path / "a.md").read_text(encoding="utf-8").replace("\\", "")
    assert f"at commit {at}" in said
    assert ("with changes that no commit has" in said) is changed


async def test_the_end_of_a_job_that_nobody_looked_at_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path / "state"))
    tenancy = open_tenancy()
    try:
        lease = (await tenancy.provision(smoke="none")).lease
        await tenancy.launch_detached(lease, "mkdir out; sleep 2; exit 3", ["out/"])
        launched = await report_of(tenancy.context, lease)
        caretaker = tenancy.context.caretaker(tenancy.ledger.lease(lease))
        while (await caretaker.standing()).live:
            pass  # each look is a call of its own, and none of them is on record
        await tenancy.collect(lease)
        collected = await report_of(tenancy.context, lease)
    finally:
        await tenancy.aclose()
        end_processes(tmp_path / "state" / "boxes")

    assert "nobody has looked" in as_markdown(launched)
    assert "nobody has looked" not in as_markdown(collected)
    assert "job1: failed" in as_markdown(collected)
