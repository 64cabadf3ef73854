"""A box counts as used by whatever shows on it, and is permitted as never used where nothing does."""

import json
import subprocess
import sys
import time
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from arranged import NOON, TERMS

from gpu_tenant.box.ownership import Marked, NeverIn, OccupancyReport, Other, Seen, Unseen, use
from gpu_tenant.domain.errors import Unverified
from gpu_tenant.domain.model import Box, BoxId, BoxState, Lease, LeaseId
from gpu_tenant.domain.permit import NeverUsed
from gpu_tenant.files.skill_files import script
from gpu_tenant.leases.verify import prove_unused
from gpu_tenant.ledger import Ledger

EMPTY = Marked(state="ours", look=OccupancyReport())


@pytest.fixture
def lease(tmp_path: Path) -> Lease:
    ledger = Ledger(tmp_path / "ledger.sqlite3")
    ledger.intend(
        lease_id=LeaseId("tiny-abcd"),
        provider="tiny",
        terms=TERMS,
        address=None,
        price_usd_h=None,
        at=NOON,
    )
    box = Box(
        provider="tiny",
        id=BoxId("b1"),
        mark=None,
        state=BoxState.READY,
        address=None,
        price_usd_h=None,
    )
    bound = ledger.bind(LeaseId("tiny-abcd"), box, at=NOON)
    ledger.close()
    return bound


@pytest.mark.parametrize("seen", [NeverIn(), EMPTY])
def test_a_box_that_never_let_us_in_or_shows_nothing_may_go(lease: Lease, seen: Seen) -> None:
    permit = prove_unused(lease, seen)

    assert isinstance(permit.ground, NeverUsed)


@pytest.mark.parametrize(
    "seen",
    [
        Unseen("it does not answer", "look again"),
        Marked(state="ours"),
        Marked(state="copied", look=OccupancyReport()),
        Marked(state="ours", look=OccupancyReport(files=1, bytes=0, largest=("/root/named-data",))),
        Marked(state="ours", look=OccupancyReport(unreadable=1)),
        Marked(state="ours", look=OccupancyReport(leases=("own-abcd",))),
        Marked(state="ours", look=OccupancyReport(jobs=("train",))),
        Marked(state="ours", look=OccupancyReport(people=("bash (process 7)",))),
        Marked(state="ours", look=OccupancyReport(at_work=("python3 (process 7)",))),
        Marked(
            state="ours",
            look=OccupancyReport(),
            others=(Other(lease="own-abcd", deployment="ffffff"),),
        ),
    ],
)
def test_whatever_shows_that_somebody_was_there_refuses_it(lease: Lease, seen: Seen) -> None:
    assert use(seen)
    with pytest.raises(Unverified):
        prove_unused(lease, seen)


def test_what_the_ledger_used_is_not_never_used_however_empty_the_box_looks(lease: Lease) -> None:
    used = lease.model_copy(update={"touched_at": NOON + timedelta(hours=1)})

    with pytest.raises(Unverified):
        prove_unused(used, EMPTY)


# From when on what lies on a box counts


def asked_of_a_box(
    home: Path, *, made_ago_s: float | None, ahead_s: float = 0, **look: object
) -> tuple[int, OccupancyReport]:
    """What a first look finds where one file lies: since when it counts, and what has changed since."""
    work = home / "mine" / "model.pt"
    work.parent.mkdir(exist_ok=True)
    work.touch()
    now_ns = work.stat().st_ctime_ns + 10_000_000
    ours_ns = now_ns + int(ahead_s * 1e9)
    request: dict[str, object] = {
        "lease": "tiny-twin",
        "deployment": "ffffff",
        "nonce": "ab",
        "known": False,
        "first": True,
        "directory": False,
        "until": 0,
        "lapse_s": 0,
        "roots": [str(home)],
        "look": {"roots": [str(home)], "scope": "none", **look},
    }
    if made_ago_s is not None:
        request["made"] = {"made_ns": ours_ns - int(made_ago_s * 1e9), "now_ns": ours_ns}
    while time.time_ns() < now_ns:
        pass  # a file's time is a little behind the clock
    answered = subprocess.run(
        [
            sys.executable,
            str(script("occupancy.py")),
            "--home",
            str(home / "gpu-tenant" / "tiny-twin" / "caretaker"),
            "mark",
            "--request",
            "-",
        ],
        input=json.dumps(request),
        env={"HOME": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    said = Marked.model_validate_json(answered.stdout)
    assert said.look is not None
    return said.since_ns, said.look


@pytest.mark.parametrize(
    ("made_ago_s", "ahead_s", "files"),
    [
        (None, 0, 0),  # somebody waited for it
        (0, 0, 0),  # the file is older than the box: its image's
        (60, 0, 1),
        (0, 3600, 1),  # the clocks cannot be compared
        (0, -3600, 1),
    ],
)
def test_what_was_written_since_a_box_was_made_counts_and_all_of_it_where_clocks_disagree(
    tmp_path: Path, made_ago_s: float | None, ahead_s: float, files: int
) -> None:
    first = asked_of_a_box(tmp_path, made_ago_s=made_ago_s, ahead_s=ahead_s)

    assert first[1].files == files


def test_from_when_on_files_count_stays_with_the_box(tmp_path: Path) -> None:
    since_ns, _ = asked_of_a_box(tmp_path, made_ago_s=60)

    again, look = asked_of_a_box(tmp_path, made_ago_s=None)

    assert (again, look.files) == (since_ns, 1)


def test_a_file_that_is_named_like_a_script_of_ours_is_one_only_where_the_ledger_knows_its_hash(
    tmp_path: Path,
) -> None:
    theirs, known = b"print('weights')\n", sha256(b"print('ours')\n").hexdigest()
    top = tmp_path / "gpu-tenant"
    top.mkdir()
    (top / f"caretaker-{sha256(theirs).hexdigest()[:16]}.py").write_bytes(theirs)
    (top / f"caretaker-{known[:16]}.py").write_bytes(b"print('ours')\n")

    _, look = asked_of_a_box(tmp_path, made_ago_s=60, ours=[known])

    named = [Path(path).name for path in look.largest]
    assert sorted(named) == [f"caretaker-{sha256(theirs).hexdigest()[:16]}.py", "model.pt"]
