"""Where a part of the check writes what it saw, and how it judges it."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"
BESIDE = Path(__file__).parent


@dataclass
class Ran:
    """One command, and what came of it. `status` is None if it did not end in time, or is not here."""

    argv: list[str]
    status: int | None
    out: str
    err: str
    took_s: float

    def reply(self) -> Any:
        """The JSON on the last line; None if there is none."""
        try:
            return json.loads(self.out.strip().splitlines()[-1])
        except (IndexError, ValueError):
            return None

    def answer(self) -> Any:
        """The JSON that the whole output is; None if it is none."""
        try:
            return json.loads(self.out)
        except ValueError:
            return None

    def words(self) -> str:
        """The end of what it said, on one line."""
        return " ".join(f"{self.out[-400:]} {self.err[-600:]}".split())


@dataclass
class Record:
    """What one part saw, in a folder of its own, and its checks, each written down at once."""

    part: str
    folder: Path
    python: str
    """The interpreter that has torch. It is also the `python3` of the boxes."""

    def right(self, what: str, seen: object, right: object) -> bool:
        """One line of the table: what was looked at, what was seen, and whether it is as it should be."""
        self._write(what, seen, "right" if right else "wrong")
        return bool(right)

    def told(self, what: str, seen: object) -> None:
        """One line of the table that is only told, because nothing says what it should be."""
        self._write(what, seen, "told")

    def _write(self, what: str, seen: object, verdict: str) -> None:
        text = seen if isinstance(seen, str) else json.dumps(seen, default=str)
        row = {"part": self.part, "what": what, "seen": text[:1500], "verdict": verdict}
        with (self.folder / "checks.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def keep(self, name: str, content: object) -> None:
        """A file of the recording: JSON, or text as it is."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, str) else json.dumps(content, indent=1, default=str)
        path.write_text(masked(text), encoding="utf-8")

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        environ: Mapping[str, str] | None = None,
        stdin: str | None = None,
        cwd: Path | None = None,
    ) -> Ran:
        """Run a command to its end, or to the end of its time."""
        ran = ran_of(argv, timeout_s=timeout_s, environ=environ, stdin=stdin, cwd=cwd)
        with (self.folder / "commands.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(ran)) + "\n")
        return ran

    def script(
        self, name: str, *words: str, timeout_s: float, environ: Mapping[str, str] | None = None
    ) -> Ran:
        """Run a script of ours as a box does: isolated, and from stdin unless it has requests there."""
        argv = [self.python, "-I", "-S", str(SCRIPTS / name), *words]
        return self.run(argv, timeout_s=timeout_s, environ=environ)

    @contextmanager
    def busy(self, seconds: float, environ: Mapping[str, str] | None = None) -> Iterator[int]:
        """A torch program computes on the GPU meanwhile. Yields its process number; 0 if it did not begin."""
        argv = [self.python, str(BESIDE / "torch_side/busy.py"), str(seconds)]
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            env=dict(environ or bare()),
        )
        said: list[str] = []
        try:
            assert child.stdout
            for line in child.stdout:
                said.append(line)
                if line.startswith("busy"):
                    break
            began = bool(said) and said[-1].startswith("busy")
            # The driver's use of a GPU is an average of up to a second.
            time.sleep(2.5 if began else 0)
            if not began:
                self.right("a torch program computes on the GPU", "".join(said)[-600:], False)
            yield child.pid if began else 0
        finally:
            child.kill()
            child.communicate()


def ran_of(
    argv: Sequence[str],
    *,
    timeout_s: float,
    environ: Mapping[str, str] | None = None,
    stdin: str | None = None,
    cwd: Path | None = None,
) -> Ran:
    began = time.monotonic()
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env=dict(environ or bare()),
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as error:
        return Ran(list(argv), None, "", f"{argv[0]} is not here: {error}", 0.0)
    status: int | None
    try:
        out, err = child.communicate(stdin, timeout=timeout_s)
        status = child.returncode
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        out, err = child.communicate()
        status, err = None, f"{err}\nit did not end in {timeout_s:g} s"
    took_s = round(time.monotonic() - began, 3)
    return Ran(list(argv), status, masked(out), masked(err), took_s)


def bare() -> dict[str, str]:
    """This environment without what is only meant for the check itself: torch is to find its own packages."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def masked(text: str) -> str:
    """The text without what names one piece of hardware: the recordings are to be published."""
    numbers: dict[str, int] = {}

    def one(match: re.Match[str]) -> str:
        number = numbers.setdefault(match[0], len(numbers))
        return f"GPU-{number:08x}-0000-4000-8000-000000000000"

    text = re.sub(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", one, text)
    tags = "serial|board_serial|chassis_serial_number|gpu_fabric_guid|clusterUuid|pdi"
    text = re.sub(rf"<({tags})>(?!N/A)[^<]*</\1>", r"<\1>0</\1>", text)
    names = r"Serial Number|Chassis Serial Number|GPU Fabric GUID|ClusterUUID|GPU PDI"
    return re.sub(rf"(?m)^(\s*(?:{names})\s*: )(?!N/A).*$", r"\g<1>0", text)


def load_script(name: str) -> Any:
    """A script of ours as a module, for its tables and readers."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(f"box_{Path(name).stem}", SCRIPTS / name)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = kept
    return module
