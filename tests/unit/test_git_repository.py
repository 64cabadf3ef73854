"""What is read of a git repository by hand is what git says, and no program is started for it."""

import os
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_tenant.files.git_commit import Commit, commit_of
from gpu_tenant.files.git_repository import config_values, find_repository
from gpu_tenant.files.owner_git import owner_settings
from gpu_tenant.files.worktree import files_of

NOBODY = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
WHO = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always")


@pytest.fixture(autouse=True)
def _no_settings_of_an_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    for name, value in NOBODY.items():
        monkeypatch.setenv(name, value)


def git(directory: Path, *words: str) -> str:
    ran = subprocess.run(
        ["git", "-C", str(directory), *WHO, *words],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    return ran.stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with a commit of a few files."""
    tree = tmp_path / "tree"
    (tree / "src" / "deep").mkdir(parents=True)
    git(tree, "init", "-q", "-b", "main")
    for name in ("a.py", "src/b.py", "src/deep/c.py", "src/caf\u00e9 \U0001f600\n.py"):
        (tree / name).write_text(f"print({name!r})\n", encoding="utf-8")
    git(tree, "add", ".")
    git(tree, "commit", "-q", "-m", "x")
    return tree


def said(directory: Path) -> Commit | None:
    return commit_of(directory, files_of(directory))


def head(directory: Path) -> str:
    return git(directory, "rev-parse", "HEAD")


# Where the repository is, and its commit


def packed(tree: Path) -> Path:
    git(tree, "gc", "-q")
    return tree


def detached(tree: Path) -> Path:
    git(tree, "checkout", "-q", "--detach")
    return tree


def in_a_worktree(tree: Path) -> Path:
    git(tree, "worktree", "add", "-q", str(tree.parent / "linked"), "-b", "other")
    return tree.parent / "linked"


def in_a_submodule(tree: Path) -> Path:
    outer = tree.parent / "outer"
    outer.mkdir()
    git(outer, "init", "-q")
    git(outer, "submodule", "--quiet", "add", str(tree), "sub")
    return outer / "sub"


def in_a_clone(tree: Path) -> Path:
    git(tree.parent, "clone", "-q", str(tree), "clone")
    return tree.parent / "clone"


def below(tree: Path) -> Path:
    return tree / "src"


def with_sha256(tree: Path) -> Path:
    other = tree.parent / "sha256"
    other.mkdir()
    git(other, "init", "-q", "--object-format=sha256")
    shutil.copytree(tree / "src", other / "src")
    git(other, "add", ".")
    git(other, "commit", "-q", "-m", "x")
    return other


def index_of_version(number: int) -> Callable[[Path], Path]:
    def written(tree: Path) -> Path:
        git(tree, "update-index", "--index-version", str(number))
        git(tree, "update-index", "--force-write-index")
        return tree

    return written


def of_a_sparse_checkout(tree: Path) -> Path:
    git(tree, "sparse-checkout", "set", "--cone", "--sparse-index", "src/deep")
    assert not (tree / "src" / "none").exists()
    return tree


FORMS: dict[str, Callable[[Path], Path]] = {
    "as it is": lambda tree: tree,
    "packed": packed,
    "detached": detached,
    "a linked worktree": in_a_worktree,
    "a submodule": in_a_submodule,
    "a clone": in_a_clone,
    "a directory of it": below,
    "sha256": with_sha256,
    "index 2": index_of_version(2),
    "index 4": index_of_version(4),
    "sparse": of_a_sparse_checkout,
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_the_commit_is_the_one_that_git_says_and_the_tree_is_clean(
    tree: Path, form: Callable[[Path], Path]
) -> None:
    directory = form(tree)

    assert said(directory) == Commit(head(directory), is_clean=True)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_changed_a_new_and_a_missing_file_are_changes_in_every_form(
    tree: Path, form: Callable[[Path], Path]
) -> None:
    directory = form(tree)
    one = next(path for path in files_of(directory).values() if path.name == "c.py")
    before = one.read_bytes()

    one.write_bytes(before.replace(b"print", b"pront"))
    assert said(directory) == Commit(head(directory), is_clean=False)
    one.write_bytes(before)
    assert said(directory) == Commit(head(directory), is_clean=True)
    new = directory / "new.py"
    new.touch()
    assert said(directory) == Commit(head(directory), is_clean=False)
    new.unlink()
    one.unlink()
    assert said(directory) == Commit(head(directory), is_clean=False)


def test_what_is_staged_and_in_no_commit_is_a_change_or_unknown(tree: Path) -> None:
    (tree / "a.py").write_text("other\n", encoding="utf-8")
    git(tree, "add", ".")

    assert said(tree) == Commit(head(tree), is_clean=None)
    git(tree, "write-tree")
    assert said(tree) == Commit(head(tree), is_clean=False)


def test_without_a_commit_or_a_repository_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    assert said(tmp_path / "plain") is None
    git(tmp_path / "plain", "init", "-q")
    assert said(tmp_path / "plain") is None


def test_a_directory_of_which_the_repository_has_nothing_is_at_no_commit(tree: Path) -> None:
    (tree / "other").mkdir()
    (tree / "other" / "x").touch()

    assert said(tree / "other") is None


# What a file's blob is not: filters that are never run


def test_a_file_that_lfs_keeps_is_compared_by_the_pointer_that_its_content_makes(
    tree: Path,
) -> None:
    content = b"weights" * 1000
    (tree / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    digest = subprocess.run(["sha256sum"], input=content, capture_output=True, check=True).stdout[
        :64
    ]
    pointer = (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest.decode()}\nsize 7000\n"
    )
    (tree / "w.bin").write_text(pointer, encoding="ascii")
    git(tree, "-c", "filter.lfs.clean=cat", "add", ".")
    git(tree, "commit", "-q", "-m", "lfs")

    (tree / "w.bin").write_bytes(content)
    assert said(tree) == Commit(head(tree), is_clean=True)
    (tree / "w.bin").write_bytes(content[:-1] + b"!")
    assert said(tree) == Commit(head(tree), is_clean=False)


def test_behind_another_filter_a_file_with_another_id_is_unknown(tree: Path) -> None:
    (tree / ".gitattributes").write_text("*.py filter=other\n")
    git(tree, "add", ".")
    git(tree, "commit", "-q", "-m", "f")
    (tree / "a.py").write_text("other\n", encoding="utf-8")

    assert said(tree) == Commit(head(tree), is_clean=None)


def test_other_line_ends_alone_are_unknown(tree: Path) -> None:
    one = tree / "src" / "b.py"
    one.write_bytes(one.read_bytes().replace(b"\n", b"\r\n"))

    assert said(tree) == Commit(head(tree), is_clean=None)


# What a tree cannot make us read


def test_a_tree_that_points_at_another_repository_is_told_nothing_of_it(
    tree: Path, tmp_path: Path
) -> None:
    """The other repository does not point back."""
    in_a_worktree(tree)
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    for target in (tree / ".git", tree / ".git" / "worktrees" / "linked"):
        (stranger / ".git").write_text(f"gitdir: {target}\n", encoding="utf-8")
        assert find_repository(stranger) is None
    (stranger / ".git").unlink()
    (stranger / ".git").symlink_to(tree / ".git")
    assert find_repository(stranger) is None


def test_a_head_that_leads_out_of_the_repository_is_no_commit(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "id").write_text("a" * 40, encoding="ascii")
    for words in (
        "ref: ../../id",
        "ref: refs/../../../id",
        f"ref: {tmp_path}/id",
        "ref: refs/heads/x",
    ):
        (tree / ".git" / "HEAD").write_text(f"{words}\n", encoding="utf-8")
        (tree / ".git" / "refs" / "heads" / "x").unlink(missing_ok=True)
        (tree / ".git" / "refs" / "heads" / "x").symlink_to(tmp_path / "id")
        assert said(tree) is None


def test_a_loop_of_references_and_a_pipe_are_no_commit_and_wait_for_nobody(tree: Path) -> None:
    (tree / ".git" / "HEAD").write_text("ref: refs/heads/y\n", encoding="utf-8")
    (tree / ".git" / "refs" / "heads" / "y").write_text("ref: refs/heads/y\n", encoding="utf-8")
    assert said(tree) is None
    (tree / ".git" / "HEAD").unlink()
    os.mkfifo(tree / ".git" / "HEAD")
    assert said(tree) is None


def test_an_index_that_is_cut_anywhere_or_swells_is_unknown(tree: Path) -> None:
    index = tree / ".git" / "index"
    whole = index.read_bytes()
    for length in range(0, whole.rindex(b"TREE"), 7):
        index.write_bytes(whole[:length])
        assert said(tree) == Commit(head(tree), is_clean=None)
    entry = struct.pack(">10I", *[0] * 6, 0o100644, 0, 0, 0) + bytes(20) + bytes(2)
    growing = b"".join(entry + b"\0" + b"a" * 64 + b"\0" for _ in range(100_000))
    index.write_bytes(struct.pack(">4sII", b"DIRC", 4, 100_000) + growing + bytes(20))
    assert said(tree) == Commit(head(tree), is_clean=None)


def test_a_split_index_is_unknown(tree: Path) -> None:
    git(tree, "update-index", "--split-index")

    assert said(tree) == Commit(head(tree), is_clean=None)


# The owner's settings


def test_a_configuration_is_read_as_git_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "config"
    text = (
        '[core]\n\tExcludesFile = "~/a b" # c\n[other "sub"]\n\tx = 1\n[a] y = p;q\n; no = 1\n'
        '[core]\n  attributesFile = C:\\\\x \\\n y\n  z = "a#b"\n[A.B]\nk=v\n'
    )
    file.write_text(text, encoding="utf-8")
    listed = subprocess.run(
        ["git", "config", "--file", str(file), "--list"],
        capture_output=True,
        encoding="utf-8",
        check=True,
    ).stdout.splitlines()

    assert [f"{n}={v}" for n, v in config_values(text)] == [
        line for line in listed if line != "other.sub.x=1"
    ]


def test_the_owner_s_file_of_patterns_is_found_through_an_include(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.delenv("GIT_CONFIG_GLOBAL")
    assert owner_settings()["core.excludesfile"] == home / ".config" / "git" / "ignore"
    (home / ".gitconfig").write_text("[include]\n\tpath = more\n", encoding="utf-8")
    (home / "more").write_text("[core]\n\texcludesFile = ~/mine\n[include]\npath = more\n")

    assert owner_settings()["core.excludesfile"] == home / "mine"
