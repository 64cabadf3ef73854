"""All the commands, by name."""

from gpu_tenant.cli import (
    alarms,
    dashboard,
    entering,
    installing,
    limiting,
    preparing,
    renting,
    reporting,
    signing,
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
    "limiting",
    "preparing",
    "renting",
    "reporting",
    "signing",
    "standing",
    "sweeping",
    "together",
    "watching",
    "working",
]
