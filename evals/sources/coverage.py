"""Which facts of money or survival have the sentence that they rest on, and for which nobody has it at hand."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, cast

from evals.book import at, named, profiles, texts
from evals.sources.check import quotations
from gpu_tenant.providers.profile_facts import Leaf

PAGES: Final = Path(__file__).with_name("pages.yaml")
_RESTS_ON_A_VENDOR = re.compile(
    r"billing\.(running|after_destroy|zero_balance|rounding)"
    r"|verbs\.(park\.(effect|bills|gpu_guaranteed_after)|destroy\.effect)"
    r"|(paths\[.*\]|volume)\.survives\.\w+|clocks\[.*\]\.(after_h|effect)"
    r"|interrupt\.(how|notice_s|resumes_by_itself)|deadman\.(stops_the_meter|provider_timer)"
)
_NOTHING = ("unknown", "n/a", "none", "")


def quoted_facts() -> frozenset[str]:
    """Return the facts that a sentence of a vendor stands beside, in either book."""
    pages = cast("list[Mapping[str, str]]", texts(PAGES)["quoted"])
    told = [fact for entry in pages for fact in entry["facts"].split()]
    return frozenset((*told, *(fact for found in quotations() for fact in found.facts)))


def without_a_sentence() -> dict[str, list[str]]:
    """Return the facts of money or survival that no sentence stands beside, by platform.

    What is unknown, or does not exist there, rests on nothing. What we know of our own machines rests on us.
    """
    quoted, missing = quoted_facts(), {}
    for slug, facts in sorted(profiles().items()):
        if facts["kind"] == "own":
            continue
        missing[slug] = [
            place
            for place in _places(facts)
            if _RESTS_ON_A_VENDOR.fullmatch(place)
            and str(at(facts, place)) not in _NOTHING
            and f"{slug}.{place}" not in quoted
        ]
    return missing


def listed() -> dict[str, list[str]]:
    """Return what the book says has no source at hand."""
    said = cast("Mapping[str, str]", texts(PAGES)["no_source_at_hand"])
    return {slug: places.split() for slug, places in said.items()}


def _places(facts: Leaf, where: str = "") -> Iterator[str]:
    """Yield the place of every fact below this one, as a pointer. An entry of a list is named by its path or id."""
    if isinstance(facts, Mapping):
        for key, value in facts.items():
            yield from _places(value, f"{where}.{key}" if where else key)
    elif isinstance(facts, list) and facts and isinstance(facts[0], Mapping):
        for entry in facts:
            yield from _places(entry, f"{where}[{named(entry)}]")
    elif facts != []:
        yield where
