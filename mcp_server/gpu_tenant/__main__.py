"""The one console script."""

from gpu_tenant.faces import cli
from gpu_tenant.process_hardening import shut


def main() -> None:
    """As `cli.main`, in a process that nobody looks into."""
    shut()
    cli.main()


if __name__ == "__main__":
    main()
