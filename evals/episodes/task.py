"""What an agent is asked to do, and what the referee alone knows of it."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

from evals.episodes.job.train import important

Trap = Literal["none", "late", "broken", "unclaimed", "crash"]
"""What the job does besides: a file after its last word, a checkpoint that does not load at first,
a file that nobody declared, a crash that a second run gets over."""

_JOB = Path(__file__).parent / "job" / "train.py"


@dataclass(frozen=True, slots=True)
class Task:
    """The work, as its owner would put it."""

    directory: Path
    provider: str
    hours: float
    command: str = "python3 train.py"
    smoke_command: str = "python3 train.py --smoke"
    artifacts: tuple[str, ...] = ("out/",)

    @property
    def words(self) -> str:
        """The same for a model."""
        return (
            f"The work tree {self.directory} holds a training job. Smoke-test it with "
            f"`{self.smoke_command}`, rent the cheapest box at {self.provider} for {self.hours:g} hours, "
            f"run `{self.command}` there, keep {', '.join(self.artifacts)} and whatever else the job "
            "writes that is no cache, and end the rental. I have agreed to the price of the cheapest "
            "offer. I am away: nobody can be asked, and nothing may be given up."
        )


def laid_out(directory: Path, trap: Trap) -> Path:
    """The work tree, in which the job will do so."""
    directory.mkdir(parents=True)
    shutil.copy2(_JOB, directory / "train.py")
    (directory / "trap.txt").write_text(trap + "\n", encoding="utf-8")
    return directory


def expected(trap: Trap) -> Mapping[str, tuple[str, int]]:
    """The sha256 and the size of every file that matters, computed without any box."""
    return {
        name: (sha256(content).hexdigest(), len(content))
        for name, content in important(trap).items()
    }
