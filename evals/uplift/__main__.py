"""`python -m evals.uplift --api anthropic|openai --model NAME --key env:VAR [--url env:URL] [--grader NAME] [--out FILE]`.

Some 500 calls, which are paid. With the same file it goes on where it stopped. The key is a reference.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path

import httpx2
from rich.console import Console
from rich.table import Table

from evals.episodes.endpoint import APIS, Endpoint
from evals.uplift import (
    ARMS,
    Arm,
    Json,
    Task,
    answered,
    earlier,
    figures,
    header,
    paired,
    tasks,
)
from gpu_tenant.domain.errors import TenantError

_AT_ONCE = 4


def main(arguments: Sequence[str]) -> int:
    """Return 0 when each task was graded in both arms, 1 if some was not, 2 if the endpoint failed."""
    parser = argparse.ArgumentParser(prog="python -m evals.uplift", description=__doc__)
    parser.add_argument("--api", choices=APIS, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--key", required=True, help="a reference: env:NAME, file:PATH, …")
    parser.add_argument("--url", help="a reference to another address than the maker's own")
    parser.add_argument(
        "--grader", help="another model behind the same address; the same, if left out"
    )
    parser.add_argument("--only", default="", help="tasks whose id or question holds this")
    parser.add_argument("--out", type=Path, help="the result file, JSON lines")
    chosen = parser.parse_args(arguments)
    grader = chosen.grader or chosen.model
    today = datetime.now(UTC)  # noqa: TID251 - the day of a real call
    head = header(chosen.api, chosen.model, grader, f"{today:%Y-%m-%d}")
    out = chosen.out or Path(f"uplift-{chosen.model.replace('/', '-')}.jsonl")
    try:
        rows = earlier(out, head)
        Endpoint(chosen.api, chosen.key, chosen.url).close()  # a key that is missing is told first
    except (ValueError, TenantError) as error:
        parser.error(str(error))
    have = {(row["task"], row["arm"]) for row in rows}
    wanted = [(t, arm) for t in tasks(chosen.only) for arm in ARMS if (t.id, arm) not in have]

    def one(task: Task, arm: Arm) -> Json:
        # Each has an endpoint of its own, so that its tokens are counted apart.
        with Endpoint(chosen.api, chosen.key, chosen.url) as endpoint:
            return answered(endpoint, chosen.model, grader, task, arm).row

    begun = out.exists()
    with out.open("a", encoding="utf-8") as file, ThreadPoolExecutor(_AT_ONCE) as pool:
        if not begun:
            file.write(_line(head))
        try:
            for done in as_completed([pool.submit(one, *pair) for pair in wanted]):
                rows.append(done.result())
                file.write(_line(rows[-1]))
                file.flush()
        except BaseException as error:
            pool.shutdown(cancel_futures=True)  # each further call costs money
            if not isinstance(error, httpx2.HTTPError):
                raise
            sys.stderr.write(f"{error}\nWhat was graded is in {out}: the same call goes on.\n")
            return 2
    _show(rows, out)
    return 0 if all(row["verdict"] != "ungraded" for row in rows) else 1


def _line(row: Json) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def _show(rows: Sequence[Json], out: Path) -> None:
    told = figures(rows)
    table = Table("", *(f"{arm} the skill" for arm in ARMS))
    for name in told[ARMS[0]]:
        form = ".0%" if name == "points" else ",.0f"
        table.add_row(name.replace("_", " "), *(format(told[arm][name], form) for arm in ARMS))
    better, worse, chance = paired(rows)
    console = Console()
    console.print(table)
    console.print(f"better with the skill: {better}; worse: {worse}; sign test p = {chance:.3f}")
    console.print(f"written to {out}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
