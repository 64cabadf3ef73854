"""The one console script."""

from gpu_tenant.cli import main

if __name__ == "__main__":
    main()
