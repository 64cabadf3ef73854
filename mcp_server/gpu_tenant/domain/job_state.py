"""How a job stands, by its box's word."""

from typing import Literal

JobState = Literal[
    "absent", "starting", "running", "lingering", "finished", "failed", "killed", "stopped"
]
ENDED: frozenset[JobState] = frozenset({"finished", "failed", "killed", "stopped"})
