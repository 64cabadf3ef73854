"""What this process holds is not to be read by the programs that it starts, nor by their like.

Linux shows each process's first variables, and its memory, to every other process of the same user. The
variables are overwritten where the system shows them; the process is marked as one that its user may not
look into. Against root, who looks into everything, only the first of both helps.
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
"""Keys of accounts: nothing that we start has them unless it is handed them. A test keeps this whole."""
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|_PAT$", re.IGNORECASE)
_SET_DUMPABLE = 4


def shut() -> None:
    """The first variables of this process hold no secret any more where others could read them.

    `os.environ` has them all the same, and so has a program that is started with it.
    """
    if os.name != "posix":
        return
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    for name, value in [*os.environb.items()]:
        if not _SECRET.search(os.fsdecode(name)) or not value:
            continue
        if place := libc.getenv(name):
            ctypes.memset(place, ord("x"), len(value))
        if os.fsdecode(name) in KEYS:
            os.unsetenv(name)
        else:
            os.putenv(name, value)
    if sys.platform == "linux":
        libc.prctl(_SET_DUMPABLE, 0, 0, 0, 0)
