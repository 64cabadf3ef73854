"""A lease by default terms under faults of its platform, whose agent and watchdog are killed at random moments.

Stages, faults, kills and counters are the storm's. What is added is the work, and that nobody but a watchdog ends it.
"""

import json
import os
import time
from contextlib import suppress
from datetime import datetime
from typing import Any

from over.work import CELLS, KINDS, LOOKED_AT_S, Kind, script
from storm.clients import LONGEST_S
from storm.lives import Life
from storm.stages import PLACES, draw

from gpu_tenant.emulators.world import State, Thing

_WAITS_REAL_S = 180
_AT_MOST_S, _ONCE_TOLD_S = 2 * 3600, 600
"""How long the last watchdog looks after a lease, by the provider's clock, and how long if an alarm says why it bills on.

To each, the time is added that the terms leave for a look at failed work. Each minute is a look, which takes
processor time.
"""
_UNSEEN_S = 600
"""How long nobody looks after failed work, once the first watchdogs are dead. It is shorter than what its terms leave."""
_DEATHS, _DIES_WITHIN_S = 3, 12.0


class Done(Life):
    """A life that is left to the watchdog once its work is launched."""

    def _verbs(self) -> None:
        dice = self.dice
        self.kind: Kind = KINDS[self.seed // len(PLACES) % len(KINDS)]
        self.needed_at: float | None = None
        self.deaths = 0
        drawn = [draw(self.stage.provider, dice) for _ in range(dice.randint(2, 4))]
        self.faults += drawn
        later = [fault for fault in drawn if dice.random() < 0.5]
        self.stage.strike(*(fault for fault in drawn if fault not in later))
        if not self._tried("provision") or not self._tried("launch"):
            return
        box = self._box()
        if box is None:
            return
        self.needed_at = self._there(box)
        # The rest goes wrong while its end is looked after.
        self.stage.strike(*later)
        self._watched()

    def _tried(self, verb: str) -> bool:
        """Whether the agent got it done. The first two times it may be killed on its way."""
        for attempt in range(4):
            live = self.live()
            if verb != "provision" and not live:
                return False
            self.lease = live[-1]["id"] if live else ""
            if verb == "provision" and live and live[-1]["state"] == "active":
                return True
            words = self._words(verb)
            if words is None:
                continue
            if verb == "launch":
                self.launched.add(self.lease)
            kill_s: float | None = self.dice.uniform(0.02, 3.0)
            if attempt > 1 or self.dice.random() < 0.5:
                kill_s = None
            asked = [self.client.ask(*said, kill_after_s=kill_s) for said in words]
            if all(ended.status == 0 for ended in asked):
                self.lease = self.live()[-1]["id"] if self.live() else ""
                return bool(self.lease)
            self.stage.later(60 * (attempt + 1))
        return False

    def _words(self, verb: str) -> list[list[str]] | None:
        if verb == "provision":
            said = self._said(verb, self.lease)
            return None if said is None else [said]
        said = self._said("launch", self.lease)
        assert said is not None
        writes = said[-1]
        said[-1] = script(self.kind, writes)
        if self.kind == "sweep":
            cells = writes.replace("out", "out/{cell}") + "; echo {seed} > out/{cell}/n.txt"
            matrix = ["--matrix", "seed=1,2,3", "--artifact", "out/{cell}/", "--", cells]
            return [said, ["launch", self.lease, *matrix]]
        if self.kind == "several":
            more = ["--name", "job2", "--artifact", "more/", "--", writes.replace("out", "more")]
            return [said, ["launch", self.lease, *more]]
        return [said]

    def _box(self) -> str | None:
        row = next((row for row in self.live() if row["id"] == self.lease), None)
        return row["box_id"] if row else None

    def _there(self, box: str) -> float | None:
        """When the last needed file was on the box, by the provider's clock. None: it never was."""
        names = ["out/b.bin"]
        names += [f"out/{cell}/b.bin" for cell in CELLS] if self.kind == "sweep" else []
        names += ["more/b.bin"] if self.kind == "several" else []
        give_up, before = time.monotonic() + _WAITS_REAL_S, self._now()
        while time.monotonic() < give_up:
            now, disk = self._now(), self.stage.disk_of(box)
            if disk is None:
                return None
            found = [name for name in names if next(disk.parent.glob(f"**/{name}"), None)]
            if len(found) == len(names):
                return before
            before = now
            time.sleep(0.05)  # noqa: TID251 - a bound stands above
        return None

    def _now(self) -> float:
        return datetime.fromisoformat(self.stage.ask("clock")["now"]).timestamp()

    def _watched(self) -> None:
        """Watchdogs came and died, and the last one lived until the lease was over, or for as long as is tried."""
        looked_at_s = LOOKED_AT_S.get(self.kind, 0)
        for _ in range(self.dice.randint(1, _DEATHS)):
            begun = self.client.begin("watchdog")
            self.client.end(begun, kill_after_s=self.dice.uniform(0.2, _DIES_WITHIN_S))
        self.deaths = self.client.killed
        self.stage.calm()
        if looked_at_s:
            self.stage.later(_UNSEEN_S)
        # The end of a job counts from the first look that saw it: a box keeps this computer's time.
        since = self._now() + looked_at_s
        give_up = time.monotonic() + LONGEST_S
        begun = self.client.begin("watchdog")
        while self.live() and time.monotonic() < give_up:
            if self._now() > since + (_ONCE_TOLD_S if self._told() else _AT_MOST_S):
                break
            time.sleep(0.2)  # noqa: TID251 - a bound stands above
        self.client.end(begun, kill_after_s=0.0)

    # --- what came of it

    def lived(self) -> dict[str, Any]:
        """As `Life.lived`, with what was billed after the last needed byte."""
        began_s = sum(os.times()[:4])
        line = super().lived()
        return {**line, "cpu_s": round(sum(os.times()[:4]) - began_s, 1), "over": self.over}

    def _settled(self) -> None:
        self.over = self._reckoned()
        super()._settled()

    def _reckoned(self) -> dict[str, Any]:
        """How its end came, before anybody helps."""
        row = next((r for r in self.rows("SELECT * FROM leases") if r["id"] == self.lease), None)
        box = self._thing(row["box_id"]) if row and row["box_id"] else None
        ended = row is not None and row["state"] == "gone"
        beyond = None
        if ended and box is not None and self.needed_at is not None and box.spans:
            stopped = max(span.until or 0 for span in box.spans)
            beyond = stopped - self.needed_at - LOOKED_AT_S.get(self.kind, 0)
        return {
            "kind": self.kind,
            "ended": ended,
            "beyond_s": beyond,
            "deaths": self.deaths,
            "told": self._told(),
        }

    def _told(self) -> list[str]:
        """What stands as an alarm about its lease."""
        alarms = self.rows("SELECT lease_id, words FROM alarms WHERE ended_at IS NULL")
        return [alarm["words"] for alarm in alarms if alarm["lease_id"] == self.lease]

    def _thing(self, box: str) -> Thing | None:
        state = State()
        with suppress(OSError, ValueError):
            said = json.loads((self.stage.directory / "state.json").read_bytes())
            state = State.model_validate(said)
        return next(
            (x for x in state.things.values() if x.id.endswith(box.rpartition("/")[2])), None
        )
