"""A file that asks for hours or for gigabytes costs neither, and is not proved."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from parts import required
from unit.formats.bombs import BOMBS, OUTCOMES, write

from gpu_tenant.artifacts.formats import ReadRequest, prove, prove_all
from gpu_tenant.artifacts.formats.resource_limits import allowance_s
from gpu_tenant.artifacts.formats.worker_pool import Readers

_PATIENCE_S = 300
"""On a machine with much else to do; alone, each takes a fraction of that."""
_KIB = 1024


PROVED = """
import json, resource, sys
from pathlib import Path
from gpu_tenant.artifacts.formats import prove
from gpu_tenant.artifacts.formats.worker_pool import Readers
path, readers = Path(sys.argv[1]), Readers()
proof = prove(path, name=f"work/{path.name}", sha256=sys.argv[2], readers=readers)
readers.close()
held_kib = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
told = [proof.sha256, proof.size_bytes, proof.verdict.outcome, proof.verdict.not_proved, held_kib]
print(json.dumps(told))
"""
"""In a process of its own, so that no other test's children are counted."""


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_not_proved_and_its_bytes_are_hashed(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, name)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()

    ran = subprocess.run(
        [sys.executable, "-c", PROVED, str(path), digest],
        capture_output=True,
        check=True,
        timeout=_PATIENCE_S,
    )

    sha256, size_bytes, outcome, not_proved, held_kib = json.loads(ran.stdout)
    assert (sha256, size_bytes) == (digest, path.stat().st_size)
    assert held_kib < 900 * _KIB
    assert outcome == OUTCOMES.get(name, "opaque")
    assert outcome != "opaque" or not_proved


def test_good_files_beside_a_bomb_are_proved(tmp_path: Path) -> None:
    bomb = write(tmp_path, "endless.sqlite")
    good = tmp_path / "good.json"
    good.write_text('{"a": 1}', encoding="utf-8")
    paths = [good, bomb, good, good]

    proofs = prove_all([ReadRequest(x, x.name, x.stat().st_size) for x in paths])

    assert [proof and proof.verdict.outcome for proof in proofs] == [
        "loads",
        "opaque",
        "loads",
        "loads",
    ]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no ps")
def test_where_the_system_limits_no_memory_a_reader_that_takes_too_much_is_stopped(
    tmp_path: Path,
) -> None:
    required("ps")
    path = write(tmp_path, "one_chunk.h5")
    free = Readers("watched")

    proof = prove(path, name=path.name, sha256=None, readers=free)

    free.close()
    assert proof is not None
    assert proof.verdict.outcome == "opaque"


def test_a_reader_that_is_killed_says_nothing_against_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os\nread = os.preadv\n"
        "def preadv(*what):\n    os.kill(os.getpid(), 9)\nos.preadv = preadv\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    path = tmp_path / "good.json"
    path.write_text("{}", encoding="utf-8")
    readers = Readers()

    proof = prove(path, name=path.name, sha256=None, readers=readers)

    assert proof is not None
    assert proof.sha256 == hashlib.sha256(b"{}").hexdigest()
    assert (proof.verdict.outcome, proof.verdict.not_proved) == (
        "opaque",
        ("its reader was killed from outside",),
    )


def test_a_reader_is_told_no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RUNPOD_API_KEY", "secret")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "sitecustomize.py").write_text(
        f"import os\nopen({str(tmp_path / 'told')!r}, 'w').write(repr(dict(os.environ)))",
        encoding="utf-8",
    )
    (tmp_path / "x.json").write_text("{}", encoding="utf-8")
    readers = Readers()

    prove(tmp_path / "x.json", name="x.json", sha256=None, readers=readers)

    readers.close()
    assert "secret" not in (tmp_path / "told").read_text(encoding="utf-8")


def test_a_large_file_is_allowed_more_than_a_small_one() -> None:
    assert 10 <= allowance_s(100) < 12
    assert allowance_s(2 << 30) > 1800


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no ps")
def test_a_reader_whose_memory_nothing_can_watch_is_stopped_with_that_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "one_chunk.h5")
    watched = Readers("watched")
    monkeypatch.setenv("PATH", str(tmp_path))

    proof = prove(path, name=path.name, sha256=None, readers=watched)

    watched.close()
    assert proof is not None
    assert proof.verdict.outcome == "opaque"
    assert "there is no program `ps`" in proof.verdict.not_proved[0]
