"""The ledger of an episode, kept by whoever sees the provider's books and the disks, and nobody else."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Final

import httpx2

from gpu_tenant.emulators.faults import Fault
from gpu_tenant.emulators.server import Stage
from gpu_tenant.emulators.world import KEY

_CODE: Final = re.compile(r"([A-Z][A-Z_]+): ")


@dataclass(frozen=True, slots=True)
class Score:
    """How an episode ended. Lost is what is neither here nor on a box that still exists."""

    outcome: str
    billed_usd: Decimal
    wasted_usd: Decimal
    leaking_usd_h: Decimal
    boxes_left: int
    important_bytes: int
    bytes_lost: int
    bytes_left_on_boxes: int
    calls: int
    refusals: Mapping[str, int]
    characters_read: int

    @property
    def refused(self) -> int:
        """How many calls were answered with an error."""
        return sum(self.refusals.values())

    @property
    def clean(self) -> bool:
        """Nothing bills, no box is left, and every important byte is here."""
        left = self.bytes_lost or self.bytes_left_on_boxes or self.boxes_left
        return not left and self.leaking_usd_h == 0


class Referee:
    """Sees the world of one stage; `kept` is where an agent's copies must be."""

    def __init__(self, stage: Stage, kept: Path, wanted: Mapping[str, tuple[str, int]]) -> None:
        self.stage = stage
        self.kept = kept
        self.wanted = wanted
        self.calls = 0
        self.characters_read = 0
        self.refusals: Counter[str] = Counter()
        self._asked = httpx2.Client(base_url=f"{stage.url}/_rehearsal", timeout=30)
        self._billed_when_whole: Decimal | None = None

    def close(self) -> None:
        """Nothing of ours is open."""
        self._asked.close()

    # --- the world

    def strike(self, *faults: Fault) -> None:
        """They have happened, or wait for the request that they are for."""
        body = [fault.model_dump(exclude={"seen", "spent"}) for fault in faults]
        self._asked.post("/faults", json=body).raise_for_status()

    def at_the_console(self, method: str, path: str, body: object) -> None:
        """The owner has done that with the provider itself."""
        key = {"Authorization": f"Bearer {KEY}"}
        url = f"{self.stage.url}{path}"
        self._asked.request(method, url, json=body, headers=key).raise_for_status()

    def wait(self, seconds: float) -> None:
        """So much of the rehearsal's time has passed."""
        self._asked.post("/clock", json={"advance_s": seconds}).raise_for_status()

    def boxes(self) -> list[str]:
        """Every box that bills or could, of whoever's making but a stranger's."""
        meter = self._meter()
        return [str(box["id"]) for kind in ("running", "parked") for box in meter[kind]]

    def requests(self) -> list[dict[str, object]]:
        """All requests that the provider was sent, the first one first."""
        lines: list[dict[str, object]] = self._asked.get("/requests").json()
        return lines

    def home_of(self, box: str) -> Path:
        """That box's disk."""
        return self.stage.directory / "boxes" / box.rpartition("/")[2] / "home"

    def _meter(self) -> dict[str, list[dict[str, str]]]:
        meter: dict[str, list[dict[str, str]]] = self._asked.get("/meter").json()
        return meter

    def _billed_usd(self) -> Decimal:
        return Decimal(str(self._meter()["billed_usd"]))

    # --- the score

    def note(self, words: str, *, refused: str | None) -> None:
        """A call was answered with these words; `refused` is the code where it was an error."""
        self.calls += 1
        self.characters_read += len(words)
        if refused is not None:
            self.refusals[refused] += 1
        if self._billed_when_whole is None and not self.missing_on_boxes():
            self._billed_when_whole = self._billed_usd()

    def missing_on_boxes(self) -> set[str]:
        """What has yet to be made on some box."""
        return self._missing(*(self.home_of(box).parent for box in self.boxes()))

    def missing_here(self) -> set[str]:
        """What of the important files is not on this computer, byte for byte."""
        return self._missing(self.kept)

    def lost(self) -> set[str]:
        """What is neither here nor on a box that still exists."""
        return self.missing_here() & self.missing_on_boxes()

    def score(self, outcome: str) -> Score:
        """How things stand now, which is the end."""
        meter, here, lost = self._meter(), self.missing_here(), self.lost()
        billed = self._billed_usd()
        return Score(
            outcome=outcome,
            billed_usd=billed,
            wasted_usd=billed - (billed if (w := self._billed_when_whole) is None else w),
            leaking_usd_h=Decimal(str(meter["usd_h"])),
            boxes_left=len(self.boxes()),
            important_bytes=self.size(set(self.wanted)),
            bytes_lost=self.size(lost),
            bytes_left_on_boxes=self.size(here - lost),
            calls=self.calls,
            refusals=dict(self.refusals),
            characters_read=self.characters_read,
        )

    def size(self, names: set[str]) -> int:
        """How many bytes these files have."""
        return sum(self.wanted[name][1] for name in names)

    def _missing(self, *roots: Path) -> set[str]:
        """The important files of which no copy lies below any of `roots`, under whatever name."""
        sizes = {size for _, size in self.wanted.values()}
        found: set[str] = set()
        for path in (path for root in roots for path in _files(root)):
            with suppress(FileNotFoundError):  # a job is at work there
                if path.stat().st_size in sizes:
                    found.add(sha256(path.read_bytes()).hexdigest())
        return {name for name, (digest, _) in self.wanted.items() if digest not in found}


def code_of(words: str) -> str:
    """The code that an error begins with."""
    match = _CODE.match(words)
    return match.group(1) if match else "UNTOLD"


def _files(root: Path) -> Iterator[Path]:
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield path
