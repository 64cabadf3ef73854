"""What a caller may choose between. A command's help needs this, and not the records that hold it."""

from typing import Literal

Trust = Literal["any", "verified", "datacenter"]
"""Whose machine is acceptable: anybody's, a host verified by the marketplace, or a data centre's."""

WhenIdle = Literal["end", "alarm"]
WhenDone = Literal["end", "park", "keep"]
SaidWhenDone = Literal["", "end", "park", "keep"]
"""As somebody says it. An empty word leaves it as it is, or as is usual."""

MOST_BOXES = 512
"""The most boxes that one request may ask for."""

Launcher = Literal["torchrun", "accelerate"]
"""What starts a job's workers on each of several boxes."""

PORT = 29400
"""The port where the members of such a job meet, on the first of them: torchrun's default."""

Purpose = Literal["look", "work", "watch", "end"]
"""What a tenancy is opened for: to look, to do something, to watch over leases, or to end one."""
