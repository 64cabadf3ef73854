"""The seal accounts for every byte written since launch: kept, pushed, discarded, unclaimed or a problem."""

import ctypes
import hashlib
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tarfile
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pathspec
import pytest
from arranged import PATIENCE_S
from hypothesis import given, settings
from hypothesis import strategies as st

from box_scripts.caretaker import survey
from box_scripts.caretaker.hashing import Changing, Hashes
from box_scripts.caretaker.paths import escape_path, unescape_path
from box_scripts.caretaker.patterns import Pattern
from gpu_tenant.domain.untrusted_text import bare
from gpu_tenant.files import paths

CARETAKER = Path(__file__).parents[2] / "scripts" / "caretaker.py"
BIDI = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
Reply = dict[str, Any]


def obey_permissions() -> None:
    """Root reads nothing but what the mode bits allow: the powers to override them are dropped."""
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


class Box:
    """A work directory, a login home and a caretaker, all private to one test."""

    def __init__(self, root: Path) -> None:
        self.root, self.work, self.login = root, root / "work", root / "login"
        self.home = root / "caretaker"
        self.work.mkdir(parents=True)
        self.login.mkdir()

    def ask(self, verb: str, *, stream: bytes = b"", **arguments: Any) -> Reply:
        return self.ask_by(CARETAKER, verb, stream=stream, **arguments)

    def ask_by(self, script: Path, verb: str, *, stream: bytes = b"", **arguments: Any) -> Reply:
        argv = [
            sys.executable,
            "-I",
            "-S",
            str(script),
            "--home",
            str(self.home),
            verb,
            "--request",
            "-",
        ]
        done = subprocess.run(
            argv,
            input=json.dumps(arguments).encode() + b"\n" + stream,
            stdout=subprocess.PIPE,
            check=False,
            env=os.environ | {"HOME": str(self.login)},
            preexec_fn=obey_permissions,
            timeout=120,
        )
        reply: Reply = json.loads(done.stdout)
        return reply

    def ran(self, script: str = "true", *, job: str = "j1", **declared: Any) -> None:
        """A job with that script has run to its end."""
        assert self.ask(
            "start", job=job, argv=["sh", "-c", script], cwd=str(self.work), **declared
        )["ok"]
        give_up = time.monotonic() + PATIENCE_S
        while self.ask("status", job=job)["state"] in ("starting", "running", "lingering"):
            assert time.monotonic() < give_up

    def seal(self, *artifacts: str, **more: Any) -> Reply:
        sealed = self.ask("manifest", work=str(self.work), roots=["~"], artifacts=artifacts, **more)
        assert sealed["ok"], sealed
        return sealed

    def push(self, *members: tuple[tarfile.TarInfo, bytes]) -> Reply:
        stream = io.BytesIO()
        with tarfile.open(
            fileobj=stream, mode="w", format=tarfile.PAX_FORMAT, errors="surrogateescape"
        ) as archive:
            for member, content in members:
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return self.ask("receive", work=str(self.work), stream=stream.getvalue())


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path / "lease")


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.mtime = kind, link, mode, 1_700_000_000
    return info


def names(sealed: Reply) -> list[str]:
    return [entry["name"] for entry in sealed["entries"]]


def whys(sealed: Reply) -> dict[str, str]:
    return {problem["at"].rpartition("/")[2]: problem["why"] for problem in sealed["problems"]}


# --- names --------------------------------------------------------------------------------------


@settings(deadline=None)  # the machine may be busy
@given(st.binary(max_size=60))
def test_a_name_survives_the_wire(raw: bytes) -> None:
    text = escape_path(raw)

    assert unescape_path(text) == raw
    assert not [
        c
        for c in text
        if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")
        or unicodedata.bidirectional(c) in BIDI
    ]
    assert json.loads(json.dumps(text)) == text


def test_both_sides_write_every_letter_of_a_name_alike_and_plain() -> None:
    letters = [
        chr(n)
        for n in range(1, 0x110000)
        if (not 0xD800 <= n < 0xDC80 and n < 0xDD00) or n > 0xDFFF
    ]

    assert not [c for c in letters if escape_path(os.fsencode(c)) != paths.escape(c)]
    assert not [
        c for c in letters if paths.is_unseen(shown := paths.escape(c)) or bare(shown) != shown
    ]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"50% off.bin", "50%25 off.bin"),
        ("模型 'a' \"b\".pt".encode(), "模型 'a' \"b\".pt"),
        (b"-rf", "-rf"),
        (b"a\nb\x7f\xff", "a%0Ab%7F%FF"),
        ("\u202egnp\u200b\u2028\x85".encode(), "%E2%80%AEgnp%E2%80%8B%E2%80%A8%C2%85"),
    ],
)
def test_only_what_cannot_be_printed_is_escaped(raw: bytes, text: str) -> None:
    assert escape_path(raw) == text


# --- patterns -----------------------------------------------------------------------------------

# no [!a]: git never lets it match a slash, pathspec does
GLOBS = st.from_regex(r"(\*\*|([ab.*?]|\[ab\]){1,3})(/([ab.*?]|\*\*){1,3}){0,3}/?", fullmatch=True)
PATHS = st.from_regex(r"[ab.]{1,3}(/[ab.]{1,3}){0,4}", fullmatch=True)


def is_odd(path: str) -> bool:
    return any(part in (".", "..") or "***" in part for part in path.rstrip("/").split("/"))


@settings(deadline=None)  # the machine may be busy
@given(
    # git: `a/**/` means what is in the directories in a, and no file in a itself. pathspec means that file, too.
    GLOBS.filter(lambda g: not is_odd(g) and not g.endswith("/**/")),
    PATHS.filter(lambda p: not is_odd(p)),
)
def test_a_pattern_means_what_gitignore_means(glob: str, path: str) -> None:
    theirs = pathspec.GitIgnoreSpec.from_lines([glob]).match_file(path)

    assert bool(Pattern(glob).matches(path)) == theirs


@settings(deadline=None)  # the machine may be busy
@given(
    st.binary(min_size=1, max_size=12).filter(lambda b: b.strip(b"./\0") != b"" and b"\0" not in b)
)
def test_a_name_taken_literally_matches_itself(raw: bytes) -> None:
    raw = raw.replace(b"/", b"_")
    quoted = re.sub(r"([\\*?\[!~])", r"\\\1", escape_path(raw))

    assert Pattern(quoted).matches(escape_path(raw))
    assert not Pattern(quoted).matches(escape_path(raw + b"x"))


@pytest.mark.parametrize(
    ("glob", "path", "is_meant"),
    [
        ("out", "out/a/b.pt", True),
        ("out/", "out/a/b.pt", True),
        ("out/", "out", False),
        ("*.pt", "a/b/c.pt", True),
        ("./*.pt", "a/c.pt", False),
        ("a/*.pt", "a/b/c.pt", False),
        ("a/**/c.pt", "a/c.pt", True),
        ("**", "a/b", True),
        ("**", "a", True),
        ("**/", "a", False),
        ("**/", "a/b", True),
        ("a/**/", "a/b", False),
        ("a/**/", "a/b/c", True),
        ("a?b", "a%0Ab", True),
        ("a*b", "a%FF%25b", True),
        ("*5", "%25", False),
        ("100%.bin", "100%25.bin", True),
        ("a%2Ab", "axb", False),
        ("a%2Ab", "a*b", True),
        (r"\*", "a", False),
        ("..x", "..x", True),
        ("[!a]x", "%FFx", True),
    ],
)
def test_patterns_in_particular(glob: str, path: str, is_meant: bool) -> None:
    assert bool(Pattern(glob).matches(path)) == is_meant


@pytest.mark.parametrize(
    "glob", ["", ".", "..", "a/../b", "/a/../../b", "~/..", "%2E%2E/x", "!a", "[b-a]"]
)
def test_a_pattern_that_climbs_or_excludes_is_refused(box: Box, glob: str) -> None:
    (told,) = box.ask("patterns", work=str(box.work), discard=[glob])["problems"]
    assert told["why"] == "bad_pattern"
    # A record of such a pattern, as an older tenant may have, spoils itself and not the seal.
    sealed = box.seal(discard=[glob])
    assert [(p["at"], p["why"]) for p in sealed["problems"]] == [(told["at"], "bad_pattern")]


# --- accounting ---------------------------------------------------------------------------------


def test_every_byte_since_launch_is_kept_discarded_or_unclaimed(box: Box) -> None:
    (box.work / "old.bin").write_bytes(b"before")
    script = """
        mkdir -p out __pycache__ tmp .git ~/.cache; echo model > out/m.pt; echo x > __pycache__/m.pyc
        echo scratch > tmp/a; echo 12345678 > notes; : > empty; echo c > ~/.cache/hub; echo h > ~/.bash_history
        echo r > ~/.rehearsal.json
        echo commit > .git/HEAD; echo away > ~/result; mkdir void
    """
    box.ran(script, artifacts=["out/**", "nothing/*.bin"], discard=["tmp/"])

    sealed = box.seal()

    assert names(sealed) == ["log/j1.log", "work/out/m.pt"]
    assert [entry["class"] for entry in sealed["entries"]] == ["log", "artifact"]
    assert [Path(item["at"]).name for item in sealed["unclaimed"]["largest"]] == [
        "notes",
        "HEAD",
        "result",
    ]
    assert (sealed["unclaimed"]["count"], sealed["unclaimed"]["bytes"]) == (3, 9 + 7 + 5)
    assert {item["pattern"]: item["count"] for item in sealed["discarded"]["patterns"]} == {
        "__pycache__/": 1,
        "tmp/": 1,
        ".cache/": 1,
        "~/.bash_history": 1,
        "~/.rehearsal.json": 1,
    }
    assert sealed["unmatched"] == ["nothing/*.bin"]
    assert sealed["problems"] == []


def test_an_artifact_wins_over_discard_and_over_its_age(box: Box) -> None:
    (box.work / "old.pt").write_bytes(b"before")
    box.ran("mkdir .cache; echo x > .cache/best.pt", discard=["*.pt"])

    assert names(box.seal("*.pt")) == ["log/j1.log", "work/.cache/best.pt", "work/old.pt"]


def test_of_what_is_incoming_only_what_was_sent_is_passed_over(box: Box) -> None:
    sent = hashlib.sha256(b"weights").hexdigest()
    coming = hashlib.sha256(f"7 {sent} weights.bin".encode()).hexdigest()
    (box.work / ".gpu-tenant-incoming" / "deep").mkdir(parents=True)
    mine = ("a", ".gpu-tenant-incoming/" + "0" * 64, ".gpu-tenant-incoming/deep/c")
    for name in (*mine, f".gpu-tenant-incoming/{coming}"):
        (box.work / name).write_bytes(b"x")

    looked = box.ask("complete", work=str(box.work), artifacts=["**"], quiet_s=0)

    sealed = box.seal("**", pushed={"weights.bin": [[7, sent]]})
    assert names(sealed) == sorted(f"work/{name}" for name in mine)
    assert [Path(entry["at"]).name for entry in looked["files"]] == ["a"]


def test_artifacts_elsewhere_are_named_by_their_whole_path(box: Box) -> None:
    far = box.root / "far"
    box.ran(f"mkdir {far}; echo a > {far}/a.pt; echo b > {far}/b; echo c > ~/c.pt")

    sealed = box.seal(f"{far}/*.pt", "~/*.pt")

    assert names(sealed) == ["log/j1.log", f"root{far}/a.pt", f"root{box.login}/c.pt"]
    assert (sealed["unmatched"], sealed["unclaimed"]["count"]) == ([], 0)


def test_excluded_directories_and_the_caretaker_itself_are_not_accounted(box: Box) -> None:
    box.ran("mkdir ~/other; echo x > ~/other/lease; echo y > ~/mine")

    sealed = box.seal(exclude=["~/other"])
    everything = box.ask(
        "manifest", work=str(box.work), roots=[str(box.root)], default_discard=False
    )

    assert [Path(item["at"]).name for item in sealed["unclaimed"]["largest"]] == ["mine"]
    assert everything["unclaimed"]["count"] == 2


def test_what_is_written_through_a_link_out_of_the_work_directory_is_accounted(box: Box) -> None:
    far = box.root / "far"
    far.mkdir()
    (box.work / "out").symlink_to(far)
    box.ran("echo model > out/m.pt", artifacts=["out/**"])

    sealed = box.seal()

    assert [item["at"] for item in sealed["unclaimed"]["largest"]] == [f"{far}/m.pt"]
    assert whys(sealed) == {"out": "escapes"}


def test_before_any_launch_only_artifacts_count(box: Box) -> None:
    (box.work / "a.pt").write_bytes(b"a")
    (box.work / "b").write_bytes(b"b")

    sealed = box.seal("*.pt")

    assert (sealed["since_ns"], names(sealed), sealed["unclaimed"]["count"]) == (
        None,
        ["work/a.pt"],
        0,
    )


def test_sealing_is_refused_while_a_job_runs(box: Box) -> None:
    box.ask("start", job="j1", argv=["sleep", "300"], cwd=str(box.work))

    refusal = box.ask("manifest", work=str(box.work))

    assert (refusal["code"], refusal["jobs"]) == ("JOB_RUNNING", ["j1"])
    assert box.ask("stop", job="j1", grace_s=0)["ok"]


def test_hostile_names_are_sealed_and_come_back(box: Box) -> None:
    hostile = [
        b"a\nb",
        b'it\'s "x"',
        b"-rf",
        b"..x",
        b"\xff\xfe",
        ("模" * 85).encode(),
        b"%41",
        b" ",
        b"*",
    ]
    for name in hostile:
        (box.work / os.fsdecode(name)).write_bytes(name)
    box.ran()

    entries = [entry for entry in box.seal("**")["entries"] if entry["class"] == "artifact"]

    found = {
        unescape_path(entry["name"]).removeprefix(b"work/"): entry["sha256"] for entry in entries
    }
    assert found == {name: hashlib.sha256(name).hexdigest() for name in hostile}
    assert all(Path(os.fsdecode(unescape_path(entry["at"]))).exists() for entry in entries)


# --- problems -----------------------------------------------------------------------------------


def test_what_cannot_be_kept_as_it_is_is_a_problem(box: Box) -> None:
    out = box.work / "out"
    (out / "locked").mkdir(parents=True)
    (out / "kept").write_bytes(b"x")
    (box.work / "plain").write_bytes(b"x")
    for name, target in {
        "inside": "kept",
        "beyond": "/etc/passwd",
        "broken": "no-such",
        "unkept": "../plain",
        "self": "self",
    }.items():
        (out / name).symlink_to(target)
    (out / "secret").write_bytes(b"x")
    os.mkfifo(out / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(out)  # a socket's name is short
        server.bind("socket")
        os.chdir("/")
    (out / "secret").chmod(0)
    (out / "locked").chmod(0)
    box.ran()

    sealed = box.seal("out/**")

    assert whys(sealed) == {
        "beyond": "escapes",
        "broken": "dangling",
        "self": "dangling",
        "unkept": "link_target_not_kept",
        "fifo": "special",
        "socket": "special",
        "secret": "unreadable",
        "locked": "unreadable",
    }
    link = next(entry for entry in sealed["entries"] if entry["name"] == "work/out/inside")
    assert (link["kind"], link["target"], link["sha256"]) == (
        "link",
        "kept",
        hashlib.sha256(b"kept").hexdigest(),
    )
    (out / "locked").chmod(0o700)
    listed = {entry["name"].rpartition("/")[2] for entry in sealed["entries"]}
    assert "beyond" not in listed
    dangling = {entry["name"]: entry["target"] for entry in sealed["entries"] if "target" in entry}
    assert dangling.items() >= {"work/out/broken": "no-such", "work/out/self": "self"}.items()


def test_links_in_a_circle_are_kept_as_they_are(box: Box) -> None:
    (box.work / "out").mkdir()
    (box.work / "out" / "a").symlink_to("b")
    (box.work / "out" / "b").symlink_to(box.work / "out" / "a")
    box.ran("echo x > out/x")

    sealed = box.seal("out/")

    told = {e["name"]: e["target"] for e in sealed["entries"] if "target" in e}
    assert told == {"work/out/a": "b", "work/out/b": "a"}
    assert set(whys(sealed).values()) == {"dangling"}


@pytest.mark.parametrize("kind", ["a pipe", "a link out of the work directory"])
def test_what_holds_no_bytes_is_no_artifact_that_appeared(box: Box, kind: str) -> None:
    if kind == "a pipe":
        box.ran("mkdir out; mkfifo out/pipe")
    else:
        (box.root / "far").write_bytes(b"old")
        box.ran(f"mkdir out; ln -s {box.root}/far out/far")

    sealed = box.seal("out/")

    assert (names(sealed), sealed["unmatched"]) == (["log/j1.log"], ["out/"])


def test_what_a_job_writes_through_a_declared_link_elsewhere_is_accounted(box: Box) -> None:
    far, out = box.root / "far", box.root / "out"
    box.ran(f"mkdir -p {out} {far}; ln -s {far} {out}/now; echo m > {far}/m.pt")

    sealed = box.seal(f"{out}/**")

    assert [item["at"] for item in sealed["unclaimed"]["largest"]] == [f"{far}/m.pt"]


def test_what_a_job_writes_into_memory_through_a_link_is_accounted(box: Box) -> None:
    far = Path("/dev/shm") / f"gpu-tenant-test-{os.getpid()}"
    try:
        box.ran(
            f"mkdir {far} out; echo m > {far}/m.pt; ln -s {far} out/now; ln -s /dev/null out/null"
        )

        sealed = box.seal("out/")
    finally:
        shutil.rmtree(far, ignore_errors=True)

    assert [item["at"] for item in sealed["unclaimed"]["largest"]] == [f"{far}/m.pt"]


def test_a_link_inside_is_told_by_a_plain_way_however_it_leads_there(box: Box) -> None:
    (box.work / "out" / "step-10").mkdir(parents=True)
    (box.work / "out" / "step-10" / "w").write_bytes(b"w")
    ways = {
        "plain": "step-10",
        "up": "../out/step-10",
        "absolute": f"{box.work}/out/step-10/",
        "winding": "step-10/../step-10",
        "around": f"../../{box.work.name}/out/step-10",
        "to": "plain/w",
    }
    for name, target in ways.items():
        (box.work / "out" / name).symlink_to(target)
    box.ran()

    sealed = box.seal("out/")

    told = {e["name"].rpartition("/")[2]: e["target"] for e in sealed["entries"] if "target" in e}
    assert whys(sealed) == {}
    assert told == {
        "plain": "step-10",
        "up": "../out/step-10",
        "absolute": "step-10",
        "winding": "step-10",
        "around": "step-10",
        "to": "plain/w",
    }


def test_an_unreadable_place_that_is_discarded_is_no_problem(box: Box) -> None:
    (box.login / ".cache").mkdir(mode=0)
    (box.login / "odd").mkdir(mode=0)
    box.ran()

    assert whys(box.seal()) == {"odd": "unreadable"}
    assert whys(box.seal(discard=["~/odd"])) == {}


def test_in_a_directory_for_all_what_others_made_is_not_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "file").write_bytes(b"")
    paths = [os.fsencode(shared / "file"), os.fsencode(shared / "gone")]

    assert survey._is_shared(shared.stat())
    assert not survey._is_shared(tmp_path.stat())
    assert list(survey._ours_of(paths)) == paths[:1]
    monkeypatch.setattr(os, "geteuid", lambda: (shared / "file").stat().st_uid + 1)
    assert list(survey._ours_of(paths)) == []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert list(survey._ours_of(paths)) == paths[:1], "root's jobs may give a file to anybody"


def test_a_file_somebody_has_open_for_writing_is_a_problem(box: Box) -> None:
    (box.work / "a.pt").write_bytes(b"a")
    box.ran()

    with (box.work / "a.pt").open("ab"), (box.work / "a.pt").open("rb"):
        held = box.seal("a.pt")

    assert whys(held) == {"a.pt": "open_for_writing"}
    assert str(os.getpid()) in held["problems"][0]["detail"]
    assert box.seal("a.pt")["problems"] == []


def test_a_file_that_changes_under_the_hash_is_a_problem(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = box.work / "a.pt"
    path.write_bytes(b"a" * 10)
    box.home.mkdir()
    hashes, fstat = Hashes(str(box.home), None), os.fstat

    def meddle(fd: int) -> os.stat_result:
        seen = fstat(fd)
        path.write_bytes(b"b" * 11)
        return seen

    monkeypatch.setattr(os, "fstat", meddle)

    with pytest.raises(Changing):
        hashes.of(os.fsencode(path))


# --- the digest and the memory of hashes --------------------------------------------------------


def test_the_digest_is_that_of_the_sorted_lines(box: Box) -> None:
    (box.work / "b").write_bytes(b"bb")
    (box.work / "a").symlink_to("b")
    box.ran()

    sealed = box.seal("a", "b")

    lines = sorted(
        f"{e['sha256']} {e['size']} {e['kind']} {e.get('target', '-')} {e['name']}\n"
        for e in sealed["entries"]
    )
    assert sealed["digest"] == hashlib.sha256("".join(lines).encode()).hexdigest()
    assert box.seal("a", "b")["digest"] == sealed["digest"]
    (box.work / "b").write_bytes(b"cc")
    assert box.seal("a", "b")["digest"] != sealed["digest"]


def test_a_hash_is_remembered_only_under_the_key_that_never_lies_there(box: Box) -> None:
    (box.work / "a").write_bytes(b"a")
    box.ran()
    memory = box.home / "hashes.json"
    box.seal("a")
    assert not memory.exists()

    def sealed_by(key: str) -> str:
        (_, entry) = box.seal("a", key=key)["entries"]
        return str(entry["sha256"])

    true = sealed_by("ours")
    record = json.loads(memory.read_text(encoding="utf-8"))
    forged = {seen: ["0" * 64, taken + 3 * 10**9] for seen, (_, taken) in record["hashes"].items()}
    memory.write_text(json.dumps({**record, "hashes": forged}), encoding="utf-8")
    assert sealed_by("ours") == true

    # What whoever has the key has noted is believed, or a seal would read all anew.
    theirs = Hashes(str(box.home), "ours")
    theirs._used = forged
    theirs.save()
    assert sealed_by("ours") == "0" * 64
    assert sealed_by("another") == true
    memory.write_text("{", encoding="utf-8")
    assert sealed_by("ours") == true


# --- pushed files -------------------------------------------------------------------------------


def test_pushed_files_arrive_whole_and_are_known_until_they_change(box: Box) -> None:
    box.ran()
    odd = "\udcff\n模.py"
    reply = box.push(
        (member("src/run.sh", mode=0o755), b"#!"),
        (member(odd), b"odd"),
        (member("in", link="x"), b"data"),
    )

    known, indexed = (
        box.seal(),
        box.ask("index", work=str(box.work), paths=["src/run.sh", "src", "absent"]),
    )
    (box.work / "in").write_bytes(b"atad")
    changed = box.seal()

    assert set(reply["files"]) == {"src/run.sh", "%FF%0A模.py", "in"}
    assert reply["bytes"] == 9
    assert (box.work / "src" / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (box.work / "src" / "run.sh").stat().st_mtime == 1_700_000_000
    assert indexed["files"] == {
        "src/run.sh": {"size": 2, "sha256": hashlib.sha256(b"#!").hexdigest()}
    }
    assert (known["pushed"], known["unclaimed"]["count"]) == ({"count": 3, "bytes": 9}, 0)
    assert (changed["pushed"]["count"], changed["unclaimed"]["count"]) == (2, 1)
    assert not (box.work / ".gpu-tenant-incoming").exists()


def test_after_a_push_without_a_launch_new_files_are_accounted(box: Box) -> None:
    box.push((member("a"), b"a"))
    (box.work / "b").write_bytes(b"b")

    sealed = box.seal()

    assert (sealed["pushed"]["count"], sealed["unclaimed"]["count"]) == (1, 1)


def test_a_reader_of_the_old_file_keeps_it(box: Box) -> None:
    (box.work / ("n" * 255)).write_bytes(b"old")

    with (box.work / ("n" * 255)).open("rb") as reader:
        assert box.push((member("n" * 255), b"new"))["ok"]
        assert reader.read() == b"old"
    assert (box.work / ("n" * 255)).read_bytes() == b"new"


@pytest.mark.parametrize(
    "hostile",
    [
        member("/tmp/gpu-tenant-absolute"),
        member("a/../../out"),
        member("away/file"),
        member("link", tarfile.SYMTYPE, "/etc"),
        member("link", tarfile.SYMTYPE, "../out"),
        member("hard", tarfile.LNKTYPE, "away/x"),
        member("pipe", tarfile.FIFOTYPE),
        member("device", tarfile.CHRTYPE),
    ],
    ids=lambda info: f"{info.name}-{info.linkname}".replace("/", "_"),
)
def test_nothing_is_received_outside_of_the_work_directory(
    box: Box, hostile: tarfile.TarInfo
) -> None:
    away = box.root / "away"
    away.mkdir()
    (away / "x").write_bytes(b"x")
    (box.work / "away").symlink_to(away)

    reply = box.push((member("good"), b"good"), (hostile, b""))

    assert reply["code"] in ("UNSAFE_MEMBER", "UNSAFE_PATH")
    assert sorted(p.name for p in away.iterdir()) == ["x"]
    assert sorted(p.name for p in box.root.iterdir()) == ["away", "caretaker", "login", "work"]
    assert sorted(p.name for p in box.work.iterdir()) == ["away", "good"]
    assert "good" in json.loads((box.home / "pushed.json").read_text(encoding="utf-8"))


def test_links_and_directories_inside_are_received(box: Box) -> None:
    box.push(
        (member("d", tarfile.DIRTYPE), b""),
        (member("d/a"), b"a"),
        (member("l", tarfile.SYMTYPE, "d/a"), b""),
        (member("h", tarfile.LNKTYPE, "d/a"), b""),
        (member("l"), b"no longer a link"),
    )

    assert ((box.work / "h").read_bytes(), (box.work / "d" / "a").read_bytes()) == (b"a", b"a")
    assert not (box.work / "l").is_symlink()


@pytest.mark.parametrize(
    "keep", [lambda b: b[:700], lambda b: b"\xff" * 2048], ids=["cut", "noise"]
)
def test_a_broken_stream_leaves_no_half_file(box: Box, keep: Callable[[bytes], bytes]) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        info = member("big")
        info.size = 4096
        archive.addfile(info, io.BytesIO(b"x" * 4096))

    reply = box.ask("receive", work=str(box.work), stream=keep(stream.getvalue()))

    assert reply["code"] == "BAD_ARCHIVE"
    assert list(box.work.iterdir()) == []


def test_a_half_written_push_record_is_refused(box: Box) -> None:
    box.push((member("a"), b"a"))
    (box.home / "pushed.json").write_text('{"a": 1}', encoding="utf-8")

    assert box.ask("manifest", work=str(box.work))["code"] == "RECORD_CORRUPT"


def test_a_work_directory_that_vanished_is_an_empty_seal_with_every_pattern_unmatched(
    box: Box,
) -> None:
    box.ran()
    shutil.rmtree(box.work)

    sealed = box.seal("out/**")

    assert (names(sealed), sealed["unmatched"]) == (["log/j1.log"], ["out/**"])


# --- what is given up of an artifact -------------------------------------------------------------


@pytest.mark.parametrize(
    ("artifacts", "discard", "given_up"),
    [
        (["out/"], ["out/huge.bin"], {"huge.bin"}),
        (["./out/"], ["./out/huge.bin"], {"huge.bin"}),
        (["out/"], ["out/**/*.tmp"], {"a.tmp", "b.tmp"}),
        (["out/"], ["out/sub/"], {"b.tmp", "c.bin"}),
        (["out/*"], ["out/huge.*"], {"huge.bin"}),
        # What is named elsewhere, or as broadly, takes nothing from an artifact.
        (["out/"], ["*.tmp"], set()),
        (["out/"], ["out"], set()),
        (["out"], ["out/"], set()),
        (["out/"], ["out/*"], set()),
        (["out/"], ["out/**"], set()),
        (["out/huge.bin"], ["out/huge.bin"], set()),
        (["out/", "out/huge.bin"], ["out/huge.bin"], set()),
        (["out/", "huge*"], ["out/huge.bin"], {"huge.bin"}),
        (["out/", "out/huge.*"], ["out/h*"], set()),
    ],
)
def test_a_discard_takes_from_an_artifact_what_it_names_more_narrowly(
    box: Box, artifacts: list[str], discard: list[str], given_up: set[str]
) -> None:
    box.ran(
        "mkdir -p out/sub; for f in huge.bin a.tmp sub/b.tmp sub/c.bin model.pt; do echo $f > out/$f; done"
    )
    everything = {"huge.bin", "a.tmp", "b.tmp", "c.bin", "model.pt"}

    sealed = box.seal(*artifacts, discard=discard)
    looked = box.ask(
        "complete", work=str(box.work), artifacts=artifacts, discard=discard, quiet_s=0
    )

    kept = {name.rpartition("/")[2] for name in names(sealed) if name.startswith("work/")}
    listed = {file["at"].rpartition("/")[2] for file in looked["files"]}
    of_these = everything if artifacts[0] != "out/huge.bin" else {"huge.bin"}
    assert kept == of_these - given_up
    assert given_up.isdisjoint(listed)
    assert sealed["discarded"]["count"] >= len(given_up)


def test_what_a_setup_made_is_not_told_while_a_terminal_is_open(box: Box) -> None:
    box.ran("echo made > made.txt", job="setup1", setup=True)
    looked = {"work": str(box.work), "roots": ["~"], "artifacts": [], "made_by": "setup1"}
    ours, theirs = os.openpty()
    try:
        shared = box.ask("manifest", **looked)
        alone = box.ask("manifest", **looked, logins=True)
    finally:
        os.close(ours)
        os.close(theirs)

    assert [Path(made["at"]).name for made in shared["made"]] == ["made.txt"]
    assert (alone["ok"], alone["code"]) == (False, "AT_WORK")


def test_a_link_that_nobody_declared_comes_home_if_it_leads_to_what_is_kept(box: Box) -> None:
    out = box.work / "out"
    out.mkdir()
    (out / "part").write_bytes(b"x")
    box.ran()
    (box.work / "stray").write_bytes(b"y")
    for name, target in {
        "best": "out/part",
        "latest": "out",
        "second": "stray",
        "gone": "nowhere",
        "beyond": "/etc/passwd",
        "given-up": "stray",
    }.items():
        (box.work / name).symlink_to(target)

    sealed = box.seal("out/**", discard=["given-up"], bring_bytes=1 << 20)

    links = {e["name"]: e["target"] for e in sealed["entries"] if e["kind"] == "link"}
    assert links == {
        "work/best": "out/part",
        "work/latest": "out",
        "work/second": "stray",
        "work/gone": "nowhere",
    }
    assert {e["class"] for e in sealed["entries"] if e["kind"] == "link"} == {"unasked"}
    assert whys(sealed) == {}
    assert box.seal("out/**")["digest"]
