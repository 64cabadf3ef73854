"""All the commands, by name."""

from gpu_tenant.cli import (
    alarms,
    dashboard,
    entering,
    installing,
    preparing,
    renting,
    reporting,
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
    "dashboard",
    "entering",
    "installing",
    "preparing",
    "renting",
    "reporting",
    "standing",
    "sweeping",
    "together",
    "watching",
    "working",
]
