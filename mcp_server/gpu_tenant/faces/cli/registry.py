"""Knows in which module each command is. A module is imported only when its command is called."""

from importlib import import_module

import click

from gpu_tenant.faces.cli.command import COMMANDS

_MODULES = {
    "alarms": ("alarms",),
    "dashboard": ("dashboard",),
    "costs": ("costs",),
    "exec": ("exec",),
    "global_commands": (
        "demo",
        "doctor",
        "guide",
        "leases",
        "profiles",
        "reconcile",
        "rehearse",
        "serve",
    ),
    "gotcha": ("gotcha",),
    "hosts": ("hosts",),
    "install": ("install",),
    "job_commands": (
        "audit",
        "push",
        "launch",
        "monitor",
        "stop",
        "collect",
        "teardown",
        "waive",
    ),
    "lease_commands": (
        "smoke",
        "init",
        "offers",
        "provision",
        "call-off",
        "adopt",
        "extend",
        "terms",
        "hold",
        "park",
        "resume",
        "recover",
    ),
    "limits": ("limits",),
    "logs": ("logs",),
    "multinode": ("preflight",),
    "pilot": ("pilot",),
    "prepare": ("prepare",),
    "report": ("report",),
    "run": ("run",),
    "setup": ("setup",),
    "sign": ("sign",),
    "ssh": ("ssh",),
    "sweep": ("sweep",),
    "volumes": ("volumes",),
    "watchdog": ("watchdog",),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}


def command(name: str) -> click.Command:
    """Return the command of that name, one of `SUMMARIES`."""
    import_module(f"gpu_tenant.faces.cli.{_PLACES[name]}")
    return COMMANDS[name]
