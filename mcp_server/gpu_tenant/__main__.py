"""The one console script."""

import atexit
import gc

from gpu_tenant.faces import cli
from gpu_tenant.process_hardening import harden


def main() -> None:
    """As `cli.main`, in a process that nobody looks into."""
    # A command imports much and throws little away, so looking for garbage as often as Python does, and once more
    # at the very end, takes a fifth of a short command's time.
    gc.set_threshold(200_000, 20, 20)
    atexit.register(gc.freeze)
    harden()
    cli.main()


if __name__ == "__main__":
    main()
