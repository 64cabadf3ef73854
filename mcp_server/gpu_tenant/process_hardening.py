"""Keeps this process's secrets from the programs that it starts, and from others like them.

Linux shows each process's initial environment variables, and its memory, to every other process of the same user.
So the variables are overwritten where the system shows them, and the process is marked as one that its user may
not look into. Root may look into everything. Against root, only the overwriting helps.
"""

import ctypes
import os
import re
import sys

KEYS = (
    "AUTODL_TOKEN",
    "DIGITALOCEAN_ACCESS_TOKEN",
    "DIGITALOCEAN_TOKEN",
    "LAMBDA_API_KEY",
    "RUNPOD_API_KEY",
    "VAST_API_KEY",
)
"""The variables that hold account keys.

No program that we start has them unless they are handed to it. A test keeps this list complete.
"""
UNATTENDED = "GPU_TENANT_UNATTENDED"
"""Set for a command that an agent may have chosen. Nobody can sign in it."""

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|_PAT$", re.IGNORECASE)
_SET_DUMPABLE = 4
_NO_PLUGINS = "PYDANTIC_DISABLE_PLUGINS"


def harden() -> None:
    """Remove secrets from this process's initial variables, where other processes could read them.

    `os.environ` still has them. So a program that is started with `os.environ` has them, too. No package that
    happens to be installed is shown our records either.
    """
    # Pydantic looks for plugins in every installed package, which takes a while, and shows them every value.
    os.environ[_NO_PLUGINS] = "__all__"
    if os.name != "posix":
        return
    os.unsetenv(_NO_PLUGINS)  # a program that we start may want its plugins
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    for name, value in [*os.environb.items()]:
        if not _SECRET.search(os.fsdecode(name)) or not value:
            continue
        # Overwrite the block that the system shows to others. The C library's environment points into it, so
        # what child processes may inherit is then put back, in other memory.
        if place := libc.getenv(name):
            ctypes.memset(place, ord("x"), len(value))
        if os.fsdecode(name) in KEYS:
            os.unsetenv(name)
        else:
            os.putenv(name, value)
    if sys.platform == "linux":
        libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)
