"""All the commands, by name."""

from gpu_tenant.cli import renting, standing, working
from gpu_tenant.cli.command import COMMANDS

__all__ = ["COMMANDS", "renting", "standing", "working"]
