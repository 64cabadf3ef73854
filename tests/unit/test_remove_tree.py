"""A tree is removed in time that grows with what is in it, and no faster."""

import os
import subprocess
import sys
from pathlib import Path

from gpu_tenant.files.direct_io import flush_all
from gpu_tenant.files.remove_tree import remove_tree

COUNTED = """
import os, sys
from pathlib import Path
from gpu_tenant.files.remove_tree import remove_tree
top, seen = os.stat(sys.argv[1]).st_ino, []
sys.addaudithook(lambda event, words: seen.append(words[0]) if event == "os.listdir"
                 and os.fstat(words[0]).st_ino == top else None)
remove_tree(Path(sys.argv[1]))
print(len(seen))
"""


def test_a_directory_of_many_directories_is_not_listed_once_for_each(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for number in range(50):
        (tree / str(number) / "inner").mkdir(parents=True)
        (tree / str(number) / "inner" / "file").write_text("x", encoding="utf-8")

    told = subprocess.run(
        [sys.executable, "-c", COUNTED, str(tree)], capture_output=True, check=True, text=True
    )

    assert not tree.exists()
    assert int(told.stdout) <= 3


def test_a_directory_without_permissions_goes_too_and_a_link_is_not_followed(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("x", encoding="utf-8")
    tree = tmp_path / "tree"
    (tree / "shut" / "inner").mkdir(parents=True)
    (tree / "link").symlink_to(tmp_path / "mine")
    (tree / "shut").chmod(0)

    remove_tree(tree)

    assert not tree.exists()
    assert (tmp_path / "mine" / "file").exists()


def test_only_regular_files_are_flushed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")

    told = flush_all([tmp_path / name for name in ("file", "link", "pipe", "none")])

    assert told == [True, False, False, False]
    assert flush_all([]) == []
