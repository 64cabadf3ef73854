"""The one console script."""

import atexit
import gc
import sys

_ON_WINDOWS = (
    "error: LOCAL_TROUBLE: on Windows gpu-tenant runs in WSL 2: run `wsl --install` in PowerShell, then install"
    " gpu-tenant in the Linux that it opens, and use it there\n"
)


def main() -> None:
    """Run `cli.main` in a process whose secrets other processes cannot read."""
    if sys.platform == "win32":
        sys.stderr.write(_ON_WINDOWS)
        sys.exit(6)
    # Imported here, because much of it does not import on Windows.
    from gpu_tenant.faces import cli
    from gpu_tenant.process_hardening import harden

    # A command imports much and leaves little garbage. If Python looked for garbage as often as usual, and once
    # more at the very end, that would take a fifth of a short command's time.
    gc.set_threshold(200_000, 20, 20)
    atexit.register(gc.freeze)
    harden()
    cli.main()


if __name__ == "__main__":
    main()
