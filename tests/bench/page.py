"""The results of the bench of transfers: lines for a terminal, JSON, and a page with a picture."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import plot
from races import Row

Json = Mapping[str, Any]


def as_json(row: Row) -> dict[str, Any]:
    """The row, with whether each bar was met."""
    said = dataclasses.asdict(row)
    said["judged"] = [{**dataclasses.asdict(judged), "met": judged.met} for judged in row.judged]
    return said


def write(known: Json, results: Path) -> None:
    """`transfers.json`, `transfers.md` and `transfers.svg` lie there, and say the same."""
    text = json.dumps(known, indent=1, default=str) + "\n"
    (results / "transfers.json").write_text(text, encoding="utf-8")
    (results / "transfers.md").write_text("\n".join(_page(known)) + "\n", encoding="utf-8")
    (results / "transfers.svg").write_text(plot.drawn(known["rows"]), encoding="utf-8")


def of_row(row: Json) -> Iterator[str]:
    """The row's ratios and notes, as lines for a terminal."""
    for judged in row["judged"]:
        met = "met" if judged["met"] else "MISSED"
        yield f"  => {judged['what']}: {_number(judged)}; {_bar(judged)}: {met}"
    for note in row["notes"]:
        yield f"  {note.replace('not run:', 'NOT RUN:', 1)}"
    yield f"  ({row['took_s']:.0f} s; load average before: {row['load']:.1f})"


def summary(known: Json) -> Iterator[str]:
    """Every bar in one table, and what was not run."""
    yield ""
    for row in _rows(known):
        for judged in row["judged"]:
            met = "met" if judged["met"] else "MISSED"
            what = f"{row['name']}: {judged['what']}"
            yield f"{met:<7} {what:<88} {_number(judged):>9}  {_bar(judged)}"
        for note in row["notes"]:
            if note.startswith("not run"):
                yield f"NOT RUN {row['name']}: {note.removeprefix('not run: ')}"


def _page(known: Json) -> Iterator[str]:
    yield "# Transfers: how fast bytes come home\n"
    yield (
        "Written by `make bench-transfers`. Every figure is a ratio within one run of that row, and "
        "the machine's or the link's own limit stands beside it; absolute rates are this machine's. "
        "`cold` is a fresh process that makes its connection, `kept` one that has it already, as in "
        "the server; bars are judged on `cold`. Ours includes the seal of the box, our hashes, the "
        "fsync and the final re-read from disk; the peers do none of these.\n"
    )
    yield "| row | work | over | what is judged | figure | bar | |\n|---|---|---|---|---|---|---|"
    for row in _rows(known):
        for judged in row["judged"]:
            met = "met" if judged["met"] else "**missed**"
            said = (row["name"], row["work"], row["link"], judged["what"])
            yield f"| {' | '.join(said)} | {_number(judged)} | {_bar(judged)} | {met} |"
        for note in row["notes"]:
            if note.startswith("not run"):
                yield f"| {row['name']} | {row['work']} | | {note} | | | **not run** |"
    yield "\n![each rate, as a share of the fastest peer's](transfers.svg)\n"
    for row in _rows(known):
        if row["detail"]:
            yield f"## {row['name']}: {row['work']}\n\n```json\n{json.dumps(row['detail'])}\n```\n"
        if row["figures"]:
            yield from _details(row)
    yield from _about(known)


def _details(row: Json) -> Iterator[str]:
    yield f"## {row['name']}: {row['work']}, {row['link']}\n"
    if row["limit_mb_s"]:
        yield f"The limit, by {row['limit']}: {row['limit_mb_s']:.1f} MB/s.\n"
    yield f"Run {row['date']}, in {row['took_s']:.0f} s; load average before: {row['load']:.1f}.\n"
    yield "| who | MB/s | s | each | with `sync` | CPU s | peak MB | MB on the wire | |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for figure in row["figures"]:
        each = " ".join(f"{seconds:.2f}" for seconds in figure["each_s"])
        synced, wire = figure["synced_s"], figure["wire_bytes"]
        note = figure["note"]
        if not figure["counted"] and not figure["who"].startswith("ours"):
            note = f"beside {note}"
        memory = f"{figure['peak_mb']:.0f}"
        if figure["high_water_mb"]:
            memory += f" (VmHWM {figure['high_water_mb']:.0f})"
        yield (
            f"| {figure['who']} | {figure['mb_s']:.1f} | {figure['seconds']:.2f} | {each} "
            f"| {'' if synced is None else f'{synced:.2f}'} | {figure['cpu_s']:.2f} | {memory} "
            f"| {'' if wire is None else f'{wire / 1e6:.1f}'} | {note} |"
        )
    yield ""
    for note in row["notes"]:
        yield f"{note[0].upper()}{note[1:]}.\n"


def _about(known: Json) -> Iterator[str]:
    yield "## The machine, and how it was measured\n"
    for name, version in known["machine"].items():
        yield f"- {name}: {version}"
    rates = ", ".join(f"{name} {rate:.0f}" for name, rate in known["ciphers_mb_s"].items())
    yield f"- one `ssh cat` to nowhere, MB/s by cipher: {rates}; every peer of OpenSSH uses the best"
    yield (
        "\nLong links are emulated in user space (two TUN devices, 100 ms of queue, the box sends with "
        "cubic); the emulator takes most of a core, and so the client and the box share what is left "
        "of the others. Rates over them that a peer reached when it was ended at its limit are counted "
        "at the interface, headers included. sshd has OpenSSH's own `MaxStartups 10:30:100`. rclone "
        "checks no hashes here. `ranges` is so many `ssh dd` at once, which nobody ships; marked "
        "`beside`, it does not count. `with sync` adds `sync -f` of the destination, once the command "
        "has ended.\n"
    )


def _rows(known: Json) -> Sequence[Json]:
    return [*known["rows"].values(), known["memory"]]


def _number(judged: Json) -> str:
    unit = f" {judged['unit']}" if judged["unit"] else ""
    return (
        f"{judged['figure']:.3f}{unit}"
        if judged["figure"] < 100
        else f"{judged['figure']:.0f}{unit}"
    )


def _bar(judged: Json) -> str:
    unit = f" {judged['unit']}" if judged["unit"] else ""
    return f"{judged['wanted']} {judged['bar']:g}{unit}"
