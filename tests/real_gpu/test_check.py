"""The check itself, where no GPU is: it says so, and goes on."""

import json
import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_a_part_that_can_do_nothing_is_wrong_and_stops_no_other(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "nvidia-smi").write_text(
        "#!/bin/sh\necho 'No devices were found'\nexit 6\n", encoding="utf-8"
    )
    (programs / "nvidia-smi").chmod(0o755)
    words = ["--out", str(tmp_path / "out"), "--python", sys.executable, "--only", "driver,memory"]

    done = subprocess.run(
        [sys.executable, "-m", "real_gpu", *words],
        cwd=TESTS,
        env=dict(os.environ, PATH=f"{programs}{os.pathsep}{os.environ['PATH']}"),
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=300,
    )

    summary = json.loads((tmp_path / "out/summary.json").read_text(encoding="utf-8"))
    wrong = {row["part"] for row in summary["checks"] if row["verdict"] == "wrong"}
    assert done.returncode == 1
    assert wrong == {"driver", "memory"}
    assert "No devices were found" in done.stdout
    queries = json.loads((tmp_path / "out/driver/queries.json").read_text(encoding="utf-8"))
    assert {row["status"] for row in queries} == {6}
