"""Every target in turn, by hand: `python tests/fuzz MINUTES [TARGET ...]`; finds are kept in `tests/fuzz/found`.

`python tests/fuzz alone TARGET SEED SECONDS INPUTS` is one turn, in this very process.
"""

import hashlib
import secrets
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from fuzz.targets import TARGETS, run, run_alone

FOUND = Path(__file__).parent / "found"
_TURN_S = 60


def main(minutes: str = "60", *names: str) -> int:
    chosen = names or tuple(TARGETS)
    found, in_all_s = 0, float(minutes) * 60
    turn_s = min(_TURN_S, in_all_s / len(chosen))
    for _ in range(max(1, round(in_all_s / turn_s / len(chosen)))):
        for name in chosen:
            seed = secrets.randbits(32)
            inputs, finds = run(name, seed, seconds=turn_s)
            print(f"{name} seed {seed}: {inputs:,} inputs, {len(finds)} finds", flush=True)
            for find in finds:
                if not find.input:
                    print(f"  {find.words}", flush=True)
                    continue
                FOUND.mkdir(exist_ok=True)
                kept = FOUND / f"{name}-{hashlib.sha256(find.input).hexdigest()[:12]}"
                kept.write_bytes(find.input)
                print(f"  {find.words}\n  kept as {kept}", flush=True)
            found += len(finds)
    return 1 if found else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["alone"]:
        name, seed, seconds, inputs = sys.argv[2:6]
        print(run_alone(name, int(seed), float(seconds), int(inputs) if inputs else None))
    else:
        sys.exit(main(*sys.argv[1:]))
