"""What people do today: rent by the provider's own API, copy, run, copy back at "done", terminate."""

import asyncio
import os
import shutil
from contextlib import suppress
from typing import Final

import httpx2

from evals.episodes.referee import Referee
from evals.episodes.task import Task
from gpu_tenant.emulators.world import KEY

_ORDER: Final = {
    "name": "my-training",
    "image": "runpod/base:1.0.2",
    "disk": 20,
    "ports": ["22/tcp"],
    "gpu": {"id": "NVIDIA RTX A5000", "count": 1},
    "env": {"PUBLIC_KEY": "ssh-ed25519 mine"},
}
_TRIES: Final = 5
_ROUNDS: Final = 100


class Careless:
    """A script for RunPod, as many have one."""

    def __init__(self, referee: Referee, task: Task) -> None:
        self._referee = referee
        self._task = task

    async def run(self) -> str:
        """The last word."""
        async with httpx2.AsyncClient(
            base_url=self._referee.stage.url, headers={"Authorization": f"Bearer {KEY}"}, timeout=20
        ) as http:
            pod = await self._rented(http)
            for _ in range(_ROUNDS):
                if self._referee.home_of(pod).is_dir():
                    break
                self._referee.wait(10)
            await self._trained(pod)
            shutil.copytree(
                self._referee.home_of(pod) / "job" / "out",
                self._referee.kept / "out",
                dirs_exist_ok=True,
            )
            gone = await self._asked(http, "DELETE", f"/v2/pods/{pod}")
            # The interesting part, whether it is gone, is nobody's business any more.
            return "terminated" if gone else "asked to terminate"

    async def _rented(self, http: httpx2.AsyncClient) -> str:
        """A pod, asked for until one is had."""
        for _ in range(_TRIES):
            made = await self._asked(http, "POST", "/v2/pods", _ORDER)
            if made is not None:
                return str(made.json()["id"])
        raise RuntimeError("no pod could be had")

    async def _asked(
        self, http: httpx2.AsyncClient, method: str, path: str, body: object = None
    ) -> httpx2.Response | None:
        answer: httpx2.Response | None = None
        with suppress(httpx2.HTTPError):
            answer = await http.request(method, path, json=body)
        went = answer is not None and answer.is_success
        words = answer.text if answer is not None else ""
        code = f"HTTP_{answer.status_code}" if answer is not None else "NO_ANSWER"
        self._referee.note(words, refused=None if went else code)
        return answer if went else None

    async def _trained(self, pod: str) -> None:
        """The log says that it is done."""
        home = self._referee.home_of(pod)
        shutil.copytree(self._task.directory, home / "job")
        log = home / "log"
        with log.open("w", encoding="utf-8") as out:
            job = await asyncio.create_subprocess_exec(
                *self._task.command.split(),
                cwd=home / "job",
                stdout=out,
                stderr=out,
                stdin=asyncio.subprocess.DEVNULL,
                env={"HOME": str(home), "PATH": os.environ["PATH"]},
            )
        # Its last line is "done", and then it ends.
        await job.wait()
