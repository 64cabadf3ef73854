"""What is installed on a box, what is held back for the image, and what is refused before anything is done."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from arranged import LEASE, NOON, active, profile
from packages import wheel

from gpu_tenant.box.environment import prepare as asking
from gpu_tenant.box.environment.git_source import repository
from gpu_tenant.box.environment.history import activation, newest_recorded
from gpu_tenant.box.environment.mirrors import mirrors
from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import BadRequest, JobRunning, LocalTrouble, Refused, SecretRefused
from gpu_tenant.files.requirements_text import paths_of_a_computer
from gpu_tenant.ledger import Ledger

SCRIPT = Path(__file__).parents[2] / "scripts" / "prepare.py"
IMAGE = {"torch": "2.3.1+cu121", "tensorflow-cpu": "2.16.1"}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prepare_on_a_box", SCRIPT)
    assert spec
    assert spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def work(tmp_path: Path) -> Path:
    made = tmp_path / "t" / "work"
    made.mkdir(parents=True)
    return made


def look(work: Path, **request: Any) -> dict[str, Any]:
    """What the script says of the tree, as a box would run it."""
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-", "look", json.dumps({"directory": "t", **request})],
        input=SCRIPT.read_bytes(),
        env={"HOME": str(work.parents[1]), "PATH": os.environ["PATH"]},
        capture_output=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(ran.stdout)
    return answer


@pytest.mark.parametrize(
    ("line", "held"),
    [
        ("torch==9.9", True),
        ("torch @ https://example.invalid/torch-9.9-py3-none-any.whl", True),
        ("/wheels/torch-9.9-cp311-cp311-linux_x86_64.whl", True),
        ("Tensorflow[and-cuda]>=2 ; python_version > '3.8'", True),
        ("nvidia-cublas-cu12==12.1", True),
        ("nvidia-ml-py", False),
        ("torchvision==1.0", False),
        ("torch-ema==0.3", False),
        ("torchmetrics", False),
        ("jax[cuda12]", False),
        ("--find-links torch", False),
    ],
)
def test_a_pin_is_held_back_where_the_image_has_that_very_thing(
    script: ModuleType, line: str, held: bool
) -> None:
    kept, back = script._without_held([line], IMAGE)

    assert (bool(back), bool(kept)) == (held, not held)


def test_nothing_is_held_where_the_image_has_nothing(script: ModuleType) -> None:
    assert script._without_held(["torch==9.9", "nvidia-nccl-cu12"], {})[1] == []


def test_requirements_are_read_with_all_that_they_include(script: ModuleType, work: Path) -> None:
    (work / "more").mkdir()
    own = wheel(work / "wheels", "tinypkg", "1.0")
    (work / "requirements.txt").write_text(
        "a==1 \\\n  --hash=sha256:00  # why\n-r more/b.txt\n-c limits.txt\n./wheels/"
        + own.name
        + "\n",
        encoding="utf-8",
    )
    (work / "more" / "b.txt").write_text(
        "b\n-r ../requirements.txt\n-f ../wheels\n", encoding="utf-8"
    )
    (work / "limits.txt").write_text("c<2\n", encoding="utf-8")
    limits: list[str] = []

    lines = script._flat(str(work / "requirements.txt"), str(work), limits, set())

    assert lines == ["a==1    --hash=sha256:00", "b", f"--find-links {own.parent}", str(own)]
    assert limits == ["c<2"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-32"])
def test_requirements_with_a_byte_order_mark_are_read_as_pip_does(
    script: ModuleType, work: Path, encoding: str
) -> None:
    (work / "requirements.txt").write_bytes("six==1.17.0\r\n".encode(encoding))

    assert script._flat(str(work / "requirements.txt"), str(work), [], set()) == ["six==1.17.0"]


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("six @ file:///croot/six_1644875935023/work", "/croot/six_1644875935023/work"),
        ("-e /home/nobody/lib", "/home/nobody/lib"),
        ("/nowhere/a.whl ; python_version > '3'", "/nowhere/a.whl"),
        ("six @ https://example.invalid/six.whl", None),
        ("--index-url /simple", None),
        ("-e git+https://example.invalid/a.git#egg=a", None),
    ],
)
def test_a_path_of_another_computer_is_refused_before_anything_is_installed(
    script: ModuleType, work: Path, line: str, path: str | None
) -> None:
    (work / "requirements.txt").write_text(f"{line}\n", encoding="utf-8")

    assert paths_of_a_computer(f"a==1\n{line}\n".encode()) == ([path] if path else [])
    if path is None:
        assert script._flat(str(work / "requirements.txt"), str(work), [], set()) == [line]
    else:
        with pytest.raises(script.Failure, match=path):
            script._flat(str(work / "requirements.txt"), str(work), [], set())


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "no uv.lock, no requirements"),
        (
            {"requirements-a.txt": "", "requirements-b.txt": ""},
            "which of these is meant? requirements-a",
        ),
        ({"pyproject.toml": "[tool.poetry]\n"}, "does not list its dependencies"),
        (
            {"requirements.txt": "-i https://me:hunter2@example.invalid/simple\n"},
            "holds a password",
        ),
    ],
)
def test_what_says_not_what_to_install_is_told(
    work: Path, files: dict[str, str], words: str
) -> None:
    for name, text in files.items():
        (work / name).write_text(text, encoding="utf-8")

    answer = look(work)

    assert answer["ok"] is False
    assert words in answer["message"]
    assert "hunter2" not in answer["message"]


def test_the_same_inputs_have_the_same_name_and_others_another(work: Path) -> None:
    asked = work / "requirements.txt"
    asked.write_text("a==1\n", encoding="utf-8")
    first, same = look(work)["key"], look(work)["key"]
    asked.write_text("a==2\n", encoding="utf-8")

    assert first == same != look(work)["key"]
    assert not (work.parent / ".venv").exists(), "looking changes nothing"


@pytest.mark.parametrize(
    ("asked", "url", "ref"),
    [
        ("https://example.invalid/o/n.git@v1", "https://example.invalid/o/n.git", "v1"),
        ("git@example.invalid:o/n.git", "git@example.invalid:o/n.git", None),
        ("ssh://git@example.invalid/o/n.git@main", "ssh://git@example.invalid/o/n.git", "main"),
        ("file:///srv/n", "file:///srv/n", None),
    ],
)
def test_a_repository_is_an_address_and_a_ref(asked: str, url: str, ref: str | None) -> None:
    assert repository(asked) == {"url": url, "ref": ref}


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ("https://token@example.invalid/o/n.git", SecretRefused),
        ("https://me:pass@example.invalid/o/n.git@v1", SecretRefused),
        ("ssh://me:pass@example.invalid/o/n.git", SecretRefused),
        ("ext::sh -c id", BadRequest),
        ("--upload-pack=id", BadRequest),
        ("https://example.invalid/o/n.git@--depth", BadRequest),
    ],
)
def test_an_address_with_a_secret_or_a_trick_is_refused(
    asked: str, error: type[BadRequest]
) -> None:
    with pytest.raises(error) as refused:
        repository(asked)
    assert "pass" not in str(refused.value)
    assert "token" not in str(refused.value)


def test_mirrors_are_the_owners_and_only_where_they_are_needed(tmp_path: Path) -> None:
    configuration = tmp_path / "config.toml"
    configuration.write_text('[mirrors]\nhf = "https://hub.invalid"\n', encoding="utf-8")
    here = {
        "PIP_INDEX_URL": "https://mirror.invalid/simple",
        "HF_ENDPOINT": "https://other.invalid",
    }
    needy = profile().model_copy(update={"mirror_needed": True})

    assert mirrors(profile(), configuration, here) == {}
    assert mirrors(needy, configuration, here) == {
        "PIP_INDEX_URL": "https://mirror.invalid/simple",
        "HF_ENDPOINT": "https://hub.invalid",
    }
    assert mirrors(needy, configuration, {"PIP_INDEX_URL": "https://me:p@mirror.invalid"}) == {
        "HF_ENDPOINT": "https://hub.invalid"
    }
    configuration.write_text('[mirrors]\npip = "https://me:p@mirror.invalid"\n', encoding="utf-8")
    with pytest.raises(LocalTrouble, match="holds a password"):
        mirrors(needy, configuration, {})


def test_a_job_runs_in_the_newest_environment_or_is_told_why_not(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite3")
    active(ledger)
    with pytest.raises(BadRequest, match="no environment was ever made"):
        newest_recorded(ledger, LEASE)
    assert activation(ledger, LEASE) == {}

    ledger.note(LEASE, timeline.Preparing(job="prepare1"), at=NOON)
    with pytest.raises(JobRunning):
        activation(ledger, LEASE)
    ledger.note(LEASE, timeline.Prepared(state="ready", record=RECORD), at=NOON)
    assert activation(ledger, LEASE) == {"VIRTUAL_ENV": "/home/t/.venv"}
    ledger.note(LEASE, timeline.Prepared(state="failed", job="prepare2"), at=NOON)
    with pytest.raises(Refused, match="could not be made"):
        activation(ledger, LEASE)
    assert newest_recorded(ledger, LEASE).freeze == ("tinypkg==1.0",)
    ledger.close()


RECORD = {
    "key": "k",
    "source": "requirements.txt",
    "asked": {"clone": None},
    "replayed": None,
    "commit": None,
    "environment": "/home/t/.venv",
    "python": "/usr/bin/python3",
    "python_version": "3.11.7",
    "installer": "pip",
    "image": {},
    "held": [],
    "options": [],
    "freeze": ["tinypkg==1.0"],
    "notes": [],
    "began_at": 1.0,
    "ended_at": 2.0,
}


def test_every_way_to_fail_has_words_and_a_next_command(script: ModuleType, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite3")
    lease = active(ledger)
    ledger.close()

    assert {v: k for k, v in script.STATUSES.items()} == asking._FAILURES
    for code in script.STATUSES:
        assert asking._WORDS[code]
        assert asking._trouble(code, "words", lease).remedy


@pytest.mark.parametrize(
    ("said", "code"), [("OSError: No space left on device", "DISK_FULL"), ("no", "NOT_RESOLVED")]
)
def test_a_full_disk_is_told_from_other_ends(
    script: ModuleType, work: Path, monkeypatch: pytest.MonkeyPatch, said: str, code: str
) -> None:
    monkeypatch.setenv("HOME", str(work.parents[1]))

    with pytest.raises(script.Failure) as failed:
        script._run(["sh", "-c", f"echo '{said}'; exit 1"], script.Place({"directory": "t"}), "so")

    assert failed.value.code == code


def test_an_interpreter_without_venv_is_told(script: ModuleType, work: Path) -> None:
    bare = script.Python("/bin/false", "3.9.0", {}, False, [], False, False)

    with pytest.raises(script.Failure, match="has no venv module") as failed:
        script.make_environment(script.Place({"directory": str(work.parent)}), bare, None)

    assert failed.value.code == "NO_VENV"
