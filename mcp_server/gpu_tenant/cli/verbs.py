"""All the commands, by name."""

from gpu_tenant.cli import (
    alarms,
    entering,
    installing,
    preparing,
    renting,
    standing,
    sweeping,
    together,
    watching,
    working,
)
from gpu_tenant.cli.command import COMMANDS

__all__ = [
    "COMMANDS",
    "alarms",
    "entering",
    "installing",
    "preparing",
    "renting",
    "standing",
    "sweeping",
    "together",
    "watching",
    "working",
]
