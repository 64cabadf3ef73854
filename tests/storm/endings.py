"""Ends that are refused, ignored or late, and boxes that stop and start by themselves: every life of this kind has an end.

After each thing that happens, what is shown is held against the provider's meter: the rate of each lease, and the most
that each was said to cost.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from at_most import FIRST, allowed_usd

from gpu_tenant.leases.watchdog_heartbeat import put_heartbeat
from storm.stages import PLACES

if TYPE_CHECKING:
    from random import Random

    from storm.lives import Life

_LOOK_S = 600
"""How far the clock leaps between two looks of the watchdog. So much more may be billed than the terms say."""
_WAITS_S = (60, 300, 600, 1800, 4 * 3600)
_REFUSES = {"vastai", "lambda_cloud", "gcp", "autodl"}
"""Where an end can be refused inside of an answer that says all is well."""
_STEPS, _LOOKS = 8, 24
_CENTS = Decimal("0.02")


@dataclass
class Said:
    """A sentence about the most that a lease costs, from when it was printed."""

    words: str
    usd_h: Decimal
    deadline: datetime
    leapt_s: float = 0


@dataclass
class Endings:
    """What is done to the lease of one life, once its work is done or before."""

    life: Life
    watched: bool = False
    most: dict[str, Said] = field(default_factory=dict)
    found: list[tuple[str, object]] = field(default_factory=list)
    asks_for_a_person: bool = False

    @property
    def dice(self) -> Random:
        """The life's own."""
        return self.life.dice

    def terms(self, usd_h: Decimal) -> list[str]:
        """Terms that end a lease in one way or the other."""
        parks = "park" if self.life.stage.stops_boxes else "end"
        keeps = self.dice.choice(["keep", "keep", "end", parks])
        budget = self.dice.choice([Decimal(20), usd_h * Decimal("2.2")])
        return ["--when-done", keeps, "--budget-usd", f"{budget:.2f}"]

    # --- what happens

    def troubled(self) -> None:
        """Things went wrong with the end, in an order that the seed fixes."""
        self.watched = self.dice.random() < 0.4
        self.look()
        for _ in range(self.dice.randint(3, 6)):
            if not self._row():
                break
            does = self.dice.choice(self._possible())
            does()
            self.look()

    def _possible(self) -> list[Callable[[], None]]:
        row = self._row()
        always = [self._teardown, self._teardown, self._time, self._looks]
        if row is None or not self.life.stage.stops_boxes:
            return always
        if row["state"] == "terminating":
            return [*always, self._starts, self._starts, self._stops, self._stops, self._resume]
        if row["parked_at"] is not None:
            return [*always, self._starts, self._starts, self._starts, self._resume]
        return [*always, self._park, self._park, self._park, self._stops]

    def _row(self) -> dict[str, Any] | None:
        lease = self.life.lease
        return next((row for row in self.life.live() if row["id"] == lease), None)

    def _by_hand(self, *said: str, kill_after_s: float | None = None) -> None:
        """A person acts: what was said before about the most was said of something else."""
        self.most.clear()
        self.life.client.ask(*said, kill_after_s=kill_after_s)

    def _teardown(self) -> None:
        """An end that is refused, ignored, late, or struck by the wire; in a quarter of them the client is killed, too."""
        provider, stage = self.life.stage.provider, self.life.stage
        method, path = PLACES[provider]["delete"]
        match = {"method": method, "path_regex": path}
        times = self.dice.randint(1, 3)
        kinds = ["ignored", "late", "status", "drop_after", "drop_before", "cut", "twice", "none"]
        kinds += ["soft_failure"] * 3 if provider in _REFUSES else ["ignored"]
        kinds += ["terminate_unavailable"] if provider == "lambda_cloud" else []
        kind = self.dice.choice(kinds)
        fault: dict[str, Any] = {"do": kind, "match": match, "times": times}
        if kind == "ignored":
            fault = {"do": "stuck_termination"}
        elif kind == "terminate_unavailable":
            fault = {"do": kind, "seconds": self.dice.choice([60, 900])}
        elif kind == "late":
            fault["seconds"] = self.dice.choice([30, 300, 2400])
        elif kind == "status":
            fault["status"] = self.dice.choice([400, 403, 409, 429, 500, 503])
            fault["body"] = self.dice.choice([None, "<html>gateway</html>", {"error": "x"}])
        self.life.client.log.append({"fault": fault})
        if kind != "none":
            self.life.faults.append(fault)
            self.life.was_troubled = True
            stage.strike(fault)
        if self.dice.random() < 0.7:
            kill_s = self.dice.uniform(0.2, 3) if self.dice.random() < 0.25 else None
            self._by_hand("teardown", self.life.lease, kill_after_s=kill_s)
        else:
            self.life.client.ask("watchdog", "--once")
        if self.dice.random() < 0.7:
            self._lasts(self.dice.choice(_WAITS_S))
            stage.calm()

    def _park(self) -> None:
        self._by_hand("park", self.life.lease)

    def _resume(self) -> None:
        self._by_hand("resume", self.life.lease)

    def _time(self) -> None:
        self._lasts(self.dice.choice(_WAITS_S))

    def _looks(self) -> None:
        self.life.client.ask("watchdog", "--once")

    def _starts(self) -> None:
        """The box runs again, though nobody of ours has started it."""
        self._switched("start")

    def _stops(self) -> None:
        self._switched("stop")

    def _switched(self, how: str) -> None:
        row = self._row()
        if row is None or not row["box_id"]:
            return
        done = self.life.stage.switch(str(row["box_id"]), how)
        self.life.client.log.append({how: done})
        if done:
            self.life.was_troubled = True
            self.most.clear()
            self.life.stage.later(self.dice.choice([30, 120, 600]))

    def _lasts(self, seconds: float) -> None:
        """So much time passes; where somebody watches, it is looked after at every leap."""
        if not self.watched:
            self.life.stage.later(seconds)
            return
        while seconds > 0 and self._row():
            self.life.stage.later(min(_LOOK_S, seconds))
            seconds -= _LOOK_S
            self.life.client.ask("watchdog", "--once")

    # --- what is shown, and what is true

    def look(self) -> None:
        """What `leases` shows of each lease is what its provider bills."""
        if self.watched:
            self._shows_up()
        before = self._rates()
        answer = self.life.client.ask("leases").answer
        after = self._rates()
        if not isinstance(answer, dict):
            return
        shown = {row["lease"]: row for row in answer["leases"]}
        for row in self.life.rows("SELECT * FROM leases WHERE provider <> 'own'"):
            box = str(row["box_id"] or "").rpartition("/")[2]
            true = after.get(box, Decimal(0))
            if not box or before.get(box, Decimal(0)) != true:
                continue
            card = shown.get(row["id"])
            told = None if card is None else card["price_usd_h"]
            is_open = row["state"] in ("intended", "active", "terminating")
            if is_open and told is None:
                continue  # it says that it does not know
            said = Decimal(told) if told is not None and is_open else Decimal(0)
            if abs(said - true) > Decimal("0.002") + true / 20:
                what = {"lease": row["id"], "state": row["state"], "told": said, "bills": true}
                self.found.append(("rates_wrong", {**what, "call": self.life.client.calls}))
        for card in shown.values():
            self._hears(card)

    def _hears(self, card: dict[str, Any]) -> None:
        words = next((rule for rule in card["terms"] if rule.startswith(FIRST)), None)
        if not self.watched or words is None or card["lease"] in self.most:
            return
        usd_h = Decimal(card["running_usd_h"] or card["price_usd_h"] or 0)
        deadline = self._now().timestamp() + card["deadline_in_s"]
        self.most[card["lease"]] = Said(words, usd_h, datetime.fromtimestamp(deadline, UTC))

    def _rates(self) -> dict[str, Decimal]:
        meter = self.life.stage.ask("meter")
        return {
            box["id"].rpartition("/")[2]: Decimal(box["usd_h"])
            for box in meter["running"] + meter["parked"]
        }

    def _now(self) -> datetime:
        return datetime.fromisoformat(self.life.stage.ask("clock")["now"])

    def _shows_up(self) -> None:
        """This driver is the watchdog, by a look at every leap: what is printed says so."""
        file = self.life.state / "watchdog.json"
        put_heartbeat(file, at=self._now(), every_s=_LOOK_S, unasked={})

    # --- its end

    def ended(self) -> None:
        """Nothing goes wrong any more, and it ends: by the watchdog alone, or by the steps that are printed."""
        self.life.stage.calm()
        by = [self._ended_by_watchdog, self._ended_by_steps]
        if self.dice.random() < 0.5:
            by.reverse()
        for way in by:
            if self.life.live():
                way()
        self.life.stage.later(900)
        self.look()
        self._compares()
        for row in self.life.live():
            self.found.append(("stuck", {"lease": row["id"], "state": row["state"]}))

    def _ended_by_watchdog(self) -> None:
        """Nobody does anything but a watchdog, until some hours past the deadline."""
        for _ in range(_LOOKS):
            if not self.life.live():
                return
            self.life.stage.later(_LOOK_S if self.watched else 3 * _LOOK_S)
            self.life.client.ask("watchdog", "--once")
        self.look()

    def _ended_by_steps(self) -> None:
        """A person does what each lease's card says is next, and tears down where it names nothing."""
        for _ in range(_STEPS):
            answer = self.life.client.ask("leases").answer
            cards = answer["leases"] if isinstance(answer, dict) else []
            if not cards:
                return
            for card in cards:
                self._step(card)
            self.life.stage.later(120)

    def _step(self, card: dict[str, Any]) -> None:
        lease = card["lease"]
        printed = re.findall(r"`gpu-tenant ([^`]+)`", card["next"] or "")
        verbs = [shlex.split(words) for words in printed]
        able = [words for words in verbs if words[0] in ("resume", "collect", "teardown", "stop")]
        if any(words[0] in ("waive", "sign") for words in verbs) and not able:
            self.asks_for_a_person = True
        for words in able[:1] or [["collect", lease]]:
            self._by_hand(*words)
        if not able or able[0][0] not in ("teardown", "resume"):
            self._by_hand("teardown", lease)

    def _compares(self) -> None:
        """No meter has passed what was last called the most, since anybody but the watchdog acted."""
        by_thing = self.life.stage.ask("meter")["by_thing"]
        for row in self.life.rows("SELECT * FROM leases WHERE provider <> 'own'"):
            said = self.most.get(row["id"])
            if said is None or not row["box_id"]:
                continue
            number = str(row["box_id"]).rpartition("/")[2]
            billed = next(
                (Decimal(x) for box, x in by_thing.items() if box.rpartition("/")[2] == number),
                Decimal(0),
            )
            past_s = max(0.0, (self._now() - said.deadline).total_seconds())
            with suppress(AssertionError):
                most = allowed_usd(said.words, usd_h=said.usd_h, days=Decimal(str(past_s)) / 86400)
                late = said.usd_h * _LOOK_S / 3600
                if most is not None and billed > most + late + _CENTS:
                    what = {"lease": row["id"], "said": said.words, "billed": billed}
                    self.found.append(("over_the_most", what))
