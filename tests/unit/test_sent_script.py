"""With a request to the caretaker only those parts of its script travel that the verb needs."""

import json
import re
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from box_scripts.caretaker.verbs import PART_OF
from gpu_tenant.box.sent_script import only_for, pack_script

CARETAKER = Path(__file__).parents[2] / "scripts" / "caretaker.py"
WHOLE = CARETAKER.read_text(encoding="utf-8")
LOADS_ALL = """
import sys
path, verb = sys.argv[1:3]
with open(path, encoding="utf-8") as file:
    text = file.read()
names = {"__name__": "sent", "__file__": path}
exec(compile(text, path, "exec"), names)
before = set(names["PARTS"])
names["function_of"](verb)
for part in sorted(before):
    __import__(part)
"""


@pytest.mark.parametrize("verb", PART_OF)
def test_all_that_the_parts_for_a_verb_import_travels_with_them(verb: str, tmp_path: Path) -> None:
    sent = tmp_path / "caretaker.py"
    sent.write_text(only_for(verb, WHOLE), encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", LOADS_ALL, str(sent), verb],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    inner = set(re.findall(r"from box_scripts\.caretaker\.(\w+) import", sent.read_text("utf-8")))
    carried = set(re.findall(r"^# --- (\w+) ", sent.read_text("utf-8"), re.MULTILINE))
    assert inner - carried <= {"by_hand"}


def test_an_index_travels_without_the_seal_and_answers_the_same(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a").write_text("a", encoding="utf-8")
    sent = tmp_path / "sent.py"
    sent.write_bytes(zlib.decompress(pack_script(CARETAKER, "index")))
    request = {"work": str(tmp_path / "work"), "paths": ["a"]}

    said = [_files(at, tmp_path / "home", request) for at in (sent, CARETAKER)]

    assert said[0] == said[1] != {}
    assert len(pack_script(CARETAKER, "index")) < len(zlib.compress(CARETAKER.read_bytes(), 9)) / 2
    assert "--- seal ---" in WHOLE
    assert "--- seal ---" not in sent.read_text("utf-8")


def _files(script: Path, home: Path, request: dict[str, object]) -> object:
    done = subprocess.run(
        [sys.executable, "-I", "-S", script, "--home", home, "index", "--request", "-"],
        input=json.dumps(request).encode(),
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)["files"]


def test_a_script_that_is_not_joined_from_parts_travels_whole() -> None:
    occupancy = CARETAKER.with_name("occupancy.py")

    assert zlib.decompress(pack_script(occupancy, "mark")) == occupancy.read_bytes()


def test_a_script_that_was_replaced_is_packed_anew(tmp_path: Path) -> None:
    script = tmp_path / "caretaker.py"
    script.write_text(WHOLE, encoding="utf-8")
    before = zlib.decompress(pack_script(script, "index"))
    script.write_text(WHOLE.replace("import errno", "import errno  # now"), encoding="utf-8")

    after = zlib.decompress(pack_script(script, "index"))

    assert before != after
    assert b"import errno  # now" in after
