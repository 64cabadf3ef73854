"""The one console script."""

from gpu_tenant import cli
from gpu_tenant.shut import shut


def main() -> None:
    """As `cli.main`, in a process that nobody looks into."""
    shut()
    cli.main()


if __name__ == "__main__":
    main()
