"""What is collected a second time: with a part of it changed, with nothing changed, and across cuts."""

import math
import os
import shutil
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gauge import measured
from links import Box, Cutter, Loopback
from ours import Tenant
from peers import Way, command
from plain import plain_tcp
from races import GB, Bench, Figure, Judged, Row, fast_link, long_link, loopback, same

_LIMIT_S = 600
_PAGE = 4096


@contextmanager
def collected(
    bench: Bench, link: Loopback, *, count: int, size_bytes: int
) -> Iterator[tuple[Box, Tenant, Path, Path]]:
    """A box whose artifacts were collected once: the box, the tenant, and where they lie there and here."""
    with link, bench.box(link) as box:
        tenant = bench.tenant()
        source = tenant.lease_with(box, box.target, count=count, size_bytes=size_bytes)
        to = bench.place("to")
        _, told = tenant.collect(to, limit_s=_LIMIT_S)
        assert "error" not in told, told
        yield box, tenant, source, to
        shutil.rmtree(to)


def changed(bench: Bench, link: Loopback, row: Row, rounds: int) -> None:
    """1 % of 2 GB changed since the last collect, in one stretch and in scattered pages."""
    size = 2 * GB // bench.shrink // _PAGE * _PAGE
    kinds: dict[str, Callable[[Path], None]] = {"one stretch": _stretch, "scattered pages": _pages}
    with collected(bench, link, count=1, size_bytes=size) as (box, tenant, out, to):
        row.link, row.limit = link.words, f"plain TCP, {link.sockets} sockets"
        row.limit_mb_s = plain_tcp(link) / 1e6
        source, ours = out / "weights.bin", to / "work" / "out" / "weights.bin"
        theirs = bench.place("rsync")
        shutil.copy2(ours, theirs)
        way = Way(box, bench.key, bench.cipher)
        for kind, change in kinds.items():
            runs: dict[str, list[Figure]] = {"ours, cold": [], "rsync": []}
            for _ in range(rounds):
                change(source)
                for who, figures in runs.items():
                    link.settle()
                    before = link.wire_bytes() or 0
                    if who == "rsync":
                        argv = command(who, way, source, theirs)
                        went = measured(argv, env=bench.environ, limit_s=_LIMIT_S)
                        seconds, high, good = went.seconds, None, went.status == 0
                    else:
                        went, told = tenant.collect(to, limit_s=_LIMIT_S)
                        seconds = float(told.get("seconds", went.seconds))
                        high, good = float(told.get("high_water_mb", 0)), "error" not in told
                    wire = (link.wire_bytes() or 0) - before
                    came = theirs / source.name if who == "rsync" else ours
                    note = "" if good and same(source, came) else f"failed: {went.err[-200:]}"
                    figure = Figure(
                        f"{who}, {kind}",
                        seconds,
                        size / seconds / 1e6,
                        (),
                        went.cpu_s,
                        went.peak_mb,
                        high_water_mb=high,
                        wire_bytes=wire,
                        note=note,
                    )
                    bench.say(f"  {figure.who:<28} {seconds:8.2f} s {wire / 1e6:8.1f} MB {note}")
                    figures.append(figure)
                shutil.rmtree(to / ".superseded", ignore_errors=True)
            mine, rsync = (_middle(figures) for figures in runs.values())
            row.figures += [mine, rsync]
            assert mine.wire_bytes
            assert rsync.wire_bytes
            bytes_ratio = mine.wire_bytes / rsync.wire_bytes if not mine.note else math.inf
            wall_ratio = mine.seconds / rsync.seconds if not mine.note else math.inf
            row.judged += [
                Judged(f"{kind}: bytes on the wire, of rsync's", bytes_ratio, 1.2, "at most"),
                Judged(f"{kind}: wall time, of rsync's", wall_ratio, 1.2, "at most"),
            ]
    row.notes.append("no collect of this row is over a kept connection")


def cuts(bench: Bench, link: Loopback, row: Row, rounds: int) -> None:
    """The link is cut at every 10 % of the bytes, and collect is called again until it succeeds."""
    size = GB // bench.shrink
    with link, bench.box(link) as box, Cutter(box.port) as cutter:
        row.link = "loopback, through a relay"
        tenant = bench.tenant()
        out = tenant.lease_with(box, cutter.target, count=1, size_bytes=size)
        for _ in range(rounds):
            to = bench.place("to")
            cutter.cut_at([size * tenth // 10 for tenth in range(1, 10)])
            seconds, cpu, peak, high, calls = 0.0, 0.0, 0.0, 0.0, 0
            told: dict[str, float | str] = {"error": ""}
            while "error" in told and calls < 30:
                went, answer = tenant.collect(to, limit_s=_LIMIT_S)
                told, calls = dict(answer), calls + 1
                seconds += float(told.get("seconds", went.seconds))
                cpu, peak = cpu + went.cpu_s, max(peak, went.peak_mb)
                high = max(high, float(told.get("high_water_mb", 0)))
                bench.say(f"  call {calls}: {cutter.sent_by_server / 1e6:.1f} MB {told}"[:150])
            proved = "error" not in told and same(out, to / "work" / "out")
            twice = (cutter.sent_by_server - size) / size if proved else math.inf
            row.figures.append(
                Figure(
                    "ours, cold",
                    seconds,
                    size / seconds / 1e6,
                    [round(seconds, 3)],
                    cpu,
                    peak,
                    high_water_mb=high,
                    wire_bytes=cutter.sent_by_server,
                    note=f"{cutter.cuts} cuts, {calls} calls",
                )
            )
            row.judged += [
                Judged("bytes sent beyond the file's own", twice * 100, 5, "at most", "%"),
                Judged("cuts that were made", cutter.cuts, 9),
                Judged("ends proved, and equal to the box's", float(proved), 1),
            ]
            shutil.rmtree(to)
    row.notes.append(
        "bytes beyond the file's own include every handshake, all framing, and the log"
    )


def unchanged(bench: Bench, _: Loopback, row: Row, rounds: int) -> None:
    """10,000 files are collected again with nothing changed, beside a listing of them."""
    count = 10_000 // bench.shrink
    kept: dict[str, tuple[float, float]] = {}
    links = (loopback(bench), long_link(200)(bench))
    row.link = " and ".join(link.words for link in links)
    for link in links:
        with collected(bench, link, count=count, size_bytes=1000) as (box, tenant, out, to):
            way = Way(box, bench.key, bench.cipher)
            find = f"exec find {out} -type f -printf '%p %s %T@\\n'"
            listing = ["bash", "-c", f"{way.ssh(find)} | wc -l"]
            runs: dict[str, list[Figure]] = {}
            lists: list[float] = []
            for _ in range(rounds):
                for who in ("ssh find", "ours, cold", "ours, kept"):
                    link.settle()
                    if who == "ssh find":
                        went = measured(listing, env=bench.environ, limit_s=_LIMIT_S)
                        assert int(went.out) == count, went
                        seconds, high, note = went.seconds, None, ""
                    else:
                        words = ("--listing", str(out)) if who == "ours, kept" else ()
                        went, told = tenant.collect(to, *words, limit_s=_LIMIT_S)
                        seconds = float(told.get("seconds", went.seconds))
                        high = float(told.get("high_water_mb", 0))
                        note = str(told.get("error", ""))
                        lists += [float(told["listing_s"])] if "listing_s" in told else []
                        if not note and told["fetched_bytes"]:
                            note = f"{told['fetched_bytes']} bytes were fetched again"
                    runs.setdefault(who, []).append(
                        Figure(
                            f"{who}, {link.words}",
                            seconds,
                            0,
                            (),
                            went.cpu_s,
                            went.peak_mb,
                            high_water_mb=high,
                            note=note,
                        )
                    )
                    bench.say(f"  {who:<12} {link.words}: {seconds:.3f} s {note}")
            find_s, cold, again = (_middle(figures) for figures in runs.values())
            row.figures += [find_s, cold, again]
            kept[link.words] = (again.seconds, statistics.median(lists))
            bar = 2 + 2 * link.rtt_s
            what = f"{link.words}: seconds beyond `ssh find`'s, both cold"
            row.judged.append(Judged(what, cold.seconds - find_s.seconds, bar, "at most", "s"))
    (near, near_list), (far, far_list) = kept.values()
    trips, listing_trips = ((far - near) / links[1].rtt_s, (far_list - near_list) / links[1].rtt_s)
    what = f"round trips beyond the listing's {listing_trips:.1f}, both on a kept connection"
    row.judged.append(Judged(what, trips - listing_trips, 2, "at most"))
    row.notes.append(
        "round trips are the time that the long link adds to what loopback takes, in units of 80 ms"
    )


def _middle(figures: list[Figure]) -> Figure:
    """The run of the middle time, with every time beside it."""
    middle = sorted(figures, key=lambda figure: figure.seconds)[len(figures) // 2]
    middle.each_s = [round(figure.seconds, 3) for figure in figures]
    middle.peak_mb = max(figure.peak_mb for figure in figures)
    return middle


def _stretch(path: Path) -> None:
    length = path.stat().st_size // 100
    with path.open("r+b") as file:
        file.seek(path.stat().st_size * 37 // 100)
        file.write(os.urandom(length))


def _pages(path: Path) -> None:
    size = path.stat().st_size
    count = size // 100 // _PAGE
    with path.open("r+b") as file:
        for number in range(count):
            file.seek(size // count * number // _PAGE * _PAGE)
            file.write(os.urandom(_PAGE))


AGAIN: dict[
    str,
    tuple[str, Callable[[Bench, Loopback, Row, int], None], Callable[[Bench], Loopback], int],
] = {
    "changed": ("2 GB with 1 % changed", changed, fast_link, 3),
    "changed-long": ("2 GB with 1 % changed", changed, long_link(200), 1),
    "cuts": ("1 GB, cut at every 10 %", cuts, loopback, 1),
    "unchanged": ("10,000 files, nothing changed", unchanged, loopback, 3),
}
"""By the row's name: its work, how it is done, over what, and in how many rounds."""
