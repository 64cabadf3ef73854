"""What a rehearsal's box does when its platform stops it."""

import subprocess
from pathlib import Path

from gpu_tenant.emulators.boxes import Sites

PAIRS = 40


def test_no_process_of_a_stopped_box_sees_another_end(tmp_path: Path) -> None:
    sites = Sites(tmp_path / "boxes", "local", "http://127.0.0.1:1")
    sites.open("b1", [])
    environ = {"HOME": str(tmp_path / "boxes" / "b1" / "home"), "PATH": "/usr/bin:/bin"}
    started: list[subprocess.Popen[bytes]] = []
    try:
        # Of each pair one holds a pipe open, and the other notes that it was closed.
        for number in range(PAIRS):
            holder = subprocess.Popen(["sleep", "600"], env=environ, stdout=subprocess.PIPE)
            started.append(holder)
            note = ["sh", "-c", f"read line; : > {tmp_path}/saw-{number}"]
            started.append(subprocess.Popen(note, env=environ, stdin=holder.stdout))
            assert holder.stdout is not None
            holder.stdout.close()

        sites.close("b1")

        assert [process.wait() for process in started] == [-9] * 2 * PAIRS
        assert not list(tmp_path.glob("saw-*"))
    finally:
        for process in started:
            process.kill()
            process.wait()
