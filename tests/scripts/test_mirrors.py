"""Settings of a mirror are made, shown and taken back, and the home is then byte for byte as it was."""

import configparser
import json
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from parts import required

MIRRORS = Path(__file__).parents[2] / "scripts" / "mirrors.sh"
MIRROR = "https://mirror.test/simple"
Reply = dict[str, Any]


@pytest.fixture(scope="module", params=["dash", "busybox sh"])
def shell(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A shell with the tools that a box with this shell has: busybox brings its own, and only those."""
    words = str(request.param).split()
    required(words[0])
    path = os.environ["PATH"]
    if words[0] == "busybox":
        path = str(tmp_path_factory.mktemp("applets"))
        subprocess.run(["busybox", "--install", "-s", path], check=True)
    # `env` sets what the tests do not: they give HOME and the like
    return " ".join(
        [
            shutil.which("env") or "env",
            f"PATH={path}",
            shutil.which(words[0]) or words[0],
            *words[1:],
        ]
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "the home of o'neil $(touch hacked)"
    home.mkdir()
    return home


def mirrors(shell: str, home: Path, *words: str, **env: str) -> Reply:
    done = subprocess.run(
        [*shell.split(), str(MIRRORS), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=120,
        cwd=home.parent,
        env={"PATH": os.environ["PATH"], "HOME": str(home), **env},
    )
    reply: Reply = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == (0 if reply["ok"] else 2 if reply["code"] == "BAD_REQUEST" else 1)
    return reply


def everything(top: Path) -> dict[str, tuple[int, bytes]]:
    """Every file, link and directory below, with its mode and content."""
    return {
        str(path.relative_to(top)): (
            stat.S_IFMT(path.lstat().st_mode) | path.lstat().st_mode & 0o777,
            os.fsencode(path.readlink())
            if path.is_symlink()
            else path.read_bytes()
            if path.is_file()
            else b"",
        )
        for path in sorted(top.rglob("*"))
    }


PIP_FILES = {
    "none": None,
    "plain": b"[global]\nindex-url = https://old.test/simple\ntimeout = 60\n",
    "no last newline": b"[global]\ntimeout = 60",
    "no section": b"# mine\n",
    "another section": b"[install]\nno-deps = no\n\n[global]\n\n[list]\nformat = columns\n",
    "crlf": b"[global]\r\nindex_url: https://old.test\r\n  /continued\r\ntimeout = 60\r\n",
    "empty": b"",
}


@pytest.mark.parametrize("before", PIP_FILES.values(), ids=PIP_FILES.keys())
def test_pip_is_set_once_and_undone_byte_for_byte(
    shell: str, home: Path, before: bytes | None
) -> None:
    path = home / ".config" / "pip" / "pip.conf"
    if before is not None:
        path.parent.mkdir(parents=True)
        path.write_bytes(before)
        path.chmod(0o640)
    was = everything(home.parent)

    for _ in range(2):
        reply = mirrors(shell, home, "set", "pip", MIRROR)
    after = path.read_bytes()
    shown = mirrors(shell, home, "show")["settings"]
    undone = mirrors(shell, home, "undo")

    assert (reply["ok"], reply["file"]) == (True, str(path))
    assert after.count(MIRROR.encode()) == after.count(b"index") == 1
    assert b"continued" not in after
    assert (b"timeout = 60" in after) == (b"timeout" in (before or b""))
    assert {
        "tool": "pip",
        "name": "index-url",
        "value": MIRROR,
        "from": str(path),
        "in_force": True,
    } in shown
    assert undone["restored"] == [str(path)]
    assert everything(home.parent) == was


def test_pip_itself_reads_what_was_set(home: Path) -> None:
    mirrors("sh", home, "set", "pip", MIRROR)

    read = configparser.ConfigParser()
    read.read(home / ".config" / "pip" / "pip.conf")

    assert read["global"]["index-url"] == MIRROR


def test_a_shell_that_sources_the_file_has_the_values_whatever_they_hold(
    shell: str, home: Path
) -> None:
    was = everything(home.parent)
    caches = home.parent / "data disk" / 'it\'s `big` \\ "fast"'

    mirrors(shell, home, "set", "hf", "https://hf.test/")
    for _ in range(2):
        reply = mirrors(shell, home, "set", "cache", str(caches))
    said = subprocess.run(
        [*shell.split(), "-c", f"{reply['source']} && env -0"],
        capture_output=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    ).stdout.decode()
    mirrors(shell, home, "undo")

    assert {
        "HF_ENDPOINT=https://hf.test",
        f"HF_HOME={caches}/huggingface",
        f"XDG_CACHE_HOME={caches}",
        f"PIP_CACHE_DIR={caches}/pip",
        f"TORCH_HOME={caches}/torch",
        f"HF_TOKEN_PATH={home}/.cache/huggingface/token",
    } <= set(said.split("\0"))
    assert everything(home.parent) == was


def test_lines_of_others_in_the_env_file_stay(shell: str, home: Path) -> None:
    path = home / ".gpu-tenant-env"
    path.write_bytes(b"export MINE=1\nexport HF_ENDPOINT='https://old.test'\n# end")

    mirrors(shell, home, "set", "hf", "https://hf.test")

    assert path.read_bytes() == b"export MINE=1\n# end\nexport HF_ENDPOINT='https://hf.test'\n"


def test_a_link_stays_a_link(shell: str, home: Path) -> None:
    (home / ".config" / "pip").mkdir(parents=True)
    (home / "dotfiles").write_bytes(b"[global]\ntimeout = 9\n")
    (home / ".config" / "pip" / "pip.conf").symlink_to("../../dotfiles")
    was = everything(home)

    mirrors(shell, home, "set", "pip", MIRROR)

    assert MIRROR in (home / "dotfiles").read_text(encoding="utf-8")
    assert (home / ".config" / "pip" / "pip.conf").is_symlink()
    mirrors(shell, home, "undo")
    assert everything(home) == was


def test_what_somebody_wrote_since_is_kept_aside_by_undo(shell: str, home: Path) -> None:
    path = home / ".config" / "pip" / "pip.conf"
    mirrors(shell, home, "set", "pip", MIRROR)
    path.write_bytes(b"[global]\nproxy = mine\n")

    reply = mirrors(shell, home, "undo")

    assert reply["edited_since_kept_as"] == [f"{path}.edited"]
    assert Path(f"{path}.edited").read_bytes() == b"[global]\nproxy = mine\n"
    assert not path.exists()


def test_nothing_to_undo_is_no_failure(shell: str, home: Path) -> None:
    assert mirrors(shell, home, "undo") == {
        "ok": True,
        "verb": "undo",
        "restored": [],
        "already": True,
    }


@pytest.mark.parametrize("words", [("set", "pip", MIRROR), ("set", "hf", "https://hf.test")])
def test_a_home_that_cannot_be_written_is_told(shell: str, words: tuple[str, ...]) -> None:
    assert mirrors(shell, Path("/proc"), *words)["code"] == "NOT_WRITABLE"


def test_what_cannot_be_changed_leaves_no_trace(shell: str, home: Path) -> None:
    (home / ".config").write_bytes(b"a file where a directory is due")
    was = everything(home)

    assert mirrors(shell, home, "set", "pip", MIRROR)["code"] == "NOT_WRITABLE"
    assert everything(home) == was


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("set",),
        ("set", "pip"),
        ("set", "pip", ""),
        ("set", "pip", "\r"),
        ("set", "pip", "mirror.test"),
        ("set", "pip", "https://me:hunter2@mirror.test"),
        ("set", "pip", "https://mirror.test/\nindex-url = https://evil.test"),
        ("set", "hf", "https://x.test/$(touch hacked)"),
        ("set", "cache", ""),
        ("set", "cache", "/"),
        ("set", "cache", "two\nlines"),
        ("set", "conda", MIRROR),
        ("show", "more"),
        ("undo", "all"),
    ],
)
def test_a_wrong_request_changes_nothing(shell: str, home: Path, words: tuple[str, ...]) -> None:
    was = everything(home.parent)

    assert mirrors(shell, home, *words)["code"] == "BAD_REQUEST"
    assert everything(home.parent) == was


def test_what_is_stronger_than_the_setting_is_told(shell: str, home: Path) -> None:
    reply = mirrors(shell, home, "set", "pip", MIRROR, PIP_INDEX_URL="https://image.test")

    assert "PIP_INDEX_URL" in reply["overridden_by"]


def test_show_says_what_is_in_force_and_hides_passwords(shell: str, home: Path) -> None:
    (home / ".pip").mkdir()
    (home / ".pip" / "pip.conf").write_bytes(b"[global]\r\nindex-url=https://a:hunter2@old.test/x")
    (home / ".condarc").write_bytes(
        b"channels:\n  - https://c.test/t/hunter2/main # hunter2\nssl_verify: false"
    )

    settings = mirrors(
        shell, home, "show", PIP_INDEX_URL="https://b:hunter2@image.test", HF_ENDPOINT=""
    )["settings"]

    pip = [s for s in settings if (s["tool"], s["name"]) == ("pip", "index-url")]
    mine = [s for s in pip if "/etc/" not in s["from"]]
    assert [(s["value"], s["in_force"]) for s in mine] == [
        ("https://***@image.test", True),
        ("https://***@old.test/x", False),
    ]
    assert "hunter2" not in json.dumps(settings)
    assert any(s["tool"] == "conda" and "c.test/t/***/main" in s["value"] for s in settings)
    assert any(s["name"] == "HF_ENDPOINT" and s["from"].endswith("empty") for s in settings)


def test_proxy_off_says_what_to_run_and_changes_nothing(shell: str, home: Path) -> None:
    was = everything(home)

    reply = mirrors(shell, home, "proxy-off", http_proxy="http://u:hunter2@p.test:1", ALL_PROXY="")

    assert reply["run"] == "unset http_proxy"
    assert reply["variables"] == [{"name": "http_proxy", "value": "http://***@p.test:1"}]
    assert everything(home) == was


@pytest.mark.parametrize("cut", [0, 1, 10, 400])
def test_it_runs_from_stdin_and_a_cut_one_does_nothing(shell: str, home: Path, cut: int) -> None:
    script = MIRRORS.read_bytes().rstrip(b"\n")  # nor does it need its last newline
    ran = subprocess.run(
        [*shell.split(), "-s", "set", "hf", "https://hf.test"],
        input=script[: len(script) - cut],
        capture_output=True,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
    )

    assert (home / ".gpu-tenant-env").exists() == (cut == 0)
    assert (b'"ok": true' in ran.stdout) == (cut == 0)


def test_help_is_for_people(shell: str) -> None:
    said = subprocess.run(
        [*shell.split(), str(MIRRORS), "--help"], capture_output=True, check=True, env={}
    ).stdout

    assert b"set cache DIR" in said
