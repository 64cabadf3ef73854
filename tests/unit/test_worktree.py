"""The files of a work tree are the ones that git would take, and never a link or git's own."""

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.files.worktree import files_of, left_out_lines, read_tree

ALONE = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_CEILING_DIRECTORIES": "/",
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A git directory that is told about other work trees."""
    git_directory = tmp_path_factory.mktemp("repository")
    subprocess.run(["git", "init", "--quiet", "--bare", git_directory], env=ALONE, check=True)
    return git_directory


def grow(root: Path, tree: dict[str, str]) -> None:
    for name, content in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.fsencode(content))


def git_lists(repository: Path, root: Path) -> set[str]:
    """The regular files that git would take from `root`."""
    listed = subprocess.run(
        [
            *("git", f"--git-dir={repository}", f"--work-tree={root}", "ls-files", "-z"),
            *("--cached", "--others", "--exclude-standard"),
        ],
        cwd=root,
        env=ALONE,
        capture_output=True,
        check=True,
    )
    names = [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    return {name for name in names if (root / name).is_file() and not (root / name).is_symlink()}


TREES: dict[str, dict[str, str]] = {
    "no rules": {"a": "", "b/c": "", ".hidden": ""},
    "a suffix": {".gitignore": "*.pyc\n", "a.py": "", "a.pyc": "", "deep/b.pyc": ""},
    "a folder": {".gitignore": "build/\n", "build/x": "", "src/build/y": "", "src/z": ""},
    "a folder only, and a file of its name": {".gitignore": "build/\n", "build": ""},
    "anchored": {".gitignore": "/out\n", "out/x": "", "src/out/y": ""},
    "anchored by a slash inside": {".gitignore": "a/b\n", "a/b/x": "", "c/a/b": ""},
    "taken back": {
        ".gitignore": "*.log\n!keep.log\n",
        "a.log": "",
        "keep.log": "",
        "d/keep.log": "",
    },
    "taken back below an ignored folder": {
        ".gitignore": "out/\n!out/keep\n",
        "out/keep": "",
        "x": "",
    },
    "taken back beside it": {".gitignore": "out/*\n!out/keep\n", "out/keep": "", "out/x": ""},
    "an inner rule takes back": {
        ".gitignore": "*.bin\n",
        "d/.gitignore": "!*.bin\n",
        "d/a.bin": "",
        "a.bin": "",
    },
    "an inner rule ignores": {"d/.gitignore": "*\n", "d/a": "", "a": ""},
    "an inner anchored rule": {"d/.gitignore": "/a\n", "d/a": "", "d/e/a": "", "a": ""},
    "all but": {
        ".gitignore": "*\n!.gitignore\n!*/\n!*.py\n",
        "a.py": "",
        "b": "",
        "c/d.py": "",
        "c/e": "",
    },
    "stars across folders": {
        ".gitignore": "a/**/z\n",
        "a/z": "",
        "a/b/z": "",
        "a/b/c/z": "",
        "z": "",
    },
    "leading stars": {".gitignore": "**/cache\n", "cache/x": "", "a/cache": "", "a/b/cache/y": ""},
    "trailing stars": {".gitignore": "a/**\n", "a/x": "", "a/b/y": "", "b/a/z": ""},
    "question marks and classes": {
        ".gitignore": "?.o\n[a-c].x\n[!d].y\n",
        "a.o": "",
        "ab.o": "",
        "b.x": "",
        "d.x": "",
        "d.y": "",
        "e.y": "",
    },
    "comments and blanks": {
        ".gitignore": "# a\n\n   \n\\#b\n",
        "a": "",
        "#b": "",
        "# a": "",
        "   ": "",
    },
    "an exclamation mark in a name": {".gitignore": "\\!a\n", "!a": "", "a": ""},
    "trailing spaces": {".gitignore": "a   \nb\\ \n", "a": "", "a   ": "", "b ": "", "b": ""},
    "dos line ends": {".gitignore": "*.log\r\nout/\r\n", "a.log": "", "out/x": "", "b": ""},
    "a byte order mark": {".gitignore": "\ufeff*.log\n", "a.log": "", "b": ""},
    "no newline at the end": {".gitignore": "a\nb", "a": "", "b": "", "c": ""},
    "a form feed is no line end": {".gitignore": "a\x0cb\n", "a": "", "b": "", "a\x0cb": ""},
    "a line separator is no line end": {
        ".gitignore": "a\u2028b\n",
        "a": "",
        "b": "",
        "a\u2028b": "",
    },
    "names of other scripts": {".gitignore": "汉*\n", "汉字": "", "字": ""},
    "a name that is not utf-8": {".gitignore": "a\udcff\n", "a\udcff": "", "b\udcff": ""},
    "case": {".gitignore": "*.LOG\n", "a.log": "", "b.LOG": ""},
    "a dot slash": {".gitignore": "./a\n", "a": ""},
    "two slashes": {".gitignore": "a//b\n", "a/b": ""},
    "a bare slash": {".gitignore": "/\n", "a": ""},
    "an open bracket": {".gitignore": "[\n[a\n", "[": "", "[a": "", "a": ""},
    "the rules themselves": {".gitignore": ".gitignore\n", "a": ""},
    "everything that begins with a dot taken back": {".gitignore": "*\n!.*\n", ".env": "", "a": ""},
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_the_files_are_the_ones_git_would_take(
    repository: Path, tmp_path: Path, tree: dict[str, str]
) -> None:
    grow(tmp_path, tree)

    assert set(files_of(tmp_path)) == git_lists(repository, tmp_path)


parts = st.sampled_from(["a", "b", "ab", "a.b", ".a", "*", "**", "a*", "*b", "?", "[ab]", "!"])
rules = st.builds(
    lambda negated, anchored, middle, folder: negated + anchored + "/".join(middle) + folder,
    st.sampled_from(["", "", "!"]),
    st.sampled_from(["", "", "/"]),
    st.lists(parts, min_size=1, max_size=3),
    st.sampled_from(["", "", "/"]),
).filter(lambda rule: not rule.endswith("**/") and rule.strip("!/"))
"""Rules of every shape, but for `a/**/` and `!/`, which pathspec takes for something else."""
rule_files = st.lists(rules, max_size=4).map("\n".join)
LEAVES = ("a", "b/a", "b/b/a", "b/b/b", ".a", "ab", "a.b/a", "a.b/.a/b", "b/ab/a", "b/.a")


@settings(max_examples=80, deadline=None, derandomize=True)
@given(top=rule_files, inner=rule_files)
@example(top="*\n!*/\n!a", inner="")
@example(top="b/**\n!b/b/", inner="!a")
def test_whatever_the_rules_say_git_and_we_agree(repository: Path, top: str, inner: str) -> None:
    with TemporaryDirectory() as fresh:
        root = Path(fresh)
        grow(root, {".gitignore": top, "b/.gitignore": inner, **dict.fromkeys(LEAVES, "")})

        assert set(files_of(root)) == git_lists(repository, root)


def test_git_s_own_files_are_never_taken_whatever_the_rules_say(tmp_path: Path) -> None:
    grow(
        tmp_path,
        {
            ".gitignore": "!.*\n!.git/\n!.git/**\n",
            ".git/config": "secret",
            "sub/.git/config": "secret",
            "linked/.git": "gitdir: elsewhere",
            ".gpu-tenant/ledger": "",
            "a": "",
        },
    )

    assert set(files_of(tmp_path)) == {".gitignore", "a"}


def test_links_are_not_followed_and_not_taken(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    grow(outside, {"secret": ""})
    tree = tmp_path / "tree"
    grow(tree, {"a": ""})
    (tree / "file").symlink_to(outside / "secret")
    (tree / "folder").symlink_to(outside)
    (tree / "broken").symlink_to("nowhere")
    (tree / "loop").symlink_to(tree)

    assert set(files_of(tree)) == {"a"}


def test_a_pipe_is_not_a_file_of_the_work(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert files_of(tmp_path) == {}


def test_each_name_leads_to_its_file_in_a_stable_order(tmp_path: Path) -> None:
    grow(tmp_path, {"b": "2", "a/c": "1", "a/b": "0"})

    found = files_of(tmp_path)

    assert list(found) == ["a/b", "a/c", "b"]
    assert [path.read_text(encoding="utf-8") for path in found.values()] == ["0", "1", "2"]


# The rules of a repository


WHO = ("-c", "user.name=a", "-c", "user.email=a@b")


def git(directory: Path, *words: str) -> str:
    ran = subprocess.run(
        ["git", "-C", str(directory), *WHO, *words],
        env={**os.environ, "GIT_CONFIG_SYSTEM": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    return ran.stdout


def git_takes(directory: Path) -> set[str]:
    """The regular files below `directory` that git would take, by its repository's rules and its owner's."""
    listed = git(directory, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    return {name for name in listed.split("\0") if name and (directory / name).is_file()}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The owner's home directory."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_a_push_of_a_folder_goes_by_every_rule_that_git_has_for_it(
    home: Path, tmp_path: Path
) -> None:
    root = tmp_path / "repository"
    names = ("t.py", "a.ckpt", "private.md", "notes.txt", "mine.swp", "data/big.bin", "keep.ckpt")
    grow(
        root,
        {
            ".gitignore": "data/\n*.ckpt\n",
            "training/.gitignore": "!keep.ckpt\n",
            "training/deep/.gitignore": "!mine.swp\n",
            **{f"training/{name}": "x" for name in names},
            **{f"training/deep/{name}": "x" for name in names},
            "global_ignore": "notes.txt\n",
        },
    )
    git(root, "init", "-q")
    git(root, "config", "core.excludesFile", str(root / "global_ignore"))
    (root / ".git" / "info" / "exclude").write_text("private.md\n/training/deep/t.py\n")

    work = read_tree(root / "training")

    assert set(work.files) == git_takes(root / "training")
    assert {"t.py", "keep.ckpt"} <= set(work.files)
    why = {one.name: one.reason for one in work.left_out}
    assert why["a.ckpt"] == "by .gitignore"
    assert why["private.md"] == "by .git/info/exclude"
    assert why["notes.txt"] == "by git's core.excludesFile"


@pytest.mark.parametrize(
    ("file", "configuration"),
    [
        (".config/git/ignore", ""),
        ("mine", "[core]\n\texcludesFile = ~/mine\n"),
        ("a b", '[core]\n\texcludesFile = "~/a b" ; c\n'),
    ],
)
def test_what_the_owner_ignores_everywhere_stays_here(
    home: Path, tmp_path: Path, file: str, configuration: str
) -> None:
    grow(home, {file: "*.swp\n/top\n", ".gitconfig": configuration})
    grow(tmp_path / "tree", {"a": "", "b.swp": "", "sub/top": "", "sub/c.swp": "", "top": ""})
    git(tmp_path / "tree", "init", "-q")

    for directory in (tmp_path / "tree", tmp_path / "tree" / "sub"):
        assert set(files_of(directory)) == git_takes(directory)
    assert set(files_of(tmp_path / "tree")) == {"a", "sub/top"}


def test_what_git_tracks_goes_although_a_rule_names_it(home: Path, tmp_path: Path) -> None:
    grow(
        tmp_path,
        {
            ".gitignore": "data/\n*.bin\n",
            "data/kept/a": "",
            "data/other": "",
            "data/kept/other": "",
            "w.bin": "",
            "x.bin": "",
        },
    )
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-f", "data/kept/a", "w.bin")

    work = read_tree(tmp_path)

    assert (
        set(work.files) == git_takes(tmp_path) - {"home"} == {".gitignore", "data/kept/a", "w.bin"}
    )
    assert [one.name for one in work.left_out] == ["data/", "x.bin"]
    assert [one.files for one in work.left_out] == [2, 1]


def test_in_a_directory_that_its_repository_ignores_the_rules_from_above_do_not_hold(
    home: Path, tmp_path: Path
) -> None:
    """As below a home directory that is a repository of settings, and that ignores all else."""
    grow(
        tmp_path,
        {".gitignore": "*\n", "work/.gitignore": "*.log\n", "work/a": "", "work/b.log": ""},
    )
    git(tmp_path, "init", "-q")

    assert set(files_of(tmp_path / "work")) == {".gitignore", "a"}


def test_a_repository_inside_has_its_own_rules_and_its_own_tracked_files(
    home: Path, tmp_path: Path
) -> None:
    inner = tmp_path / "outer" / "inner"
    grow(inner, {".gitignore": "*.bin\n", "w.bin": "", "x.bin": "", "private": "", "a": ""})
    git(tmp_path / "outer", "init", "-q")
    git(inner, "init", "-q")
    git(inner, "add", "-f", "w.bin")
    (inner / ".git" / "info" / "exclude").write_text("private\n")

    assert set(files_of(inner)) == git_takes(inner) == {".gitignore", "w.bin", "a"}
    assert set(files_of(tmp_path / "outer")) == {f"inner/{name}" for name in git_takes(inner)}


def test_a_tree_names_no_file_of_patterns_outside_of_itself(home: Path, tmp_path: Path) -> None:
    grow(tmp_path, {"outside": "a\n", "tree/a": "", "tree/b": ""})
    git(tmp_path / "tree", "init", "-q")
    for named in (str(tmp_path / "outside"), "../outside", "link"):
        git(tmp_path / "tree", "config", "core.excludesFile", named)
        (tmp_path / "tree" / "link").unlink(missing_ok=True)
        (tmp_path / "tree" / "link").symlink_to(tmp_path / "outside")
        assert set(files_of(tmp_path / "tree")) == {"a", "b"}


@pytest.mark.parametrize("place", [".gitignore", "sub/.gitignore", ".git/info/exclude"])
def test_a_file_of_rules_without_end_is_refused_and_not_read(
    home: Path, tmp_path: Path, place: str
) -> None:
    grow(tmp_path, {"a": "", "sub/b": ""})
    git(tmp_path, "init", "-q")
    with (tmp_path / place).open("wb") as sparse:
        sparse.truncate(3 << 30)

    with pytest.raises(BadRequest, match="is larger than"):
        read_tree(tmp_path)


def test_any_name_is_a_file_of_the_work_by_itself(tmp_path: Path) -> None:
    names = {"a\nb", "\U0001f600.py", "x" * 255, "caf\u00e9", "bad\udcff", " ", "-rf", "a\\b"}
    grow(tmp_path, dict.fromkeys(names, ""))

    assert set(files_of(tmp_path)) == names


# What stays here


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A work tree with ignored data, a link to more of it, and an ignored log."""
    grow(
        tmp_path,
        {
            "tree/.gitignore": "data/\n*.log\n",
            "tree/train.py": "",
            "tree/run.log": "12345",
            "tree/data/a.bin": "1" * 3000,
            "tree/data/b/c.bin": "2" * 4000,
            "tree/data/.git/config": "secret",
            "mounted/more.bin": "3" * 2000,
        },
    )
    (tmp_path / "tree/linked").symlink_to(tmp_path / "mounted")
    (tmp_path / "tree/data/out").symlink_to(tmp_path / "mounted")
    return tmp_path / "tree"


def test_what_stays_here_is_named_with_its_size_and_the_reason_largest_first(tree: Path) -> None:
    work = read_tree(tree)

    assert set(work.files) == {".gitignore", "train.py"}
    assert left_out_lines(work.left_out) == (
        "data/ (2 files, 7.0 KB), by .gitignore",
        "linked/ (1 file, 2.0 KB), a link, which is not followed",
        "run.log (5 B), by .gitignore",
    )
    assert left_out_lines(work.left_out, most=1) == (
        "data/ (2 files, 7.0 KB), by .gitignore",
        "and 2 more (2.0 KB)",
    )


@pytest.mark.parametrize(
    ("include", "more", "stays"),
    [
        (["data/"], {"data/a.bin", "data/b/c.bin"}, ["data/out/", "linked/", "run.log"]),
        (["./data/b"], {"data/b/c.bin"}, ["data/", "linked/", "run.log"]),
        (["run.log"], {"run.log"}, ["data/", "linked/"]),
        (["linked"], {"linked/more.bin"}, ["data/", "run.log"]),
    ],
    ids=["folder", "folder-inside", "file", "link"],
)
def test_what_is_included_by_name_goes_although_it_is_left_out(
    tree: Path, include: list[str], more: set[str], stays: list[str]
) -> None:
    work = read_tree(tree, include)

    assert set(work.files) == {".gitignore", "train.py"} | more
    assert [one.name for one in work.left_out] == stays
    assert set(files_of(tree, include)) == set(work.files)


@pytest.mark.parametrize("name", ["../mounted", "/etc", "data/.git", ".", "nothing", "data/no"])
def test_what_is_not_in_the_tree_is_not_included(tree: Path, name: str) -> None:
    with pytest.raises(BadRequest):
        read_tree(tree, [name])
