"""How long a fact about a platform is believed. After that, no stop and no destroy relies on it.

Vendors change what a stop keeps, and do not tell us. So a fact that is too old counts as *unknown*. If it is unknown
whether a path survives, the path counts as lost. An unknown timer counts as no timer. A person who has read the
vendor's page again writes the day into `config.toml`. From that day on, the fact is believed again.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import date
from typing import Final

from gpu_tenant.domain.model import Profile

READ_AGAIN: Final = "read_again"
"""The table of `config.toml` with the day on which a person last read each platform's pages, by the platform's slug."""

LIVES_DAYS: Final[Mapping[str, int]] = {
    r"paths\[.*\]\.survives\.(park|destroy)": 365,  # what a stop keeps, and what an end keeps
    r"verbs\.park\.effect": 365,  # whether a stop keeps anything
    r"deadman\.provider_timer": 365,  # whether the platform's own timer ends the bill
    r"gone\.(list_lag_s|confirm_s)": 365,  # how soon the platform's list is believed
}
"""For how many days a fact is believed, by a pattern for its place in a profile. Other facts do not matter here."""

_SLOWEST_LIST_S, _SLOWEST_PROOF_S = 600.0, 60.0
"""Assumed if the facts about a platform's list are too old, in seconds: its delay, and the wait before a proof."""


def as_believed(profile: Profile, today: date, read_again: date | None = None) -> Profile:
    """Return the profile with each fact that is too old replaced by unknown. `outlived` names these facts.

    `read_again` is the day on which a person last compared the profile with the vendor's pages. A day in the future is
    ignored. Facts about this computer, and about the owner's own machines, do not age.
    """
    if profile.kind == "own":
        return profile
    read = read_again if read_again is not None and read_again <= today else date.min
    old = tuple(_outlived_places(profile, today, read))
    if not old:
        return profile
    places = tuple(
        place.model_copy(
            update={
                "survives": {
                    event: "unknown"
                    if fate == "yes" and f"paths[{place.path}].survives.{event}" in old
                    else fate
                    for event, fate in place.survives.items()
                }
            }
        )
        for place in profile.places
    )
    doubted = (place.path for place in places if place.survives.get("destroy") == "unknown")
    return profile.model_copy(
        update={
            "places": places,
            "accounted_paths": tuple(dict.fromkeys((*profile.accounted_paths, *doubted))),
            "provider_timer": "none" if "deadman.provider_timer" in old else profile.provider_timer,
            "list_lag_s": max(profile.list_lag_s, _SLOWEST_LIST_S)
            if "gone.list_lag_s" in old
            else profile.list_lag_s,
            "confirm_s": max(profile.confirm_s, _SLOWEST_PROOF_S)
            if "gone.confirm_s" in old
            else profile.confirm_s,
            "outlived": old,
        }
    )


def stop_is_in_doubt(profile: Profile) -> bool:
    """Whether the facts about what a stop keeps at that platform are too old."""
    return any(
        place == "verbs.park.effect" or place.endswith(".survives.park")
        for place in profile.outlived
    )


def asks_to_read_again(profile: Profile) -> tuple[str, str]:
    """Say which facts are too old, and what a person does about that."""
    n = len(profile.outlived)
    words = (
        f"{n} facts about {profile.title} were checked so long ago ({profile.checked_on}) that no stop and no "
        f"teardown relies on them: {', '.join(profile.outlived[:3])}{(', …' if n > 3 else '')}"
    )
    remedy = (
        "a person reads the platform's own page again; if the facts still stand, they write "
        f"`{profile.id} = YYYY-MM-DD` (that day) below `[{READ_AGAIN}]` in config.toml"
    )
    return words, remedy


def _outlived_places(profile: Profile, today: date, read: date) -> Iterator[str]:
    """Yield the places of the facts that are too old, in the order of `LIVES_DAYS`.

    A fact without a date of its own has the date of the profile.
    """
    known = dict.fromkeys(
        ("verbs.park.effect", "deadman.provider_timer", "gone.list_lag_s", "gone.confirm_s"),
        profile.checked_on,
    )
    for place in profile.places:
        for event in place.survives:
            known[f"paths[{place.path}].survives.{event}"] = profile.checked_on
    known |= {fact.place: fact.checked_on for fact in profile.facts}
    for kind, days in LIVES_DAYS.items():
        for where, day in known.items():
            if re.fullmatch(kind, where) and (today - max(day, read)).days > days:
                yield where
