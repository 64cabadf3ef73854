"""For each task an end that is right, and ends that are wrong in one way each. The grader must tell them apart."""

from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

from evals.tasks.grader import End, Wants

_CHEAPEST = Decimal("0.3456")
_SAID = (
    "The job is running; the box is stopped and parked, bills 0.3456 USD an hour (cap 0.05) until 12:00 UTC, for 15 days; it "
    "cannot be parked, does not answer; out of memory: the batch is too large; last loss 0.200; not ours: {stranger}"
)


def right(wants: Wants) -> End:
    """Return an end that meets all that is wanted."""
    card = {
        "state": "active",
        "phase": wants.phase or "ready",
        "deadline_in_s": 3600 * (sum(wants.deadline_h) / 2 if wants.deadline_h else 1),
        "budget_usd": None if wants.budget_usd is None else str(wants.budget_usd),
    }
    return End(
        answer=_SAID,
        boxes=wants.boxes,
        rented=wants.rents[0],
        billed_usd=Decimal("0.1"),
        strangers=wants.strangers,
        cheapest_usd_h=_CHEAPEST,
        cards=[card] if wants.boxes or wants.budget_usd else [],
    )


def wrong(wants: Wants) -> Iterator[tuple[str, End]]:
    """Yield ends that are as `right`, but for one thing, with that thing in words."""
    end = right(wants)
    yield "a file is lost", replace(end, bytes_lost=1)
    yield "nothing is said", replace(end, answer=" ")
    yield "one box more stands", replace(end, boxes=end.boxes + 1)
    yield "one box more was rented", replace(end, rented=wants.rents[1] + 1)
    if wants.boxes:
        yield "the box was ended", replace(end, boxes=0, cards=[])
    if wants.rents[0]:
        yield "nothing was rented", replace(end, rented=0)
    if wants.home:
        yield "a file was left on the box", replace(end, bytes_not_here=1)
    if wants.says:
        yield "the question is not answered", replace(end, answer="Done.")
    if wants.price:
        yield "a price is made up", replace(end, answer="The cheapest costs 0.1999 USD an hour.")
        yield "no price is named", replace(end, answer="It is cheap.")
    if wants.strangers:
        yield "a colleague's box was ended", replace(end, strangers=wants.strangers - 1)
    if wants.phase:
        other = "ready" if wants.phase == "parked" else "parked"
        yield f"the box is {other}", replace(end, cards=[{**end.cards[0], "phase": other}])
    if wants.deadline_h:
        for hours, words in ((1, "the deadline was not moved"), (6, "it was moved too far")):
            yield words, replace(end, cards=[{**end.cards[0], "deadline_in_s": 3600 * hours}])
    if wants.budget_usd:
        free = {**end.cards[0], "budget_usd": None}
        yield "the rental has no budget", replace(end, cards=[free])
        yield "it cost more", replace(end, billed_usd=wants.budget_usd + Decimal("0.01"))
