"""The check that a person runs alone passes only what is whole, and judges files as the package does."""

import gzip
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from unit.formats.samples import GOOD, verdict

SCRIPTS = Path(__file__).parents[2] / "scripts"
CHECKED, CARETAKER = SCRIPTS / "checked.py", SCRIPTS / "caretaker.py"
WHOLE_BY_CHECKSUM = ("png", "gzip", "bzip2", "xz")
Reply = dict[str, Any]


def checked(*words: str | Path) -> Reply:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(CHECKED), *map(str, words)],
        capture_output=True,
        check=False,
        timeout=120,
    )
    reply: Reply = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == (0 if reply["ok"] else 2 if reply["code"] == "BAD_REQUEST" else 1)
    return reply


def caretaker(home: Path, verb: str, **arguments: object) -> Reply:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(CARETAKER), "--home", str(home), verb, "--request", "-"],
        input=json.dumps(arguments).encode(),
        stdout=subprocess.PIPE,
        check=False,
    )
    reply: Reply = json.loads(done.stdout)
    return reply


WRITES = """
import json, os, time
os.makedirs("out/deep er")
json.dump({"loss": 0.5}, open("out/deep er/results.json", "w"))
open("out/the name\\nof 100% é.jsonl", "w").write('{"step": 1}\\n{"step": 2}')
open("out/notes.txt", "w").write("kept")
open(b"out/\\xff.csv", "w").write("a,b\\n1,2\\n")
os.symlink("notes.txt", "out/link")
"""


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Reply, Path]:
    """A manifest of a job that ran, as from another machine, and a true copy of what it names."""
    top = tmp_path_factory.mktemp("sealed")
    work, home, copy = top / "work", top / "home", top / "copy"
    caretaker(
        home,
        "start",
        job="j1",
        argv=[sys.executable, "-c", WRITES],
        cwd=str(work),
        artifacts=["out/"],
    )
    while caretaker(home, "status", job="j1")["state"] in ("starting", "running", "lingering"):
        pass
    manifest = caretaker(home, "manifest", work=str(work))
    assert manifest["ok"], manifest
    shutil.copytree(work, copy / "work", symlinks=True)
    (copy / "log").mkdir()
    shutil.copy(home / "jobs" / "j1" / "log", copy / "log" / "j1.log")
    return manifest | {"boot_id": "of another machine"}, copy


@pytest.fixture
def here(sealed: tuple[Reply, Path], tmp_path: Path) -> tuple[Path, Path]:
    """The manifest's file and a copy of its own."""
    shutil.copytree(sealed[1], tmp_path / "copy of it", symlinks=True)
    (tmp_path / "m.json").write_text(json.dumps(sealed[0]), encoding="utf-8")
    return tmp_path / "m.json", tmp_path / "copy of it"


def change(path: Path, **fields: object) -> None:
    manifest = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(manifest | fields), encoding="utf-8")


def test_a_true_copy_passes(here: tuple[Path, Path]) -> None:
    reply = checked(*here)

    assert reply["gaps"] == []
    assert reply["matched"] == reply["entries"] == 6
    assert reply["formats"]["json"]["loads"] == reply["formats"]["csv"]["loads"] == 1


def test_a_copy_without_the_work_folder_passes_too(here: tuple[Path, Path]) -> None:
    (here[1] / "work" / "out").rename(here[1] / "out")

    assert checked(*here)["ok"]


@pytest.mark.parametrize("text", ["Welcome to the box!\r\n\r\n%s\r\n", "\ufeff%s", "%s"])
def test_a_manifest_may_come_through_a_login_shell(here: tuple[Path, Path], text: str) -> None:
    here[0].write_text(text % here[0].read_text(encoding="utf-8"), encoding="utf-8")

    assert checked(*here)["ok"]


def spoil(name: str, act: Callable[[Path], object]) -> Callable[[tuple[Path, Path]], object]:
    return lambda here: act(here[1] / name)


def reseal(here: tuple[Path, Path], name: str, content: bytes) -> None:
    """The file is sealed with this content, and is here with it."""
    import hashlib

    manifest = json.loads(here[0].read_text(encoding="utf-8"))
    for entry in manifest["entries"]:
        if entry["name"] == name:
            entry |= {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    form = "{sha256} {size} {kind} {0} {name}\n"
    lines = sorted(form.format(e.get("target", "-"), **e) for e in manifest["entries"])
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    here[0].write_text(json.dumps(manifest | {"digest": digest}), encoding="utf-8")
    (here[1] / name).write_bytes(content)


GAPS: dict[str, tuple[str, Callable[[tuple[Path, Path]], object]]] = {
    "missing": ("MISSING", spoil("work/out/notes.txt", Path.unlink)),
    "the log": ("MISSING", spoil("log/j1.log", Path.unlink)),
    "cut": ("DIFFERS", spoil("work/out/notes.txt", lambda p: p.write_bytes(b"kep"))),
    "flipped": ("DIFFERS", spoil("work/out/notes.txt", lambda p: p.write_bytes(b"kepu"))),
    "a directory": ("DIFFERS", spoil("work/out/notes.txt", lambda p: (p.unlink(), p.mkdir()))),
    "a link made a file": ("DIFFERS", spoil("work/out/link", lambda p: (p.unlink(), p.touch()))),
    "a link elsewhere": (
        "DIFFERS",
        spoil("work/out/link", lambda p: (p.unlink(), p.symlink_to("x"))),
    ),
    "a file made a link": (
        "DIFFERS",
        spoil("work/out/notes.txt", lambda p: (p.rename(p.parent / "n"), p.symlink_to("n"))),
    ),
    "broken when sealed": (
        "BROKEN",
        lambda here: reseal(here, "work/out/deep er/results.json", b'{"loss": 0.'),
    ),
    "a problem": (
        "PROBLEM",
        lambda here: change(here[0], problems=[{"at": "/x", "why": "changing", "detail": ""}]),
    ),
    "unmatched": ("UNMATCHED", lambda here: change(here[0], unmatched=["*.pt"])),
    "unclaimed": (
        "UNCLAIMED",
        lambda here: change(here[0], unclaimed={"count": 1, "bytes": 9, "largest": []}),
    ),
    "unclaimed unsaid": ("UNCLAIMED", lambda here: change(here[0], unclaimed={})),
    "nothing sealed": ("EMPTY", lambda here: change(here[0], entries=[])),
    "another digest": ("ALTERED", lambda here: change(here[0], digest="0" * 64)),
    "a name that climbs": (
        "UNSAFE",
        lambda here: change(
            here[0],
            entries=[{"name": "work/../../etc/passwd", "kind": "file", "size": 1, "sha256": ""}],
        ),
    ),
    "a refusal": (
        "JOB_RUNNING",
        lambda here: here[0].write_text(
            '{"ok": false, "code": "JOB_RUNNING", "message": "j1"}', encoding="utf-8"
        ),
    ),
}


@pytest.mark.parametrize("gap", GAPS)
def test_every_gap_is_named(here: tuple[Path, Path], script: ModuleType, gap: str) -> None:
    why, make = GAPS[gap]
    make(here)

    reply = script.checked(script.manifest_in(here[0]), os.fsencode(here[1]))

    assert (reply["ok"], reply["code"]) == (False, "GAPS")
    assert why in {found["why"] for found in reply["gaps"]}


def test_a_gap_is_the_exit_status_and_a_line_for_a_person(here: tuple[Path, Path]) -> None:
    (here[1] / "log" / "j1.log").unlink()

    done = subprocess.run([sys.executable, str(CHECKED), *here], capture_output=True, check=False)

    assert done.returncode == 1
    assert done.stderr.startswith(b"log/j1.log: MISSING: ")


def test_the_boxs_own_files_are_no_copy_of_themselves(
    here: tuple[Path, Path], sealed: tuple[Reply, Path]
) -> None:
    boot_id = Path("/proc/sys/kernel/random/boot_id")
    change(here[0], boot_id=boot_id.read_text(encoding="ascii").strip())

    assert "boot id" in checked(*here)["warnings"][0]
    own = checked(here[0], sealed[1].parent)
    assert "NO_COPY" in {gap["why"] for gap in own["gaps"]}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"ok": true}', b'{"ok": true, "entries": [']
)
def test_what_is_no_manifest_is_a_wrong_request(here: tuple[Path, Path], content: bytes) -> None:
    here[0].write_bytes(content)

    assert checked(*here)["code"] == "BAD_REQUEST"
    assert checked(here[0], here[1] / "nowhere")["code"] == "BAD_REQUEST"


# --- the same verdicts as the package's ---------------------------------------------------------


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = spec_from_file_location("checked_by_hand", CHECKED)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compare(script: ModuleType, folder: Path, name: str, content: bytes) -> tuple[str, str]:
    """What the package says of the content, and what the script does, of the same format."""
    theirs = verdict(folder, name, content)
    outcome, form, _ = script.inspected(os.fsencode(folder / "staged"), name)
    assert form == theirs.format or theirs.format == "unknown"
    return theirs.outcome, outcome


OPAQUE_SUFFIXES = (".gguf", ".onnx", ".parquet", ".h5", ".jpg", ".jpeg", ".webp")
READ_HERE = [n for n in GOOD if n != "legacy.pt" and not n.endswith(OPAQUE_SUFFIXES)]


@pytest.mark.parametrize("name", READ_HERE)
def test_good_cut_emptied_and_lengthened_files_are_judged_as_the_package_does(
    script: ModuleType, tmp_path: Path, name: str
) -> None:
    content = GOOD[name]
    cuts = [content[: len(content) * n // 16] for n in (0, 1, 5, 8, 12, 15)]

    for case in [content, *cuts, content + b"garbage", bytes(len(content))]:
        theirs, ours = compare(script, tmp_path, name, case)
        assert ours == theirs


OTHER_NAMES = {
    "checkpoint.pth.tar": GOOD["state_dict.pt"],
    "plain.pth.tar": pickle.dumps({"epoch": 3}, protocol=4),
    "truly.pth.tar": GOOD[f"format{tarfile.GNU_FORMAT}.tar"],
    "lines.json": b'{"loss": 1}\n{"loss": 0.5}\n',
    "value.jsonl": b'{\n  "loss": 1\n}\n',
    "packed.csv": gzip.compress(b"a,b\n1,2\n"),
    "MODEL.PT": GOOD["state_dict.pt"],
}


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_a_file_under_another_name_is_judged_as_the_package_does(
    script: ModuleType, tmp_path: Path, name: str
) -> None:
    theirs, ours = compare(script, tmp_path, name, OTHER_NAMES[name])

    assert ours == theirs == "loads"


@pytest.mark.parametrize("name", READ_HERE)
def test_a_flipped_bit_never_breaks_here_what_the_package_loads(
    script: ModuleType, tmp_path: Path, name: str
) -> None:
    dice = random.Random(name)
    for _ in range(5):
        content = bytearray(GOOD[name])
        content[dice.randrange(len(content))] ^= 1 << dice.randrange(8)
        theirs, ours = compare(script, tmp_path, name, bytes(content))
        assert not (theirs == "loads" and ours == "broken")
        if verdict(tmp_path, name, bytes(content)).format in WHOLE_BY_CHECKSUM:
            assert ours == theirs


@pytest.mark.parametrize("name", [n for n in GOOD if n.endswith((*OPAQUE_SUFFIXES, "legacy.pt"))])
def test_what_the_library_cannot_read_is_left_to_the_hash(
    script: ModuleType, tmp_path: Path, name: str
) -> None:
    (tmp_path / "f").write_bytes(GOOD[name])

    assert script.inspected(os.fsencode(tmp_path / "f"), name)[0] == "opaque"
    (tmp_path / "f").write_bytes(b"")
    assert script.inspected(os.fsencode(tmp_path / "f"), name)[0] == "broken"


@pytest.mark.parametrize("name", ["model", "model.bin", "epoch=1.ckpt", "MODEL.PT", "x.unknown"])
def test_a_checkpoint_is_known_by_what_it_holds(
    script: ModuleType, tmp_path: Path, name: str
) -> None:
    theirs, ours = compare(script, tmp_path, name, GOOD["state_dict.pt"])

    assert ours == theirs
