"""What no profile may say at once, whatever the platform."""

import re
from collections.abc import Callable, Iterator
from typing import Final

from evals.book import at
from gpu_tenant.providers.profile_facts import Facts


def broken(facts: Facts) -> list[str]:
    """Every rule that these facts break, in words."""
    return [said for rule in RULES for said in rule(facts)]


def _survival(facts: Facts, what: str) -> list[str]:
    entries = facts["paths"]
    assert isinstance(entries, list)
    return [str(at(entry, f"survives.{what}")) for entry in entries]


def _listed(facts: Facts, pointer: str) -> list[str]:
    found = at(facts, pointer)
    return [str(entry) for entry in found] if isinstance(found, list) else []


def _park(facts: Facts) -> Iterator[str]:
    effect, kept = at(facts, "verbs.park.effect"), _survival(facts, "park")
    if effect == "keeps" and "yes" not in kept:
        yield "park keeps, and no path survives it"
    if effect == "keeps" and "no" in kept:
        yield "park keeps every disk, and a path is lost by it"
    if effect == "wipes" and "no" not in kept:
        yield "park wipes, and no path is lost by it"
    if effect in ("keeps", "wipes") and "n/a" in kept:
        yield "there is a park, and a path to which it does not apply"
    if effect == "none" and set(kept) & {"yes", "no"}:
        yield "there is no park, and it is said what survives it"
    if effect == "none" and at(facts, "verbs.park.gpu_guaranteed_after") is not None:
        yield "there is no park, and it is said what resume gets"


def _destroy(facts: Facts) -> Iterator[str]:
    effect, kept = at(facts, "verbs.destroy.effect"), _survival(facts, "destroy")
    if effect == "deletes" and "no" not in kept:
        yield "destroy deletes, and no path is lost by it"
    if effect == "hands_back" and "no" in kept:
        yield "destroy hands back, and a path is lost by it"
    if set(kept) == {"yes"}:
        yield "everything survives a destroy"
    how = at(facts, "verbs.destroy.how")
    if how == "console" and at(facts, "console.destroy") is None:
        yield "a person destroys it, and it is not said how"
    # A cluster knows its people by their own login there.
    keyless = at(facts, "kind") in ("scheduler", "kubernetes")
    if how == "api" and not keyless and at(facts, "credential") is None:
        yield "the program destroys it, and there is no credential"


def _order(facts: Facts) -> Iterator[str]:
    for survives, lost in (("destroy", "park"), ("destroy", "preempt"), ("host_loss", "reboot")):
        both = zip(_survival(facts, survives), _survival(facts, lost), strict=True)
        if ("yes", "no") in both:
            yield f"a path survives {survives} and not {lost}"


def _interrupt(facts: Facts) -> Iterator[str]:
    taken = _survival(facts, "preempt")
    if at(facts, "interrupt") is None and set(taken) & {"yes", "no"}:
        yield "the platform takes no box back, and it is said what survives that"
    if at(facts, "interrupt") is not None and set(taken) == {"n/a"}:
        yield "the platform takes boxes back, and it applies to no path"


def _meter(facts: Facts) -> Iterator[str]:
    sentence = str(at(facts, "deadman.stops_the_meter"))
    timer, in_box = at(facts, "deadman.provider_timer"), at(facts, "deadman.in_box")
    own_timer = re.search(r"(own|its|auto\S*) (timer|shutdown) (stops|deletes|ends)", sentence)
    if timer in ("stop", "delete") and re.match(r"nothing\b", sentence):
        yield "the provider has a timer, and nothing stops the meter"
    if timer == "none" and own_timer:
        yield "the provider has no timer, and one stops the meter"
    if in_box == "api_key" and "key" not in sentence:
        yield "the box has a key that ends the bill, and it is not said"
    if in_box == "none" and "own key" in sentence:
        yield "the box has no key, and its own key ends the bill"


def _money(facts: Facts) -> Iterator[str]:
    running, own = _listed(facts, "billing.running"), at(facts, "kind") == "own"
    if not own and at(facts, "kind") not in ("notebook", "scheduler") and "gpu" not in running:
        yield "it is rented, and the GPU is not billed"
    if own and running != ["electricity"]:
        yield "it is nobody's to rent, and bills more than its electricity"
    if not own and "electricity" in running:
        yield "it is rented, and its electricity is billed"


def _gone(facts: Facts) -> Iterator[str]:
    lag, confirm = at(facts, "gone.list_lag_s"), at(facts, "gone.confirm_s")
    api = at(facts, "verbs.destroy.how") == "api"
    if api and not (lag and confirm):
        yield "the program destroys it, and one look proves it gone"
    if not api and (lag or confirm) and at(facts, "lease") == "adopted":
        yield "no list tells of it, and a list has a lag"
    if isinstance(lag, int | float) and isinstance(confirm, int | float) and confirm > lag:
        yield "the second look comes later than the provider's list may lag"


RULES: Final[tuple[Callable[[Facts], Iterator[str]], ...]] = (
    _park,
    _destroy,
    _order,
    _interrupt,
    _meter,
    _money,
    _gone,
)
