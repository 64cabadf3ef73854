"""The tenant's command line, each verb in a fork of this process: it costs its work, and no imports."""

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KNOWN = frozenset({0, 1, 2, 3, 4, 5, 6, 7, 130})
"""The statuses that a verb may end with."""
LONGEST_S = 600
"""Where a verb is said to hang: on a machine that others use, too, honest ones have taken 150 s."""


def _providers() -> list[pkgutil.ModuleInfo]:
    inside = importlib.import_module("gpu_tenant.providers")
    return [each for each in pkgutil.iter_modules(inside.__path__) if each.ispkg]


def preload() -> None:
    """Every module that a verb needs is loaded, so that its fork begins with its work."""
    for name in (
        "faces.cli.registry",
        "app",
        "service",
        "watchdog.loop",
        "transfer",
        "artifacts.formats",
    ):
        importlib.import_module(f"gpu_tenant.{name}")
    for package in ("transports", "faces.cli", *(f"providers.{p.name}" for p in _providers())):
        inside = importlib.import_module(f"gpu_tenant.{package}")
        for module in pkgutil.iter_modules(inside.__path__):
            with contextlib.suppress(ImportError):
                importlib.import_module(f"{inside.__name__}.{module.name}")
    for late in (
        "asyncssh",
        "httpx2",
        "httpcore",
        "anyio._backends._asyncio",
        "rich.table",
        "rich.console",
        "google.cloud.compute_v1",
        "encodings.ascii",
    ):
        with contextlib.suppress(ImportError):
            importlib.import_module(late)
    # Profiles are remembered, and reading them is most of what a short verb costs.
    importlib.import_module("gpu_tenant.app").known_platforms()
    # A collection in a fork would touch, and so copy, every page that it shares with this process.
    gc.collect()
    gc.freeze()


@dataclass
class Ended:
    """What a verb came to."""

    status: int
    answer: Any
    err: str
    killed: bool


@dataclass
class Client:
    """One computer of the tenant's: a home, a state directory, an environment."""

    home: Path
    environ: Mapping[str, str]
    log: list[dict[str, object]] = field(default_factory=list)
    flags: list[tuple[str, object]] = field(default_factory=list)
    calls: int = 0
    killed: int = 0

    def begin(
        self, *said: str, environ: Mapping[str, str] | None = None
    ) -> tuple[int, Path, list[str]]:
        """The verb is under way."""
        words = list(said)
        place = words.index("--") if "--" in words else len(words)
        words.insert(place, "--json")
        self.calls += 1
        base = self.home / f"{self.calls:03d}-{said[0]}"
        into = {
            to: os.open(f"{base}{name}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
            for to, name in ((1, ".out"), (2, ".err"))
        }
        pid = os.fork()
        if pid:
            for file in into.values():
                os.close(file)
            return pid, base, words
        status = 99
        try:
            os.setsid()
            for to, file in into.items():
                os.dup2(file, to)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.environ.clear()
            os.environ.update({**self.environ, **(environ or {})})
            os.chdir(self.home)
            sys.argv = ["gpu-tenant", *words]
            from gpu_tenant.faces.cli import main

            main()
            status = 0
        except SystemExit as over:
            status = over.code if isinstance(over.code, int) else int(over.code is not None)
        except BaseException:  # noqa: BLE001 - told by its status
            traceback.print_exc()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)

    def end(self, begun: tuple[int, Path, list[str]], kill_after_s: float | None = None) -> Ended:
        """What it came to; it is killed after so long, or when it takes too long."""
        pid, base, words = begun
        since, killed = time.monotonic(), False
        told = os.pidfd_open(pid)
        try:
            longest_s = LONGEST_S if kill_after_s is None else kill_after_s
            if not select.select([told], [], [], longest_s)[0]:
                os.kill(pid, signal.SIGKILL)
                killed = True
                self.killed += kill_after_s is not None
                if kill_after_s is None:
                    self.flags.append(("hung", words))
        finally:
            os.close(told)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        out = Path(f"{base}.out").read_text(encoding="utf-8", errors="replace")
        err = Path(f"{base}.err").read_text(encoding="utf-8", errors="replace")
        if "Traceback" in out + err or (status not in KNOWN and not killed):
            self.flags.append(("traceback", {"verb": words, "status": status, "err": err[-2000:]}))
        line: dict[str, object] = {
            "verb": " ".join(words)[:160],
            "status": status,
            "s": round(time.monotonic() - since, 2),
        }
        if status:
            line["said"] = (err or out)[-300:]
        self.log.append(line)
        try:
            answer = json.loads(out)
        except ValueError:
            answer = None
        return Ended(status, answer, err, killed)

    def ask(
        self,
        *said: str,
        kill_after_s: float | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Ended:
        """The verb has ended."""
        return self.end(self.begin(*said, environ=environ), kill_after_s)

    def at_once(self, pair: Sequence[Sequence[str]], apart_s: float) -> tuple[Ended, bool]:
        """Both were begun, the second so much later, and have ended: the first, and whether it was under way then."""
        one = self.begin(*pair[0])
        time.sleep(apart_s)  # noqa: TID251 - two people are never quite at once
        was_under_way = os.waitid(os.P_PID, one[0], os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        other = self.begin(*pair[1])
        ended = self.end(one)
        self.end(other)
        self.log.append({"at once": was_under_way})
        return ended, was_under_way

    def end_processes(self) -> None:
        """What this client's verbs left running, told by its home, is ended."""
        mine = f"HOME={self.home}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mine in (entry / "environ").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)
