"""A stranger's tree runs nothing on this computer, whatever it has git configured to run."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from e2e.leased import end_processes
from e2e.renting import Tenant, tenant_at
from errands import an_errand, goes_on
from mcp import Client

from gpu_tenant.app import open_tenancy
from gpu_tenant.artifacts.push import pushed_trees
from gpu_tenant.faces.mcp.server import make_server
from gpu_tenant.files.git_commit import commit_of
from gpu_tenant.files.worktree import files_of
from gpu_tenant.leases.recover import recover
from gpu_tenant.service import Tenancy

JOB = "mkdir -p out; [ -n \"$SMOKE\" ] || echo '[1]' >out/model.json\n"
HOOKS = (
    *("applypatch-msg", "commit-msg", "fsmonitor-watchman", "post-applypatch", "post-checkout"),
    *(
        "post-commit",
        "post-index-change",
        "post-merge",
        "post-receive",
        "post-rewrite",
        "post-update",
    ),
    *("pre-applypatch", "pre-auto-gc", "pre-commit", "pre-merge-commit", "pre-push", "pre-rebase"),
    *("pre-receive", "prepare-commit-msg", "proc-receive", "push-to-checkout", "update"),
    *("reference-transaction", "sendemail-validate"),
)
SETTINGS = """\
[core]
    fsmonitor = {hit} core.fsmonitor
    hooksPath = {hooks}
    sshCommand = {hit} core.sshCommand
    gitProxy = {hit} core.gitProxy
    askPass = {hit}
    pager = {hit} core.pager
    editor = {hit} core.editor
    attributesFile = {attributes}
    alternateRefsCommand = {hit} core.alternateRefsCommand
[filter "x"]
    clean = {hit} filter.clean
    smudge = {hit} filter.smudge
    required = true
[filter "y"]
    process = {hit} filter.process
[diff]
    external = {hit} diff.external
[diff "x"]
    textconv = {hit} diff.textconv
    command = {hit} diff.command
[merge "x"]
    driver = {hit} merge.driver
[mergetool "x"]
    cmd = {hit} mergetool
[alias]
    status = !{hit} alias.status
    rev-parse = !{hit} alias.rev-parse
    ls-files = !{hit} alias.ls-files
[credential]
    helper = !{hit} credential.helper
[gpg]
    program = {hit}
[gpg "ssh"]
    program = {hit}
    defaultKeyCommand = {hit} gpg.ssh.defaultKeyCommand
[commit]
    gpgSign = true
[log]
    showSignature = true
[pager]
    status = {hit} pager.status
    config = {hit} pager.config
[sequence]
    editor = {hit} sequence.editor
[interactive]
    diffFilter = {hit} interactive.diffFilter
[trailer "x"]
    command = {hit} trailer.command
[tar "x"]
    command = {hit} tar.command
[uploadpack]
    packObjectsHook = {hit} uploadpack.packObjectsHook
[remote "origin"]
    url = ext::{hit} remote.url
    uploadpack = {hit} remote.uploadpack
    receivepack = {hit} remote.receivepack
    promisor = true
    partialCloneFilter = blob:none
[protocol]
    allow = always
[submodule "sub"]
    update = !{hit} submodule.update
    url = ext::{hit} submodule.url
    active = true
[include]
    path = {more}
[includeIf "gitdir:**"]
    path = {more}
"""
"""All that git 2.50 takes from a configuration and may start."""


@dataclass(frozen=True)
class Trap:
    """A program that leaves its name, and a git that leaves a line whenever it is started."""

    root: Path

    @property
    def hits(self) -> list[str]:
        """What was started since the last `clear`."""
        path = self.root / "hits"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def clear(self) -> None:
        (self.root / "hits").unlink(missing_ok=True)

    def program(self, name: str, then: str = "cat") -> Path:
        path = self.root / name
        path.write_text(
            f'#!/bin/sh\necho "{name} $*" >>{self.root}/hits\n{then}\n', encoding="utf-8"
        )
        path.chmod(0o755)
        return path

    def arm(self, git_directory: Path) -> None:
        """Give the repository every setting that could start a program, and every hook."""
        hooks = git_directory / "hooks"
        shutil.rmtree(hooks, ignore_errors=True)
        hooks.mkdir()
        hit = self.program("hit")
        for name in HOOKS:
            shutil.copy(hit, hooks / name)
        more = self.root / "more"
        more.write_text(f"[core]\n\tfsmonitor = {hit} include\n", encoding="utf-8")
        attributes = self.root / "attributes"
        lines = "*.sh filter=x diff=x merge=x\n*.py filter=y diff=x merge=x\n"
        attributes.write_text(lines, encoding="utf-8")
        (git_directory / "info").mkdir(exist_ok=True)
        (git_directory / "info" / "attributes").write_text(lines, encoding="utf-8")
        places = {"hit": hit, "hooks": hooks, "attributes": attributes, "more": more}
        with (git_directory / "config").open("a", encoding="utf-8") as config:
            config.write(SETTINGS.format(**places))
        (git_directory / "objects" / "info").mkdir(exist_ok=True)
        alternates = git_directory / "objects" / "info" / "alternates"
        alternates.write_text(f"{self.root}/elsewhere\n", encoding="utf-8")


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trap]:
    made = Trap(tmp_path / "trap")
    made.root.mkdir()
    real = shutil.which("git")
    (tmp_path / "bin").mkdir()
    shim = made.program("git", f'exec {real} "$@"')
    shim.rename(tmp_path / "bin" / "git")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    (tmp_path / "home").mkdir()
    yield made
    end_processes(tmp_path / "state" / "boxes")


def git(directory: Path, *words: str, status: int | None = 0) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main")
    ran = subprocess.run(
        ["git", "-C", str(directory), *who, *words],
        capture_output=True,
        encoding="utf-8",
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert status is None or ran.returncode == status, ran.stderr
    return ran.stdout


def a_work(directory: Path) -> Path:
    directory.mkdir(parents=True)
    (directory / "train.sh").write_text(JOB, encoding="utf-8")
    (directory / "help.py").write_text("print(1)\n", encoding="utf-8")
    (directory / "requirements.txt").write_text("# none\n", encoding="utf-8")
    return directory


def a_commit(directory: Path) -> None:
    git(directory, "add", "-A", "-f")
    git(directory, "commit", "-q", "-m", "x")


# How a stranger's repository reaches its owner


def in_its_own_configuration(root: Path, trap: Trap) -> Path:
    """As an archive or a copy brings it."""
    tree = a_work(root / "tree")
    git(tree, "init", "-q")
    a_commit(tree)
    trap.arm(tree / ".git")
    return tree


def in_a_nested_repository(root: Path, trap: Trap) -> Path:
    tree = a_work(root / "tree")
    git(tree, "init", "-q")
    sub = a_work(tree / "sub")
    git(sub, "init", "-q")
    a_commit(sub)
    git(tree, "-c", "advice.addEmbeddedRepo=false", "add", "-A", "-f")
    git(tree, "commit", "-q", "-m", "x")
    trap.arm(sub / ".git")
    return tree


def in_a_bare_repository_of_a_plain_clone(root: Path, trap: Trap) -> Path:
    """A subdirectory of an ordinary clone holds a repository's own files, which git takes for a repository."""
    source = root / "source"
    bare = a_work(source / "train")
    git(source, "init", "-q")
    git(source, "init", "-q", "--bare", str(bare))
    for name, value in (("core.bare", "false"), ("core.worktree", str(root / "tree" / "train"))):
        git(bare, "config", "-f", str(bare / "config"), name, value)
    own = (f"--git-dir={bare}", f"--work-tree={bare}")
    git(bare, *own, "add", "train.sh", "help.py", "requirements.txt")
    git(bare, *own, "commit", "-q", "-m", "i")
    trap.arm(bare)
    (bare / "refs" / "tags" / "keep").touch()
    a_commit(source)
    subprocess.run(["git", "clone", "-q", source, root / "tree"], check=True)
    return root / "tree" / "train"


def in_a_worktree_whose_repository_is_elsewhere(root: Path, trap: Trap) -> Path:
    tree = in_its_own_configuration(root, trap)
    (tree / ".git").rename(root / "elsewhere")
    (tree / ".git").write_text("gitdir: ../elsewhere\n", encoding="utf-8")
    return tree


FORMS = {
    form.__name__: form
    for form in (
        in_its_own_configuration,
        in_a_nested_repository,
        in_a_bare_repository_of_a_plain_clone,
        in_a_worktree_whose_repository_is_elsewhere,
    )
}


@pytest.fixture(params=FORMS)
def tree(request: pytest.FixtureRequest, tmp_path: Path, trap: Trap) -> Path:
    """A work tree in which any git would start what its author wants."""
    directory = FORMS[request.param](tmp_path, trap)
    for path in directory.rglob("*"):
        if path.suffix in (".sh", ".py"):
            os.utime(path, (1, 1))  # so that git would compare the content anew
    trap.clear()
    return directory


def test_git_itself_runs_what_such_a_tree_names(tree: Path, trap: Trap) -> None:
    """Otherwise the tests below would say nothing."""
    git(tree, "status", "--porcelain", status=None)

    assert [line for line in trap.hits if line.startswith("hit")]


def test_the_files_and_the_commit_are_read_without_any_program(tree: Path, trap: Trap) -> None:
    commit_of(tree, files_of(tree))

    assert trap.hits == []


Verb = Callable[[Tenancy, Path, str], Awaitable[object]]


async def push(tenancy: Tenancy, tree: Path, lease: str) -> None:
    await tenancy.push(lease, str(tree))


async def push_over_mcp(_: Tenancy, tree: Path, lease: str) -> None:
    async with Client(make_server()) as client:
        said = await client.call_tool("push", {"lease": lease, "directory": str(tree)})
    assert not said.is_error, said


async def push_by_a_command_in_the_tree(_: Tenancy, tree: Path, lease: str) -> None:
    program = str(Path(sys.executable).with_name("gpu-tenant"))
    ran = await asyncio.create_subprocess_exec(program, "push", ".", lease, cwd=tree)
    assert await ran.wait() == 0


async def smoke(tenancy: Tenancy, tree: Path, _: str) -> None:
    assert (await tenancy.smoke_test(str(tree), "SMOKE=1 sh train.sh", 60)).passed


async def prepare(tenancy: Tenancy, tree: Path, lease: str) -> None:
    await tenancy.push(lease, str(tree))
    await tenancy.prepare(lease, wait_s=0)


async def launch_and_end(tenancy: Tenancy, tree: Path, lease: str) -> None:
    await tenancy.push(lease, str(tree))
    job = (await tenancy.launch_detached(lease, "sh train.sh", ["out/"])).job
    while (await tenancy.monitor(lease, job, wait_s=5)).state in ("starting", "running"):
        pass
    await tenancy.collect(lease)


async def run(tenancy: Tenancy, tree: Path, _: str) -> None:
    errand = an_errand(tenancy, tree, on="local")
    assert (await goes_on(tenancy, errand)).outcome == "done"


VERBS: dict[str, Verb] = {
    verb.__name__: verb
    for verb in (
        push,
        push_over_mcp,
        push_by_a_command_in_the_tree,
        smoke,
        prepare,
        launch_and_end,
        run,
    )
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
async def test_no_verb_starts_git_or_what_the_tree_names(
    tree: Path, trap: Trap, verb: Verb
) -> None:
    tenancy = open_tenancy()
    try:
        lease = (await tenancy.provision(smoke="none")).lease
        await verb(tenancy, tree, lease)
    finally:
        await tenancy.aclose()

    assert trap.hits == []


async def test_any_name_arrives_on_the_box_as_it_is(trap: Trap, tmp_path: Path) -> None:
    names = [b"a\nb.py", "\U0001f600.py".encode(), b"x" * 255, b"bad\xff", b"-rf", b"a b", b"a\\b"]
    tree = a_work(tmp_path / "tree")
    git(tree, "init", "-q")
    for n, name in enumerate(names):
        (tree / os.fsdecode(name)).write_bytes(b"%d" % n)
    a_commit(tree)
    tenancy = open_tenancy()
    try:
        lease = (await tenancy.provision(smoke="none")).lease
        pushed = await tenancy.push(lease, str(tree))
        (event,) = pushed_trees(tenancy.ledger, tenancy.ledger.lease(lease).id)
    finally:
        await tenancy.aclose()

    box = tmp_path / "state" / "boxes" / lease / "home" / "gpu-tenant" / lease / "work"
    assert [(box / os.fsdecode(name)).read_bytes() for name in names] == [
        b"%d" % n for n in range(len(names))
    ]
    assert pushed.files == len(names) + 3
    assert event.is_clean is True


@pytest.fixture
async def tenant(tmp_path: Path, trap: Trap) -> AsyncIterator[Tenant]:
    async with tenant_at("vastai", tmp_path / "rented", time="runs") as made:
        yield made


async def test_a_recovery_that_pushes_the_tree_again_starts_none_of_it(
    tree: Path, trap: Trap, tenant: Tenant
) -> None:
    quote = (await tenant.quotes(hours=2, interruptible="yes"))[0]
    card = await tenant.tenancy.provision(smoke="none", quotes=[quote], wait_s=3600)
    await tenant.tenancy.push(card.lease, str(tree))
    await tenant.tenancy.launch_detached(card.lease, "sleep 600", ["out/"], name="train")
    tenant.fault("outbid", box=card.box)
    await tenant.tenancy.list_leases()

    new = await recover(tenant.tenancy.context, card.lease, wait_s=3600)

    lease = tenant.lease(new.lease)
    at = tenant.home_of(str(lease.box_id)) / lease.work_directory
    assert (at / "train.sh").read_text(encoding="utf-8") == JOB
    assert trap.hits == []
