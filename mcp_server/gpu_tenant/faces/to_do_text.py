"""Says why a lease needs a person, for all faces that show text."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from gpu_tenant.domain.wording import span, until, usd_words

if TYPE_CHECKING:
    from gpu_tenant.leases.cards import Card
    from gpu_tenant.leases.condition import ToDo


def matter_words(row: Card, to_do: ToDo) -> str:
    """Say why that lease needs a person, since when, and what it has cost since."""
    ago = "" if to_do.since_s is None else f" {span(to_do.since_s)} ago"
    match to_do.matter:
        case "job over":
            words = [f"{row.condition.word}{ago}", f"its box bills on, {row.price_words}"]
        case "taken":
            bills = f"its disk bills on, {row.price_words}"
            if row.bills == "unknown":
                bills = "whether it bills on is unknown"
            words = [f"{row.condition.word}{ago}", bills]
        case "silent":
            since = "" if to_do.since_s is None else f" for {span(to_do.since_s)}"
            words = [f"its box has not answered{since}" if since else "its box does not answer"]
            words.append("it may be running and billing")
        case "alarm":
            words = [row.alarm or "an alarm is open"]
        case "ends soon":
            words = [
                "its deadline is near"
                + (f", {until(row.deadline_in_s)}" if row.deadline_in_s is not None else "")
            ]
        case unreachable:
            assert_never(unreachable)
    if to_do.since_usd is not None:
        words.append(f"{usd_words(to_do.since_usd)} since")
    return ", ".join(words)
