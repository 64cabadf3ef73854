"""`gpu-tenant rehearse` in a process of its own, and who rents there."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from e2e.owner import command_lines
from e2e.people import living_in
from e2e.renting import QuickClock

from gpu_tenant.app import open_tenancy
from gpu_tenant.leases.cards import Card


class Rehearsal:
    """One that was started on the command line, and what it said."""

    def __init__(self, directory: Path, provider: str = "vastai", port: int = 0) -> None:
        self.directory = directory
        self._home = {"HOME": str(directory), "GPU_TENANT_HOME": str(directory / "unused")}
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "gpu_tenant",
                "rehearse",
                provider,
                "--json",
                "--keep",
                str(directory / "stage"),
                "--port",
                str(port),
            ],
            env={**_plain(), **self._home},
            encoding="utf-8",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdout
        said = json.loads(self.process.stdout.readline())
        self.url: str = said["url"]
        self.environment: Mapping[str, str] = said["environment"]

    def ask(self, path: str, body: object = None) -> Any:
        sent = None if body is None else json.dumps(body).encode()
        with urlopen(Request(f"{self.url}/_rehearsal/{path}", sent), timeout=120) as answer:
            return json.load(answer)

    def does(self, *words: str, status: int | None = 0) -> str:
        """What a `gpu-tenant` in a process of its own prints."""
        ran = self.ran(*words)
        assert status is None or ran.returncode == status, (words, ran)
        return ran.stdout

    def ran(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """A `gpu-tenant` in a process of its own, when it has ended."""
        return subprocess.run(
            [sys.executable, "-m", "gpu_tenant", *words],
            env={**_plain(), **self._home, **self.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )

    def typed(self, answer: str, *words: str) -> str:
        """What a `gpu-tenant` prints at a terminal, where a person answers its question with that."""
        ours, its = os.openpty()
        with subprocess.Popen(
            [sys.executable, "-m", "gpu_tenant", *words],
            env={**_plain(), **self._home, **self.environment, "TERM": "dumb"},
            stdin=its,
            stdout=its,
            stderr=its,
            start_new_session=True,
        ) as process:
            os.close(its)
            os.write(ours, f"{answer}\n".encode())
            shown = b""
            with suppress(OSError):  # EIO: the other end was closed
                while part := os.read(ours, 65536):
                    shown += part
            process.wait(60)
        os.close(ours)
        return shown.decode()

    @contextmanager
    def beside(self, *words: str) -> Iterator[None]:
        """A `gpu-tenant` in a process of its own runs meanwhile."""
        begun = subprocess.Popen(
            [sys.executable, "-m", "gpu_tenant", *words],
            env={**_plain(), **self._home, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            begun.terminate()
            begun.wait(30)

    def rented(self) -> tuple[str, str]:
        """The lease and the box, had by the cheapest quote."""
        quote = json.loads(self.does("offers", "--json"))["cheapest"]
        card = json.loads(self.does("provision", "--quote", quote, "--smoke", "none", "--json"))
        return card["lease"], card["box"]

    def rented_at_once(self, patch: pytest.MonkeyPatch) -> tuple[str, str]:
        """The same, in this process, whose waiting takes no time."""
        patch.setattr("gpu_tenant.app._clock", QuickClock)

        async def rent() -> Card:
            tenancy = open_tenancy(self.environment)
            try:
                quote = (await tenancy.find_offers()).cheapest
                assert quote
                return await tenancy.provision(smoke="none", quotes=[quote], wait_s=3600)
            finally:
                await tenancy.aclose()

        card = asyncio.run(rent())
        assert card.phase == "ready"
        assert card.box
        return card.lease, card.box

    def living(self) -> list[int]:
        """The processes that belong to its boxes, the sshd of each among them."""
        boxes = self.directory / "stage" / "boxes"
        found = [pid for home in boxes.glob("*/home") for pid in living_in(home)]
        # An sshd writes its title over its environment.
        title = os.fsencode(f"sshd -f {boxes}/")
        found += [pid for pid, line in command_lines() if title in line.replace(b"\0", b" ")]
        return found

    def ended(self, how: signal.Signals) -> int:
        """The status with which it ended after that signal."""
        os.killpg(self.process.pid, how)
        out, err = self.process.communicate(timeout=120)
        assert "Traceback" not in err, err
        assert out == ""
        return self.process.returncode


def _plain() -> dict[str, str]:
    return {n: v for n, v in os.environ.items() if not n.startswith(("GPU_TENANT", "VAST", "SSH_"))}


@contextmanager
def nothing_left_of(begun: list[Rehearsal]) -> Iterator[None]:
    """No rehearsal of the list, and no box of one, outlives the block."""
    yield
    for each in begun:
        if each.process.poll() is None:
            each.ended(signal.SIGKILL)
        for pid in each.living():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
