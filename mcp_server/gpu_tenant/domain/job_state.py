"""The state of a job, as its box reports it."""

from typing import Literal

JobState = Literal[
    "absent", "starting", "running", "lingering", "finished", "failed", "killed", "stopped"
]
ENDED: frozenset[JobState] = frozenset({"finished", "failed", "killed", "stopped"})
