"""The one console script."""

import atexit
import gc

from gpu_tenant.faces import cli
from gpu_tenant.process_hardening import harden


def main() -> None:
    """Run `cli.main` in a process whose secrets other processes cannot read."""
    # A command imports much and leaves little garbage. If Python looked for garbage as often as usual, and once
    # more at the very end, that would take a fifth of a short command's time.
    gc.set_threshold(200_000, 20, 20)
    atexit.register(gc.freeze)
    harden()
    cli.main()


if __name__ == "__main__":
    main()
