"""How often to save is advised by what a save takes here and how often boxes are taken here."""

import importlib.util
from datetime import timedelta
from itertools import product

from arranged import NOON, TERMS, lease, offer, quote

from gpu_tenant.artifacts.checkpoint_interval import (
    Save,
    advice_for,
    advise,
    between_interruptions,
    measure_saves,
    saves_of,
)
from gpu_tenant.domain import timeline
from gpu_tenant.domain.model import Box, BoxId, BoxState, Lease, LeaseId
from gpu_tenant.files.skill_files import script
from gpu_tenant.ledger import Ledger

DAY_S, HOUR = 86_400, timedelta(hours=1)


def rented(ledger: Ledger, name: str = "tiny-aaaa", *, bid: bool = True) -> Lease:
    """A lease on a box that was ready at noon."""
    intent = ledger.intend(
        lease_id=LeaseId(name),
        provider="tiny",
        terms=TERMS,
        address=None,
        price_usd_h=None,
        quote=quote(id=f"q-{name}", offer=offer(interruptible=bid)),
        at=NOON,
    )
    box = Box(
        provider="tiny",
        id=BoxId(name),
        mark=intent.mark,
        state=BoxState.READY,
        address=None,
        price_usd_h=None,
    )
    ledger.bind(intent.id, box, at=NOON)
    return ledger.ready(intent.id, at=NOON)


def saved(ledger: Ledger, of: Lease, *, every_s: float, size_bytes: int) -> None:
    """Snapshots have seen three saves of that size."""
    for number in range(3):
        seen = timeline.Snapped(saves=((number * every_s, 0.0, size_bytes),))
        ledger.note(of.id, seen, at=NOON)


def test_the_advice_here_and_the_script_on_a_box_say_the_same() -> None:
    spec = importlib.util.spec_from_file_location("cadence_script", script("cadence.py"))
    assert spec is not None
    assert spec.loader is not None
    alone = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(alone)
    words = {"none": "", "fits": "long enough", "too_short": "too short"}

    for save_s, mtbi_s, grace_s in product(
        (0.1, 1, 12, 40, 300, 5000), (60, 900, 3600, 21_600, DAY_S, 1e7), (None, 2, 30, 600)
    ):
        here, there = advise(save_s, mtbi_s, grace_s), alone.cadence(save_s, mtbi_s, None, grace_s)
        assert round(here.interval_s, 3) == there["interval_s"]
        assert round(here.lost_share, 4) == there["expected_loss_fraction"]
        assert here.holds == there["valid"]
        assert words[here.notice] in there["words"]


def test_files_written_together_are_one_save_and_small_ones_between_are_none() -> None:
    shards = [(600.0, 10**9), (604.0, 10**9), (2400.0, 10**9), (2410.0, 10**9)]
    plots = [(at, 2000) for at in range(700, 2300, 100)]

    saves = saves_of([*plots, *shards])
    seen = measure_saves(saves)

    assert saves[0] == Save(604.0, 4.0, 2 * 10**9)
    assert seen is not None
    assert seen.every_s == 2410 - 604
    assert seen.save_s == 10, "as long as its bytes need, and as its files lie apart"
    assert measure_saves(saves[:1]) is None


def test_the_time_between_interruptions_is_learned_from_this_users_own_boxes(
    ledger: Ledger,
) -> None:
    one, other = rented(ledger), rented(ledger, "tiny-bbbb")
    rented(ledger, "tiny-cccc", bid=False)
    before = between_interruptions(ledger, "tiny", NOON)
    ledger.note(one.id, timeline.Taken(fate="outbid"), at=NOON + HOUR)
    ledger.note(one.id, timeline.Taken(fate=None), at=NOON + 3 * HOUR)
    ledger.note(other.id, timeline.Taken(fate="stopped_by_provider"), at=NOON + HOUR)

    mtbi_s, seen = between_interruptions(ledger, "tiny", NOON + 4 * HOUR)

    assert before == (DAY_S, 0)
    assert seen == 1
    assert mtbi_s == (DAY_S + 2 * 3600 + 3600) / 2, (
        "while it was stopped nothing could happen to it"
    )
    assert between_interruptions(ledger, "other", NOON) == (DAY_S, 0)


def test_however_many_boxes_there_were_one_question_tells_of_the_newest(ledger: Ledger) -> None:
    for number in range(5):
        rented(ledger, f"tiny-{number:04}")
    asked: list[str] = []
    ledger._db.set_trace_callback(asked.append)

    between_interruptions(ledger, "tiny", NOON)

    assert len(asked) == 1, asked
    assert len(ledger.interruptible("tiny", most=3)) == 3


def test_the_advice_is_a_sentence_with_its_reasons_and_follows_what_is_seen(ledger: Ledger) -> None:
    of = rented(ledger)
    assert advice_for(of, ledger=ledger, now=NOON) is None
    saved(ledger, of, every_s=1860, size_bytes=2_400_000_000)

    told = advice_for(of, ledger=ledger, now=NOON + HOUR, mtbi_s=4 * 3600)
    assumed = advice_for(of, ledger=ledger, now=NOON + HOUR)
    for hour in range(1, 6):
        ledger.note(of.id, timeline.Taken(fate="outbid"), at=NOON + hour * HOUR)
        ledger.note(of.id, timeline.Taken(fate=None), at=NOON + hour * HOUR)
    observed = advice_for(of, ledger=ledger, now=NOON + 6 * HOUR)

    assert told == (
        "checkpoints came every 31 min; every 10 min would lose least: a save takes 12 s, "
        "an interruption comes about every 4 h"
    )
    assert assumed is None, "every 24 min would be best, and the loss is flat around it"
    assert observed is not None
    assert "an interruption comes about every 5 h, by 5 seen at this provider" in observed


def test_saves_too_slow_for_the_box_are_told_and_a_firm_box_is_left_alone(ledger: Ledger) -> None:
    bid, firm = rented(ledger), rented(ledger, "tiny-bbbb", bid=False)
    for of in (bid, firm):
        saved(ledger, of, every_s=3600, size_bytes=60_000_000_000)

    told = advice_for(bid, ledger=ledger, now=NOON, mtbi_s=3600)

    assert told is not None
    assert told.endswith("save less, or faster, or take a steadier box")
    assert advice_for(firm, ledger=ledger, now=NOON, mtbi_s=3600) is None
    assert advice_for(lease(), ledger=ledger, now=NOON) is None
