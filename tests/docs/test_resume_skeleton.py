"""The resume skeleton that a page prints, killed at any moment, goes on as if it had not been.

It is run as printed. torch is no dependency of ours, and slow to import: a stand-in keeps the one promise that
`checkpoints.py` needs of it, a file that is a zip archive. Where torch is there, the page's own training loop
runs on it, too, and its losses are compared bit for bit.
"""

import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "references/debug/checkpoint.md"
PRINTED = {
    code.splitlines()[0].removeprefix("# "): code
    for code in re.findall(r"```python\n(# \w+\.py\n.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
}
STAND_IN = """
import json
import os
import zipfile


def save(state, file):
    if state.get("die") == "writing":
        file.write(b"half a file")
        file.flush()
        os.kill(os.getpid(), 9)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("state", json.dumps(state))


def load(path, map_location, weights_only):
    assert weights_only
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("state"))
"""
# A loop whose every loss depends on all before it; it saves every third step, and when asked to stop.
LOOP = """
import os
import sys
from pathlib import Path

from checkpoints import load_newest, save, stop

out, dies_at = Path(os.environ["OUT"]), int(os.environ.get("DIES_AT", "0"))
at = load_newest(out) or {"step": 0, "loss": 1}
while at["step"] < 30:
    at = {"step": at["step"] + 1, "loss": (at["loss"] * 48271 + at["step"]) % 2147483647}
    print(at["step"], at["loss"], flush=True)
    if at["step"] % 3 == 0 or stop.is_set():
        save(out, at["step"], at | {"die": "writing" if at["step"] == dies_at else ""})
    if stop.is_set():
        sys.exit(143)
"""
# Any loop, with a signal to itself at the moment it has said that step.
SIGNALLED = """
import builtins
import os
import runpy
import sys

loop, due, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
say = print


def told(step, *more, **how):
    say(step, *more, **how)
    if step == due:
        os.kill(os.getpid(), number)


builtins.print = told
runpy.run_path(loop, run_name="__main__")
"""
HAS_TORCH = importlib.util.find_spec("torch") is not None and sys.platform != "win32"
DEADLINE_S = 120


class Bench:
    """A directory with the page's files and a loop to run in it."""

    def __init__(self, at: Path, loop: str) -> None:
        self.at, self.out = at, at / "out"
        for name, code in PRINTED.items() | {("loop.py", loop), ("signalled.py", SIGNALLED)}:
            (at / name).write_text(code, encoding="utf-8")
        if loop is LOOP:
            (at / "torch.py").write_text(STAND_IN, encoding="utf-8")

    def run(
        self, *, at_step: int = 0, number: int = signal.SIGKILL, **settings: str
    ) -> tuple[int, dict[int, str], list[str]]:
        """The exit status, each step's loss, and what else was said; it gets the signal at that step."""
        ended = subprocess.run(
            [sys.executable, "-W", "ignore", "signalled.py", "loop.py", str(at_step), str(number)],
            cwd=self.at,
            env=os.environ | {"OUT": str(self.out), "SAVE_EVERY_S": "0"} | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=DEADLINE_S,
            check=False,
        )
        losses: dict[int, str] = {}
        others: list[str] = []
        for line in ended.stdout.splitlines():
            step, _, loss = line.partition(" ")
            if step.isdigit():
                losses[int(step)] = loss
            else:
                others.append(line)
        return ended.returncode, losses, others

    def names(self) -> list[str]:
        return sorted(path.name for path in self.out.iterdir() if path.stem != "best")


LOOPS = {"plain": LOOP} | ({"torch": PRINTED["train.py"]} if HAS_TORCH else {})


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, LOOP)


@pytest.fixture(params=LOOPS)
def any_loop(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return Bench(tmp_path, LOOPS[request.param])


def test_killed_again_and_again_it_makes_the_curve_of_an_undisturbed_run(any_loop: Bench) -> None:
    status, undisturbed, _ = any_loop.run(OUT=str(any_loop.at / "undisturbed"))
    assert status == 0
    assert len(undisturbed) == 30

    whole: dict[int, str] = {}
    for kill_at in (11, 20):  # torch's loop goes on from 11 at the end of an epoch
        status, losses, _ = any_loop.run(at_step=kill_at)
        assert status == -signal.SIGKILL
        whole |= losses
    status, losses, _ = any_loop.run()

    assert status == 0
    assert min(losses) > 10, "it went on, and did not begin anew"
    assert whole | losses == undisturbed


def test_asked_to_stop_it_saves_at_the_end_of_the_step_and_does_not_call_itself_finished(
    any_loop: Bench,
) -> None:
    status, losses, _ = any_loop.run(at_step=4, number=signal.SIGTERM, SAVE_EVERY_S="999")
    _, rest, _ = any_loop.run()

    assert status == 143
    assert max(losses) == 4
    assert min(rest) == 5, "no step was lost, and none repeated"


def test_a_kill_in_the_middle_of_a_write_leaves_the_resume_point_before_it(bench: Bench) -> None:
    status, _, _ = bench.run(DIES_AT="9")
    left = bench.names()
    _, rest, said = bench.run()

    assert status == -signal.SIGKILL
    assert left == ["step-000000003.pt", "step-000000006.pt", "writing.tmp"]
    assert min(rest) == 7
    assert said == [], "nothing torn ever bore the good name"
    assert bench.names() == ["step-000000027.pt", "step-000000030.pt"]


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def zero_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(b"loss") + 1] = 0
    path.write_bytes(content)


@pytest.mark.parametrize("spoil", [cut_off, zero_a_byte])
def test_a_broken_checkpoint_falls_back_to_the_one_before_and_is_put_aside(
    bench: Bench, spoil: Callable[[Path], None]
) -> None:
    bench.run(at_step=14)
    newest = max(bench.out.glob("step-*.pt"))
    spoil(newest)

    _, rest, said = bench.run()

    assert min(rest) == int(newest.stem.removeprefix("step-")) - 3 + 1
    assert newest.name in said[0]
    assert bench.names() == [
        newest.with_suffix(".broken").name,
        "step-000000027.pt",
        "step-000000030.pt",
    ]


def test_where_no_checkpoint_loads_it_does_not_start_over(bench: Bench) -> None:
    bench.run(at_step=14)
    before = bench.names()
    for path in bench.out.glob("step-*.pt"):
        cut_off(path)

    status, losses, said = bench.run()

    assert status == 1
    assert losses == {}
    assert "not starting over" in said[-1]
    assert [name for name in before if name.startswith("step-")] == [
        name for name in bench.names() if name.startswith("step-")
    ], "what might be mended is still there"


def test_the_page_saves_what_torch_loads_without_running_code() -> None:
    code = PRINTED["checkpoints.py"] + PRINTED["train.py"]
    for name, part in PRINTED.items():
        compile(part, name, "exec")

    assert set(PRINTED) == {"checkpoints.py", "train.py"}
    assert re.findall(r"torch\.(?:save|load)\(.*\)", code) == [
        "torch.save(state, file)",
        'torch.load(path, map_location="cpu", weights_only=True)',
    ]
    assert "keys.tolist()" in code, "numpy's own RNG state is an array, which weights_only refuses"
    assert "np.random.get_state()," not in code
