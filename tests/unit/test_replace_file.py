"""A file gets new content as a whole, in one way."""

import ast
from pathlib import Path

import pytest

import gpu_tenant
from gpu_tenant.files.replace_file import Durable, replace_file, replacing

PACKAGE = Path(gpu_tenant.__file__).parent


@pytest.mark.parametrize("durable", ["none", "file", "directory"])
@pytest.mark.parametrize("draft", [None, "it.new"])
def test_the_new_content_is_there_and_nothing_beside_it(
    tmp_path: Path, durable: Durable, draft: str | None
) -> None:
    path = tmp_path / "it"
    path.write_text("old", encoding="utf-8")

    replace_file(path, "new ü", durable=durable, mode=0o640, draft=draft)

    assert path.read_bytes() == "new ü".encode()
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_after_an_error_it_is_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "it"
    path.write_text("old", encoding="utf-8")

    def half_of_it() -> None:
        with replacing(path, durable="file") as file:
            file.write(b"half of the new")
            assert path.read_text(encoding="utf-8") == "old"
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half_of_it()

    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_draft_that_a_crash_left_is_written_anew_and_a_link_in_its_place_is_not_followed(
    tmp_path: Path,
) -> None:
    path, elsewhere = tmp_path / "it", tmp_path / "elsewhere"
    (tmp_path / "it.new").write_text("a long rest of an earlier draft", encoding="utf-8")
    replace_file(path, "new", durable="none", draft="it.new")
    elsewhere.write_text("mine", encoding="utf-8")
    (tmp_path / "it.new").symlink_to(elsewhere)

    with pytest.raises(OSError, match="symbolic"):
        replace_file(path, "newer", durable="none", draft="it.new")

    assert path.read_text(encoding="utf-8") == "new"
    assert elsewhere.read_text(encoding="utf-8") == "mine"


def test_nothing_else_renames_a_file_into_the_place_of_another() -> None:
    # A landing goes by open directories, a transport copies a stream, and a job brings its own code. The probe runs in
    # the smoke test's command, alone, and writes its notes where the test deletes them.
    others = {
        "files/replace_file.py",
        "files/state_dir.py",
        "transports/local.py",
        "jobs/memory_probe.py",
        "faces/demo/job/train.py",
    }
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (
            ast.unparse(node.func) in ("os.replace", "os.rename")
            or (node.func.attr == "replace" and len(node.args) == 1 and not node.keywords)
        )
    }

    # `dataclasses.replace` with one argument would change nothing, so nobody writes that.
    assert found == others
