"""All the commands, by name."""

from gpu_tenant.faces.cli import (
    alarms,
    dashboard,
    global_commands,
    install,
    job_commands,
    lease_commands,
    limits,
    multinode,
    prepare,
    report,
    sign,
    ssh,
    sweep,
    watchdog,
)
from gpu_tenant.faces.cli.command import COMMANDS

__all__ = [
    "COMMANDS",
    "alarms",
    "dashboard",
    "global_commands",
    "install",
    "job_commands",
    "lease_commands",
    "limits",
    "multinode",
    "prepare",
    "report",
    "sign",
    "ssh",
    "sweep",
    "watchdog",
]
