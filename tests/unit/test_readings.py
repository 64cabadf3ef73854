"""What was read of jobs over time: kept in a file that stays small, whoever writes and whatever breaks."""

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from arranged import LEASE, NOON
from looked import gpu, seen

from gpu_tenant.files.state_dir import Home
from gpu_tenant.jobs.metrics import MOST_POINTS
from gpu_tenant.jobs.progress import Progress
from gpu_tenant.jobs.samples import keep_reading, readings_of


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def write(home: Home, utils: Sequence[float], *, every_s: float) -> Path:
    """The file as so many looks leave it, whose GPU was used so much."""
    path = home.readings(LEASE)
    keep_reading(home, seen(gpu()), at=after(0))
    line = json.loads(path.read_bytes())
    with path.open("w", encoding="utf-8") as file:
        for n, util in enumerate(utils):
            line["at"], line["gpus"][0]["util"] = NOON.timestamp() + n * every_s, util
            file.write(json.dumps(line) + "\n")
    return path


def test_what_looks_saw_is_told_as_arrays_of_one_length(home: Home) -> None:
    half = Progress(done=5, total=10, unit="step", fraction=0.5, metrics={"loss": 2.0})
    keep_reading(home, seen(gpu(0, util=20), gpu(1, util=None)), at=after(0))
    keep_reading(home, seen(gpu(0, util=40), gpu(1, util=60), progress=half), at=after(10))

    read = readings_of(home, LEASE, "train")

    assert read.times == (NOON.timestamp(), NOON.timestamp() + 10)
    assert read.gpu_util == (20, 50)
    assert (read.gpu_mem_mib, read.gpu_mem_total_mib) == ((2000, 2000), 48_000)
    assert (read.memory_bytes, read.memory_limit_bytes) == ((5, 5), 10)
    assert (read.disk_free_bytes, read.fraction) == ((99, 99), (None, 0.5))
    assert [(g.index, g.util, g.temp_c) for g in read.gpus] == [
        (0, (20, 40), (60, 60)),
        (1, (None, 60), (60, 60)),
    ]
    assert (read.metrics["loss"].steps, read.metrics["loss"].values) == ((5,), (2.0,))


def test_several_faces_that_look_at_once_leave_one_reading(home: Home) -> None:
    for seconds in (0, 0.1, 1.9, 2.5, 2.6):
        keep_reading(home, seen(gpu()), at=after(seconds))

    assert len(readings_of(home, LEASE, "train").times) == 2


def test_the_end_of_a_job_is_read_however_soon_it_came(home: Home) -> None:
    keep_reading(home, seen(gpu()), at=after(0))
    keep_reading(home, seen(gpu(), state="finished"), at=after(0.5))

    assert len(readings_of(home, LEASE, "train").times) == 2


def test_each_job_has_its_own_readings_and_the_lease_has_all(home: Home) -> None:
    keep_reading(home, seen(gpu()), at=after(0))
    keep_reading(home, seen(gpu(), job="other"), at=after(0.1))

    assert len(readings_of(home, LEASE, "other").times) == 1
    assert len(readings_of(home, LEASE).times) == 2
    assert readings_of(home, LEASE, "nobody").times == ()
    assert readings_of(home, "no-lease", "train").times == ()


def test_a_job_that_the_box_does_not_know_leaves_none(home: Home) -> None:
    keep_reading(home, seen(state="absent"), at=NOON)

    assert not home.readings(LEASE).exists()


def test_a_loss_that_is_no_number_is_a_gap(home: Home) -> None:
    for n, loss in enumerate((1.0, float("nan"), 0.5)):
        told = Progress(done=n, unit="step", metrics={"loss": loss})
        keep_reading(home, seen(progress=told), at=after(n * 5))
    loss = readings_of(home, LEASE, "train").metrics["loss"]

    assert (loss.steps, loss.values, loss.not_finite) == ((0, 1, 2), (1.0, None, 0.5), 1)
    assert b"NaN" not in home.readings(LEASE).read_bytes()


@pytest.mark.parametrize(
    "line",
    [
        b'{"at": 1, "job": "tr',
        b"\xff\xfe\n",
        b'{"at": "x"}\n',
        b"[]\n\n",
        b'{"at": 1, "job": "train", "state": "running", "of": "later"}\n',
    ],
)
def test_a_torn_or_foreign_line_is_passed_over_and_harms_no_other(home: Home, line: bytes) -> None:
    keep_reading(home, seen(gpu()), at=after(0))
    with home.readings(LEASE).open("ab") as file:
        file.write(line)
    keep_reading(home, seen(gpu()), at=after(10))

    assert len(readings_of(home, LEASE, "train").times) == 2


def test_more_readings_than_fit_keep_their_extremes(home: Home) -> None:
    utils = [50.0] * 2 * MOST_POINTS
    utils[-3], utils[7] = 100.0, 0.0
    write(home, utils, every_s=5)

    read = readings_of(home, LEASE, "train")

    assert len(read.times) <= MOST_POINTS
    assert {len(read.gpu_util), len(read.memory_bytes), len(read.gpus[0].util)} == {len(read.times)}
    known = [value for value in read.gpu_util if value is not None]
    assert (min(known), max(known)) == (0, 100)
    assert read.times[0] == NOON.timestamp()
    assert read.times[-1] == NOON.timestamp() + (2 * MOST_POINTS - 1) * 5
    assert list(read.times) == sorted(read.times)


def test_a_file_that_grew_is_thinned_from_its_older_end_and_keeps_its_peaks(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_tenant.jobs.samples._MOST_BYTES", 200_000)
    path = write(home, [99.0 if n == 777 else float(n % 5) for n in range(2_000)], every_s=1)
    before = path.stat().st_size
    assert before > 200_000

    keep_reading(home, seen(gpu(util=1)), at=after(20_000))

    assert path.stat().st_size < before * 0.8
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    assert path.stat().st_mode & 0o077 == 0
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]
    times = [held["at"] - NOON.timestamp() for held in lines]
    assert len([at for at in times if 1_001 <= at < 2_000]) == 999, "the newer half is as it was"
    assert len([at for at in times if at < 1_000]) <= 500
    assert [held["gpus"][0]["util"] for held in lines].count(99.0) == 1
    assert times[-1] == 20_000


_WRITER = """
import sys; sys.path.insert(0, {tests!r})
from datetime import timedelta
from pathlib import Path
import gpu_tenant.jobs.samples as readings
from arranged import NOON
from gpu_tenant.files.state_dir import Home
from looked import gpu, seen
readings._MOST_BYTES = 8_000
for n in range(120):
    at = NOON + timedelta(seconds=n * 5)
    readings.keep_reading(Home(Path({root!r})), seen(gpu(), job=sys.argv[1]), at=at)
"""


def test_writers_that_thin_while_others_append_leave_whole_lines(home: Home) -> None:
    program = _WRITER.format(tests=str(Path(__file__).parents[1]), root=str(home.root))
    writers = [subprocess.Popen([sys.executable, "-c", program, f"job{n}"]) for n in range(3)]

    assert [writer.wait(60) for writer in writers] == [0, 0, 0]
    lines = home.readings(LEASE).read_bytes().splitlines()
    assert lines
    assert {json.loads(line)["job"] for line in lines} <= {"job0", "job1", "job2"}
    assert home.readings(LEASE).stat().st_size < 9_000
    assert [entry.name for entry in home.readings(LEASE).parent.iterdir()] == [f"{LEASE}.jsonl"]


def test_a_disk_that_takes_no_more_costs_readings_and_no_look(home: Home) -> None:
    keep_reading(home, seen(gpu()), at=after(0))
    size = home.readings(LEASE).stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, limits[1]))
    try:
        keep_reading(home, seen(gpu()), at=after(10))
        keep_reading(home, seen(gpu()), at=after(20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    keep_reading(home, seen(gpu()), at=after(30))

    assert len(readings_of(home, LEASE, "train").times) == 2


def test_a_place_that_cannot_be_written_costs_no_look(tmp_path: Path) -> None:
    (tmp_path / "readings").write_text("in the way", encoding="utf-8")

    keep_reading(Home(tmp_path), seen(gpu()), at=NOON)

    assert readings_of(Home(tmp_path), LEASE, "train").times == ()


def test_no_link_in_its_place_is_written_through(home: Home, tmp_path: Path) -> None:
    (tmp_path / "readings").mkdir()
    other = tmp_path / "other"
    other.write_bytes(b"")
    Path(home.readings(LEASE)).symlink_to(other)

    keep_reading(home, seen(gpu()), at=NOON)

    assert other.read_bytes() == b""
