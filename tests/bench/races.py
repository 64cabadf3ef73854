"""Ours against the programs of others on one work over one link, in turn, in one run."""

import filecmp
import math
import os
import random
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gauge import measured
from links import Box, Fast, Long, Loopback
from ours import Tenant
from peers import Way, command
from plain import plain_copy, plain_tcp

OURS = ("ours, cold", "ours, kept")


@dataclass
class Figure:
    """What one contestant did: medians over the rounds."""

    who: str
    seconds: float
    mb_s: float
    each_s: Sequence[float]
    cpu_s: float
    peak_mb: float
    counted: bool = True
    high_water_mb: float | None = None
    synced_s: float | None = None
    wire_bytes: int | None = None
    note: str = ""


@dataclass
class Judged:
    """A ratio and its bar."""

    what: str
    figure: float
    bar: float
    wanted: Literal["at least", "at most"] = "at least"
    unit: str = ""

    @property
    def met(self) -> bool:
        """Whether the figure is on the right side of its bar, as both are shown."""
        figure = round(self.figure, 3)
        return figure >= self.bar if self.wanted == "at least" else figure <= self.bar


@dataclass
class Row:
    """One work over one link, and how it went."""

    name: str
    work: str
    link: str = ""
    limit: str = ""
    limit_mb_s: float | None = None
    figures: list[Figure] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    took_s: float = 0
    date: str = ""
    load: float = 0
    detail: Mapping[str, object] = field(default_factory=dict)


@dataclass
class Bench:
    """What every row is given."""

    scratch: Path
    key: Path
    environ: Mapping[str, str]
    shrink: int
    rounds: int | None
    say: Callable[[str], None]
    cipher: str = ""
    made: int = 0

    def place(self, name: str) -> Path:
        """A fresh directory."""
        self.made += 1
        place = self.scratch / f"{self.made}-{name}"
        place.mkdir(parents=True)
        return place

    @contextmanager
    def box(self, link: Loopback) -> Iterator[Box]:
        """An sshd at the far end of that link; afterwards nothing of it is left."""
        directory = self.scratch / f"box-{self.made}"
        with Box(directory, link, authorized=self.key.with_suffix(".pub")) as box:
            yield box
        shutil.rmtree(directory)

    def tenant(self) -> Tenant:
        """Somebody who has no lease yet."""
        return Tenant(self.place("tenant"), self.key, self.environ)


@dataclass(frozen=True)
class Race:
    """One work over one link; `peers` count for the bar, those `beside` are shown."""

    name: str
    work: str
    link: Callable[[Bench], Loopback]
    size_bytes: int
    peers: Sequence[str]
    beside: Sequence[str] = ()
    count: int = 1
    against_peers: float | None = None
    share: float | None = None
    rounds: int = 1
    limit_s: float = 300
    peer_limit_s: float | None = None
    contestants: Sequence[str] = OURS

    def run(self, bench: Bench) -> Row:
        """Every contestant has had its rounds, in turn."""
        count = -(-self.count // bench.shrink) if self.count > 1 else 1
        size = self.size_bytes if self.count > 1 else self.size_bytes // bench.shrink
        row = Row(self.name, self.work)
        with self.link(bench) as link, bench.box(link) as box:
            row.link = link.words
            if link.namespace is not None:
                row.limit = f"plain TCP, {link.sockets} sockets"
                row.limit_mb_s = plain_tcp(link) / 1e6
                bench.say(f"  {row.limit}: {row.limit_mb_s:.1f} MB/s")
            tenant = bench.tenant()
            made = tenant.lease_with(box, box.target, count=count, size_bytes=size)
            source = made if count > 1 else made / "weights.bin"
            heat = _Heat(self, bench, link, box, tenant, source, total=count * size)
            names = [*self.contestants, *self.peers, *self.beside]
            rounds = bench.rounds or self.rounds
            for number in range(rounds):
                for who in random.Random(number).sample(names, len(names)):
                    heat.go(who, last=number == rounds - 1)
                if link.namespace is None:
                    heat.machine_alone()
            if link.namespace is None:
                row.limit, row.limit_mb_s = heat.alone()
            row.figures = [heat.figure(who) for who in names]
        self._judge(row, link)
        return row

    def _judge(self, row: Row, link: Loopback) -> None:
        cold = row.figures[0]
        if self.against_peers is not None:
            best = max((f for f in row.figures if f.counted), key=lambda figure: figure.mb_s)
            what = f"rate, of the fastest peer's ({best.who})"
            row.judged.append(Judged(what, cold.mb_s / (best.mb_s or math.nan), self.against_peers))
        if self.share is not None and link.rate_mbit:
            share = cold.mb_s * 8 / link.rate_mbit
            row.judged.append(Judged("share of the link", share, self.share))
            of_limit = cold.mb_s / (row.limit_mb_s or math.nan)
            row.notes.append(f"{of_limit:.3f} of what {row.limit} carried over it in this run")


class _Heat:
    """The runs of one race, as they are made."""

    def __init__(
        self,
        race: Race,
        bench: Bench,
        link: Loopback,
        box: Box,
        tenant: Tenant,
        source: Path,
        *,
        total: int,
    ) -> None:
        self._race, self._bench, self._link, self._box = race, bench, link, box
        self._tenant, self._source, self._total = tenant, source, total
        self._way = Way(box, bench.key, bench.cipher)
        self._runs: dict[str, list[Figure]] = {}
        self._alone: list[float] = []

    def go(self, who: str, *, last: bool) -> None:
        """That contestant has brought the work into a fresh directory."""
        self._link.settle()
        to = self._bench.place("to")
        before = self._link.wire_bytes()
        run = self._ours(who, to, last=last) if who in OURS else self._peer(who, to)
        after = self._link.wire_bytes()
        if before is not None and after is not None:
            run.wire_bytes = after - before
            if "limit" in run.note:
                run.mb_s = min(self._total, run.wire_bytes) / run.seconds / 1e6
        if self._link.namespace is None:
            began = time.perf_counter()
            subprocess.run(["sync", "-f", to], check=True)
            run.synced_s = run.seconds + time.perf_counter() - began
        self._discard(to)
        self._runs.setdefault(who, []).append(run)
        self._bench.say(
            f"  {who:<12} {run.seconds:8.2f} s {run.mb_s:8.1f} MB/s  cpu {run.cpu_s:6.2f} s"
            f"  peak {run.peak_mb:5.0f} MB  {run.note}"
        )

    def machine_alone(self) -> None:
        """The same bytes were moved with neither ssh nor hashes."""
        to = self._bench.place("alone")
        if self._source.is_dir():
            began = time.perf_counter()
            subprocess.run(["cp", "-r", self._source, to], check=True)
            self._alone.append(time.perf_counter() - began)
        else:
            self._alone.append(plain_copy(self._source, to / "copy"))
        self._discard(to)

    def _discard(self, came: Path) -> None:
        """It is gone; but many files only with the bench: where many were deleted, ext4 is slow to make others."""
        if not self._source.is_dir():
            shutil.rmtree(came)

    def alone(self) -> tuple[str, float]:
        """What the machine does of it alone: in words, and its MB/s."""
        rate = self._total / statistics.median(self._alone) / 1e6
        return ("cp -r" if self._source.is_dir() else "plain TCP into a file"), rate

    def figure(self, who: str) -> Figure:
        """The medians of that contestant's rounds."""
        runs = self._runs[who]

        def middle(of: Callable[[Figure], float | None]) -> float | None:
            values = [value for run in runs if (value := of(run)) is not None]
            return statistics.median(values) if values else None

        wire = middle(lambda run: run.wire_bytes)
        return Figure(
            who,
            seconds=middle(lambda run: run.seconds) or 0,
            mb_s=middle(lambda run: run.mb_s) or 0,
            each_s=[round(run.seconds, 3) for run in runs],
            cpu_s=middle(lambda run: run.cpu_s) or 0,
            peak_mb=max(run.peak_mb for run in runs),
            counted=who in self._race.peers,
            high_water_mb=max((run.high_water_mb or 0 for run in runs), default=0) or None,
            synced_s=middle(lambda run: run.synced_s),
            wire_bytes=None if wire is None else int(wire),
            note="; ".join(sorted({run.note for run in runs if run.note})),
        )

    def _ours(self, who: str, to: Path, *, last: bool) -> Figure:
        words = ("--kept",) if who == "ours, kept" else ()
        went, told = self._tenant.collect(to, *words, limit_s=self._race.limit_s)
        seconds = float(told.get("seconds", went.seconds))
        note = str(told.get("error", "")).rpartition("\n")[2]
        if not note:
            came = to / "work" / "out" / ("" if self._source.is_dir() else self._source.name)
            if weight(came) != self._total or (last and not same(self._source, came)):
                note = "what came is not what the box has"
        done = 0 if note else self._total
        return Figure(
            who,
            seconds,
            done / seconds / 1e6,
            (),
            went.cpu_s,
            went.peak_mb,
            high_water_mb=float(told.get("high_water_mb", 0)),
            note=note,
        )

    def _peer(self, who: str, to: Path) -> Figure:
        limit_s = self._race.peer_limit_s or self._race.limit_s
        argv = command(who, self._way, self._source, to)
        went = measured(argv, env=self._bench.environ, limit_s=limit_s)
        came, note = weight(to), ""
        if went.status is None:
            note = f"ended at the limit of {limit_s:g} s"
            self._box.hang_up()
        elif went.status != 0 or came != self._total:
            tail = went.err.strip().rpartition("\n")[2][-100:]
            note, came = f"failed ({went.status}): {tail}", 0
        return Figure(
            who, went.seconds, came / went.seconds / 1e6, (), went.cpu_s, went.peak_mb, note=note
        )


def weight(path: Path) -> int:
    """The bytes of that file, or of every file in that directory."""
    if path.is_dir():
        return sum(
            (Path(at) / name).stat().st_size for at, _, names in os.walk(path) for name in names
        )
    return path.stat().st_size if path.exists() else 0


def same(one: Path, other: Path) -> bool:
    """Whether both hold the same bytes under the same names."""
    if not one.is_dir():
        return filecmp.cmp(one, other, shallow=False)
    names = sorted(str(path.relative_to(one)) for path in one.rglob("*") if path.is_file())
    theirs = sorted(str(path.relative_to(other)) for path in other.rglob("*") if path.is_file())
    return names == theirs and filecmp.cmpfiles(one, other, names, shallow=False)[0] == names


def long_link(
    rate_mbit: float, *, loss_percent: float = 0, rtt_ms: float = 80
) -> Callable[[Bench], Loopback]:
    """A link to be made when a row begins."""
    return lambda bench: Long(
        bench.scratch, rate_mbit=rate_mbit, rtt_ms=rtt_ms, loss_percent=loss_percent
    )


def loopback(bench: Bench) -> Loopback:
    """As `long_link`, of the computer itself."""
    return Loopback()


def fast_link(bench: Bench) -> Loopback:
    """As `long_link`, with nothing in its way."""
    return Fast()


MB, GB = 10**6, 10**9
_FILE = ("scp", "sftp", "rsync", "rclone x 1", "rclone x 4", "ssh cat", "tar")
_TREE = ("scp", "sftp", "rsync", "rclone x 32", "tar")
_MANY = ("rclone x 16", "ranges x 16", "ranges x 32")

RACES = (
    Race(
        "loopback-2gb",
        "2 GB incompressible",
        loopback,
        2 * GB,
        _FILE,
        ("ranges x 4",),
        against_peers=0.95,
        rounds=3,
    ),
    Race(
        "loopback-many",
        "2,000 files of 100 KB",
        loopback,
        100_000,
        _TREE,
        count=2000,
        against_peers=1.0,
        rounds=3,
    ),
    Race(
        "long-many",
        "2,000 files of 100 KB",
        long_link(200),
        100_000,
        _TREE,
        count=2000,
        against_peers=1.0,
        peer_limit_s=60,
    ),
    Race(
        "long-256mb",
        "256 MB",
        long_link(200),
        256 * MB,
        _FILE,
        ("ranges x 4",),
        against_peers=1.0,
        share=0.85,
        peer_limit_s=60,
    ),
    Race(
        "long-2gb",
        "2 GB",
        long_link(200),
        2 * GB,
        ("rsync", "ssh cat", "tar"),
        against_peers=1.0,
        share=0.95,
    ),
    Race(
        "long-600",
        "1 GB",
        long_link(600),
        GB,
        ("ssh cat", "rclone x 4"),
        ("ranges x 4",),
        share=0.85,
        peer_limit_s=60,
    ),
    Race(
        "loss-0.1",
        "256 MB",
        long_link(200, loss_percent=0.1),
        256 * MB,
        _MANY,
        ("ssh cat",),
        share=0.6,
        peer_limit_s=90,
    ),
    Race(
        "loss-0.5",
        "256 MB",
        long_link(200, loss_percent=0.5),
        256 * MB,
        _MANY,
        against_peers=1.0,
        peer_limit_s=150,
    ),
)
