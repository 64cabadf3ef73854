"""A trace: what a box's looks counted, and for each what the box was really doing."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

WHERE: Final = Path(__file__).parent / "traces"

Truth = Literal["busy", "idle", "suspicious", "unknown"]
Look = dict[str, Any]

COUNTED: Final = ("cpu_s", "read", "written", "disk")
CARD: Final = ("util_pct", "mem_mib", "mem_util_pct", "power_w", "job", "other", "else", "unseen")
COLUMNS: Final = (
    "dt_s",
    *(f"{group}.{name}" for group in ("job", "other") for name in (*COUNTED, "procs")),
    "net_in",
    "net_out",
    "kinds",
)
"""A row's increments since the look before: seconds, bytes in kB; `procs` as they stand; then a list for each card."""


@dataclass(frozen=True, slots=True)
class Span:
    """So many looks in a row that one label holds for."""

    looks: int
    truth: Truth
    phase: str
    alive: bool
    """Whether a declared job's first process lives, which is all that a job table knows."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One recording, or one that was made up."""

    name: str
    how: Literal["recorded", "synthetic"]
    made: str
    spans: tuple[Span, ...]
    rows: tuple[Any, ...]
    driver: str
    power_max_w: float | None

    @property
    def labels(self) -> list[Span]:
        """The label of each look, the first of all left out: before it nothing was seen."""
        return [span for span in self.spans for _ in range(span.looks)]

    def looks(self) -> list[Look]:
        """The looks as the box keeps them, one more than there are labels."""
        return list(self._looked())

    def _looked(self) -> Iterator[Look]:
        at, up, boot = 1_790_000_000.0, 5_000.0, 0
        sums: dict[str, dict[str, float]] = {"job": {}, "other": {}}
        kinds: dict[str, float] = {}
        net = [0.0, 0.0]
        for row in ([0.0] * len(COLUMNS[:-1]) + [{}] + self._cards(self.rows[0]), *self.rows):
            cells = dict(zip(COLUMNS, row, strict=False))
            if (cells["kinds"] or {}).get("reboot"):
                boot, up, net, kinds = boot + 1, 30.0, [0.0, 0.0], {}
                sums = {"job": {}, "other": {}}
            at += cells["dt_s"] + (cells["kinds"] or {}).get("clock_s", 0.0)
            up += cells["dt_s"]
            groups = {}
            for group, sum_of in sums.items():
                for name in COUNTED:
                    unit = 1.0 if name == "cpu_s" else 1e3
                    sum_of[name] = sum_of.get(name, 0.0) + unit * cells[f"{group}.{name}"]
                groups[group] = {**sum_of, "procs": cells[f"{group}.procs"]}
            net = [net[0] + 1e3 * cells["net_in"], net[1] + 1e3 * cells["net_out"]]
            for kind, cpu_s in (cells["kinds"] or {}).items():
                if kind not in ("reboot", "clock_s"):
                    kinds[kind] = kinds.get(kind, 0.0) + cpu_s
            cards = [
                dict(zip(CARD, card, strict=True)) | {"power_max_w": self.power_max_w}
                for card in row[len(COLUMNS) :]
            ]
            yield {
                "at": at,
                "up": up,
                "boot": f"b{boot}",
                "count": f"c{boot}",
                **groups,
                "kinds": dict(kinds),
                "net": list(net),
                "driver": self.driver,
                "gpus": cards if self.driver == "ok" else None,
            }

    @staticmethod
    def _cards(row: Sequence[Any]) -> list[Any]:
        return list(row[len(COLUMNS) :])


def read(path: Path) -> Trace:
    """The trace in the file."""
    header, *rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    spans = tuple(Span(n, truth, phase, bool(alive)) for n, truth, phase, alive in header["spans"])
    trace = Trace(
        path.stem,
        header["how"],
        header["made"],
        spans,
        tuple(rows),
        header.get("driver", "none"),
        header.get("power_max_w"),
    )
    if len(trace.labels) != len(rows):
        raise ValueError(f"{path.name} has {len(rows)} looks and {len(trace.labels)} labels")
    return trace


def write(name: str, header: dict[str, Any], rows: Sequence[Sequence[Any]]) -> None:
    """The trace is a file of this directory."""
    lines = [json.dumps(header), *(json.dumps(_short(row), separators=(",", ":")) for row in rows)]
    (WHERE / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _short(value: Any) -> Any:
    """The same with four digits: 12 MB more or less of a download are nothing to a judge."""
    if isinstance(value, float):
        rounded = float(f"{value:.4g}")
        return int(rounded) if rounded == int(rounded) else rounded
    if isinstance(value, dict):
        return {k: _short(v) for k, v in value.items()} or 0
    return [_short(one) for one in value] if isinstance(value, (list, tuple)) else value


def traces() -> list[Trace]:
    """Every one there is, by name."""
    return [read(path) for path in sorted(WHERE.glob("*.jsonl"))]


def packed(labels: Sequence[tuple[str, str, int]]) -> list[list[Any]]:
    """Equal labels in a row as one span."""
    spans: list[list[Any]] = []
    for label in labels:
        if spans and spans[-1][1:] == list(label):
            spans[-1][0] += 1
        else:
            spans.append([1, *label])
    return spans
