"""`python -m storm --leases 200 --minutes 30`, from tests/: whole leases under faults."""

import argparse
import json
import os
import sys
from pathlib import Path

from storm.crews import storm
from storm.lives import MODES


def main() -> None:
    """The sum is printed; its status is 1 where anything was counted."""
    said = argparse.ArgumentParser(prog="storm", description=__doc__)
    said.add_argument("--leases", type=int, default=100)
    said.add_argument("--minutes", type=float, default=60)
    said.add_argument("--seed", type=int, default=0)
    said.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    said.add_argument("--mode", choices=sorted(set(MODES)), default="")
    said.add_argument("--out", type=Path, default=Path("storm.jsonl"))
    asked = said.parse_args()
    sums = storm(
        asked.leases, asked.minutes, asked.seed, asked.workers, asked.mode, asked.out.absolute()
    )
    print(json.dumps(sums, indent=1))
    sys.exit(1 if sums["counts"] or sums["driver_failed"] else 0)


if __name__ == "__main__":
    main()
