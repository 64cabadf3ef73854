"""What a caller may choose between, apart from the records that hold it: a command's help needs nothing else."""

from typing import Literal

Trust = Literal["any", "verified", "datacenter"]
"""Whose machine is acceptable: anybody's, a host verified by the marketplace, or a data centre's."""

WhenIdle = Literal["end", "alarm"]

MOST_BOXES = 512
"""The most boxes that one request may ask for."""

Launcher = Literal["torchrun", "accelerate"]
"""What starts a job's workers on each of several boxes."""

PORT = 29400
"""Where the members of such a job meet, on the first of them: torchrun's default."""
