"""Environments on boxes behind a real sshd: they survive us, keep the image's torch, and block no end."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from e2e.people import NewBox, Person, ended
from packages import image_with_torch, slow_package, wheel
from sshd import Sshd, wait_until
from waited import over

from gpu_tenant.box.environment.prepare import Prepared
from gpu_tenant.domain.errors import BadRequest, BoxTrouble, JobRunning, Refused
from gpu_tenant.faces.report import as_html, as_markdown, report_of
from gpu_tenant.service import Tenancy

TORCH = "2.3.1+cu121"
JOB = (
    "mkdir -p out; python -c 'import json, sys, torch, tinypkg;"
    ' json.dump([torch.__version__, tinypkg.VERSION, sys.prefix], open("out/seen.json", "w"))\''
)


@pytest.fixture
def image_box(new_box: NewBox, tmp_path: Path) -> Sshd:
    """A box whose python3 has a torch."""
    image, home = image_with_torch(tmp_path / "image"), tmp_path / "box" / "home"
    login = (
        f'cd {home} && export HOME="$PWD" PATH={image}:$PATH && exec sh -c "$SSH_ORIGINAL_COMMAND"'
    )
    return new_box(options=f"ForceCommand {login}")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A work tree that pins another torch than the image's, with its packages beside it."""
    made = tmp_path / "tree"
    for version in ("1.0", "2.0"):
        wheel(made / "wheels", "tinypkg", version, requires=("torch>=2",))
    wheel(made / "wheels", "torch", "9.9")
    asks_for(made, "torch==9.9", "tinypkg==1.0")
    return made


async def prepared(tenancy: Tenancy, lease: str, **asked: Any) -> Prepared:
    """What making the environment came to."""
    while (made := await tenancy.prepare(lease, **asked, wait_s=45)).state == "running":
        pass
    return made


def asks_for(tree: Path, *lines: str) -> None:
    (tree / "requirements.txt").write_text(
        "\n".join(["--no-index", "--find-links wheels", *lines, ""]), encoding="utf-8"
    )


async def test_a_setup_outlives_its_client_and_is_taken_up_by_the_next(
    person: Person, image_box: Sshd, tree: Path, tmp_path: Path
) -> None:
    signs = tmp_path / "signs"
    slow_package(tree / "slow", signs)
    asks_for(tree, "torch==9.9", "tinypkg==1.0", "./slow")
    async with person.tenancy() as tenancy:
        lease = (await tenancy.provision("own", image_box.target)).lease
        await tenancy.push(lease, str(tree))
        client = person.begin("prepare", lease)
        wait_until((signs / "building").exists)
        os.killpg(client.pid, signal.SIGKILL)
        ended(client)

        running = await tenancy.prepare(lease, wait_s=0)
        assert (running.state, running.job) == ("running", "prepare1")
        assert running.log.startswith("<untrusted-")
        with pytest.raises(JobRunning, match="still being made"):
            await tenancy.launch_detached(lease, JOB, ["out/"])
        (signs / "enough").touch()
        made = await prepared(tenancy, lease)
        again = await tenancy.prepare(lease, wait_s=0)

        assert (made.state, made.already, again.already) == ("ready", False, True)
        assert made.held == (f"torch==9.9 (image: {TORCH})",)
        assert made.image == {"torch": TORCH}
        assert [job.id for job in tenancy.ledger.jobs(tenancy.ledger.lease(lease).id)] == [
            "prepare1"
        ]
        launched = await tenancy.launch_detached(lease, JOB, ["out/"])
        assert launched.environment == made.environment
        assert (await over(tenancy, lease)).state == "finished"
        collected = await tenancy.collect(lease)
        assert (collected.unclaimed_files, collected.next) == (
            0,
            f"`gpu-tenant teardown {collected.lease}`",
        )
        assert (await tenancy.verify_and_teardown(lease)).receipt.ground == "verified"
        told = await report_of(tenancy.context, lease)
        assert told.environment is not None
        assert "tinypkg==1.0" in told.environment.packages
        assert all("tinypkg==1.0" in written(told) for written in (as_html, as_markdown))
    seen = (person.state / "kept" / lease / "work" / "out" / "seen.json").read_text("utf-8")
    assert seen == f'["{TORCH}", "1.0", "{made.environment}"]'


async def test_what_fails_is_told_what_changes_is_made_anew_and_what_was_made_goes_elsewhere(
    person: Person, image_box: Sshd, tree: Path
) -> None:
    asks_for(tree, "tinypkg==7.0")
    async with person.tenancy() as tenancy:
        lease = (await tenancy.provision("own", image_box.target)).lease
        with pytest.raises(BadRequest, match=r"no uv\.lock"):
            await prepared(tenancy, lease)
        assert tenancy.ledger.lease(lease).touched_at is None, "looking is not using"
        (tree / "requirements.txt").rename(tree / "later")
        await tenancy.push(lease, str(tree))
        nothing = person.gpu_tenant("prepare", lease)
        assert nothing.status == 0, nothing
        assert "nothing to prepare" in nothing.out
        assert f"gpu-tenant launch --lease {lease}" in nothing.out
        (tree / "later").rename(tree / "requirements.txt")
        await tenancy.push(lease, str(tree))
        with pytest.raises(BoxTrouble, match=r"(?s)not be installed\n<untrusted-.*tinypkg==7\.0"):
            await prepared(tenancy, lease)
        with pytest.raises(Refused, match="could not be made"):
            await tenancy.launch_detached(lease, JOB, ["out/"])

        asks_for(tree, "tinypkg==1.0")
        await tenancy.push(lease, str(tree))
        mended = person.gpu_tenant("prepare", lease, "--json")
        assert mended.status == 0, mended
        assert "Successfully installed tinypkg-1.0" in mended.err
        first = Prepared.model_validate_json(mended.out)
        asks_for(tree, "torch==9.9", "tinypkg")
        await tenancy.push(lease, str(tree))
        second = await prepared(tenancy, lease)
        assert (first.already, second.already) == (False, False)
        assert installed(image_box, lease) == ["tinypkg-2.0"]

        other = (await tenancy.provision("local", smoke="none")).lease
        (tree / "requirements.txt").unlink()
        await tenancy.push(other, str(tree))
        elsewhere = await prepared(tenancy, other, replay=lease)
        assert elsewhere.source == f"the record of {lease}"
        assert elsewhere.packages == 1
        assert "torch was the image's own there" in " ".join(elsewhere.notes)
        await tenancy.collect(other)
        assert (await tenancy.verify_and_teardown(other)).receipt.ground == "verified"


def installed(box: Sshd, lease: str) -> list[str]:
    environment = box.home / "gpu-tenant" / lease / ".venv"
    (site,) = environment.glob("lib/python3*/site-packages")
    return sorted(path.name.removesuffix(".dist-info") for path in site.glob("*.dist-info"))


async def test_a_clone_counts_as_pushed_until_somebody_changes_it(
    person: Person, image_box: Sshd, tree: Path, tmp_path: Path
) -> None:
    (tree / "Ünïcode name.txt").write_text("kept as it is", encoding="utf-8")
    git = ("git", "-C", str(tree), "-c", "user.name=t", "-c", "user.email=t@example.invalid")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "first")):
        ran(*git, *words)
    async with person.tenancy() as tenancy:
        lease = (await tenancy.provision("own", image_box.target)).lease
        with pytest.raises(BadRequest, match="name or secret"):
            await tenancy.prepare(lease, clone="https://me:secret@example.invalid/x.git")
        made = await prepared(tenancy, lease, clone=f"file://{tree}")
        assert made.commit == ran(*git, "rev-parse", "HEAD").strip()
        assert (await tenancy.prepare(lease, clone=f"file://{tree}", wait_s=0)).already
        await tenancy.launch_detached(lease, "mkdir out; git status >out/status.txt", ["out/"])
        assert (await over(tenancy, lease)).state == "finished"
        assert (await tenancy.collect(lease)).unclaimed_files == 0
        work = image_box.home / "gpu-tenant" / lease / "work"
        (work / "requirements.txt").write_text("changed", encoding="utf-8")
        assert (await tenancy.collect(lease)).unasked == ("requirements.txt",)
    status = (person.state / "kept" / lease / "work" / "out" / "status.txt").read_text("utf-8")
    assert "requirements.txt" not in status


def ran(*words: str) -> str:
    import subprocess

    return subprocess.run(words, check=True, capture_output=True, encoding="utf-8").stdout
