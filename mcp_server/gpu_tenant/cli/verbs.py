"""All the commands, by name."""

from gpu_tenant.cli import entering, installing, preparing, renting, standing, working
from gpu_tenant.cli.command import COMMANDS

__all__ = ["COMMANDS", "entering", "installing", "preparing", "renting", "standing", "working"]
