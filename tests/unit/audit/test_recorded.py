"""What real machines said, as `make real-gpu` recorded it, is read right. A recording joins by being put into `recorded/`.

A rehearsal's stand-in is recorded the same way each time, and held to the same: it is to look like the real ones.
"""

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from real_gpu.parts.driver import CSV, found, queried, spellings
from real_gpu.record import SCRIPTS, load_script, masked

from gpu_tenant.box.audit.burn_checks import judge_burnt, read_burnt
from gpu_tenant.box.audit.findings import Rented
from gpu_tenant.box.audit.probe import MIB, read_smi
from gpu_tenant.emulators.gpus import load_figures, put_stand_in, rented_gpus
from gpu_tenant.providers.gpu_catalog import known_gpu

HERE = Path(__file__).parent / "recorded"
STAND_IN = "a rehearsal's"
NAMES = [STAND_IN, *sorted(path.name for path in HERE.glob("*") if path.is_dir())]
Rows = list[dict[str, Any]]
REPLAY = """#!{python} -IS
import json, sys
rows = json.load(open({rows!r}))
for row in rows:
    if row["argv"][1:] == sys.argv[1:]:
        sys.stdout.write(row["out"])
        sys.exit(row["status"] or 0)
sys.exit("nobody recorded this spelling: {{}}".format(sys.argv[1:]))
"""


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """A recording of the rehearsal's nvidia-smi."""
    programs = tmp_path_factory.mktemp("programs")
    gpus = rented_gpus("H100 SXM", 1)
    assert gpus is not None
    put_stand_in(programs, gpus)
    return queried(str(programs / "nvidia-smi"), "idle")


def recorded(name: str, stand_in: Rows) -> Rows:
    if name == STAND_IN:
        return stand_in
    rows: Rows = json.loads((HERE / name / "queries.json").read_text(encoding="utf-8"))
    return rows


def by_state(rows: Rows) -> dict[str, Rows]:
    states = dict.fromkeys(row["state"] for row in rows)
    return {state: [row for row in rows if row["state"] == state] for state in states}


@pytest.fixture
def replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Rows], None]:
    """The `nvidia-smi` on the PATH answers as it was recorded, and to nothing else."""

    def put(rows: Rows) -> None:
        (tmp_path / "rows.json").write_text(json.dumps(rows), encoding="utf-8")
        program = tmp_path / "nvidia-smi"
        text = REPLAY.format(python=sys.executable, rows=str(tmp_path / "rows.json"))
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return put


@pytest.mark.parametrize("name", NAMES)
def test_the_xml_and_the_tables_tell_of_the_same_gpus(name: str, stand_in: Rows) -> None:
    for rows in by_state(recorded(name, stand_in)).values():
        driver = read_smi(found(rows, "-q", "-x").out)
        table = found(rows, "--query-gpu=index,name,utilization").out.splitlines()

        assert driver is not None
        assert driver.version
        assert driver.cuda
        assert len(driver.gpus) == len(table) > 0
        for gpu, line in zip(driver.gpus, table, strict=True):
            cells = [cell.strip() for cell in line.split(",")]
            assert (str(gpu.index), gpu.name) == (cells[0], cells[1])
            assert gpu.total_bytes == int(cells[4]) * MIB
            assert gpu.used_bytes is not None
            assert gpu.bus
            assert gpu.temperature_c is not None


@pytest.mark.parametrize("name", NAMES)
def test_every_script_reads_what_the_driver_said(
    name: str, stand_in: Rows, replayed: Callable[[Rows], None]
) -> None:
    burn, activity, vram, pairs = map(
        load_script, ("burn.py", "activity.py", "vram.py", "pairs.py")
    )
    for rows in by_state(recorded(name, stand_in)).values():
        replayed(rows)

        (watched,) = burn.watched()
        (looked,), answered = activity.gpus({})
        (told,) = vram.driver()

        lacking = [key for key, value in watched.items() if value is None]
        assert lacking == []
        assert answered == "ok"
        assert [key for key in activity.TOLD if looked[key] is None] == []
        assert told["name"] == watched["name"]
        assert (told["total_mib"], told["used_mib"]) == (
            watched["total_mib"],
            watched["used_mib"],
        )
        assert told["device"]
        assert pairs.gpus() == 1


@pytest.mark.parametrize("name", NAMES)
def test_the_caretaker_s_sample_is_numbers_alone(name: str, stand_in: Rows) -> None:
    for rows in by_state(recorded(name, stand_in)).values():
        (line,) = found(rows, "--query-gpu=index,name,utilization").out.splitlines()

        cells = [cell.strip() for cell in line.split(",")]

        assert len(cells) == 6
        assert all(cell.isdigit() for cell in (cells[0], *cells[2:]))


@pytest.mark.parametrize("name", NAMES)
def test_under_load_a_sound_gpu_is_as_paid_for(name: str) -> None:
    gpus = rented_gpus("H100 SXM", 1)
    assert gpus is not None
    answer: Any = load_figures(gpus)
    if name != STAND_IN:
        answer = json.loads((HERE / name / "burn.json").read_text(encoding="utf-8"))
    model = known_gpu(re.sub(r" \(.*\)$", "", answer["gpus"][0]["name"]))
    assert model is not None
    rented = Rented(gpu=model.name, count=1, vram_gib=model.vram_gib)
    lease_is = "rehearsed" if name == STAND_IN else "real"

    found_ = list(judge_burnt(read_burnt(answer), rented, lease_is=lease_is))  # type: ignore[arg-type]

    assert [f for f in found_ if f.level != "ok"] == []
    assert any("as paid for" in f.seen for f in found_)


def test_every_question_that_a_script_asks_the_driver_is_recorded() -> None:
    """A query that is written out in a script is one of those that are recorded."""
    asked = {
        query
        for path in SCRIPTS.glob("*.py")
        for query in re.findall(r'"(--query-[a-z-]+=[\w.,]+)"', path.read_text(encoding="utf-8"))
    }

    assert asked
    assert asked <= {words[0] for words in spellings() if words[-1] == CSV}


def test_what_names_one_piece_of_hardware_is_masked() -> None:
    told = masked(
        "<uuid>GPU-1b2c3d4e-aaaa-bbbb-cccc-0123456789ab</uuid><serial>1652923001234</serial>\n"
        "    Serial Number                         : 1652923001234\n"
        "    GPU UUID                              : GPU-1b2c3d4e-aaaa-bbbb-cccc-0123456789ab\n"
    )

    assert "1652923001234" not in told
    assert "1b2c3d4e" not in told
    assert told.count("GPU-00000000-0000-4000-8000-000000000000") == 2
