"""What a caller may choose between.

They have a module of their own, because a command's help needs them without the records that use them.
"""

from typing import Literal

Trust = Literal["any", "verified", "datacenter"]
"""Whose machine is acceptable: anybody's, a host that its platform has tested or owns, or a data center's."""

USUAL_TRUST: Trust = "verified"
"""What a tenant gets who does not say. A stranger's untested machine is rented only for somebody who asks for it."""

WhenIdle = Literal["end", "alarm"]
WhenDone = Literal["end", "park", "keep"]
SaidWhenDone = Literal["", "end", "park", "keep"]
"""The choice as a caller gives it. An empty string keeps the present choice, or means the usual one for a new lease."""

SortedBy = Literal["age", "name", "cost", "rate", "deadline"]
"""By what a list of leases is sorted."""

MOST_BOXES = 512
"""The most boxes that one request may ask for."""

Launcher = Literal["torchrun", "accelerate"]
"""What starts a job's workers on each of several boxes."""

PORT = 29400
"""The port on the first box at which the workers of a job on several boxes meet. It is torchrun's default."""

Purpose = Literal["look", "salvage", "work", "watch", "end"]
"""What a tenancy is opened for: to look, to look at what is left of a damaged ledger, to do something, to watch over
leases, or to end one."""
