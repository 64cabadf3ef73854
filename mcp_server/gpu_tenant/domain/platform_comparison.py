"""All platforms side by side: which path survives which event, and what bills after a stop and after the end."""

from collections.abc import Callable, Sequence

from gpu_tenant.domain.model import Place, Profile

_EVENTS = ("reboot", "park", "destroy", "host_loss", "preempt")
_HEADS = ("a reboot", "a stop", "the end", "a dead host", "being taken back")
"""The same events, in the words of the comparison."""


def comparison(profiles: Sequence[Profile], say: Callable[[str], str] = str) -> str:
    """Return two Markdown tables: which path survives which event, and what bills after a stop and after the end.

    `say` puts a cell into the reader's language.
    """
    return f"{survival(profiles, say)}\n{_bills(profiles, say)}"


def survival(profiles: Sequence[Profile], say: Callable[[str], str] = str) -> str:
    """Return the table of which path survives which event.

    "?" means unknown, and "-" means that the platform has no such event. A number of days or hours means that a stop
    keeps the bytes only so long.
    """
    paths = [
        (profile.id, disk, *(_fate(profile, place, event) for event in _EVENTS))
        for profile in profiles
        for disk, place in disks(profile, say)
    ]
    return _table(("platform", "path", *_HEADS), paths, say)


def _bills(profiles: Sequence[Profile], say: Callable[[str], str]) -> str:
    short = {"unknown": "?", "n/a": "-"}
    rows = []
    for profile in profiles:
        facts = {fact.place: fact.value for fact in profile.facts}
        stop = (
            facts.get("verbs.park.bills", "?" if profile.park != "none" else "there is no stop"),
            f"{facts['verbs.park.gpu_guaranteed_after']}" if profile.park != "none" else "-",
        )
        no_credit = facts.get("billing.zero_balance", "n/a")
        rows.append(
            (
                profile.id,
                *stop,
                facts.get("billing.after_destroy") or "nothing",
                short.get(no_credit, no_credit),
            )
        )
    heads = (
        "platform",
        "a stopped box bills",
        "its GPU is kept",
        "may bill after the end",
        "with no credit",
    )
    return _table(heads, rows, say)


def disks(profile: Profile, say: Callable[[str], str] = str) -> list[tuple[str, Place]]:
    """Return each disk of the platform with the words that name it: its path, or its path and what it is."""
    places = [*profile.places, *([profile.volume] if profile.volume else [])]
    return [
        (f"`{place.path}`" + (f", {say(place.name)}" if place.name else ""), place)
        for place in places
    ]


def _fate(profile: Profile, place: Place, event: str) -> str:
    """Say in a word what becomes of a path. If a stop keeps it for some hours or days, say for how many."""
    fate = place.survives[event]
    ends_h = (
        profile.parked_for_h if event == "park" and place.survives["destroy"] != "yes" else None
    )
    if event == "park" and place.emptied_after_h is not None:
        return f"{place.emptied_after_h:g} h"
    if fate == "yes" and ends_h is not None:
        return f"{ends_h / 24:g} days"
    return {"unknown": "?", "n/a": "-"}.get(fate, fate)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], say: Callable[[str], str]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(
        f"| {' | '.join(say(cell).replace('|', '/') for cell in line)} |\n" for line in lines
    )
