"""A quotation is found again, or told, whatever its page has become."""

import pytest
from evals.book import at, profiles
from evals.sources.check import Quotation, check_page, quotations
from evals.sources.statements import statements

WAS = "Pods without a volume are terminated after 7 days."
PAGE = f"""---
title: Billing
---
import X from "x";

## When credit ends

Pods are stopped at \\$0. {WAS}

```sh
pods delete --after 7
```
"""


def verdict(page: str, says: str = WAS) -> str:
    seen = frozenset(found.text for found in statements(PAGE))
    (finding, *_) = check_page(page, [Quotation("a/b", "billing.mdx", ("x",), says, "")], seen)
    return finding.verdict


def changed(old: str, new: str) -> str:
    assert old in PAGE
    return PAGE.replace(old, new)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (PAGE, "stands"),
        (changed("Pods without", "**Pods** [without](/volumes)"), "stands"),
        (changed("Pods without a volume are", "All pods without a volume are"), "stands"),
        (changed("Pods without a volume are", "Instances without any volume are"), "reworded"),
        (changed("7 days.", "30 days."), "changed"),
        (changed("are terminated", "are never terminated"), "changed"),
        (changed("are terminated", "are kept"), "changed"),
        (changed(WAS, ""), "gone"),
        ("", "gone"),
    ],
)
def test_a_quotation_is_judged_by_what_its_page_says_now(page: str, expected: str) -> None:
    assert verdict(page) == expected


def test_what_is_new_beside_a_quotation_is_told_and_nothing_far_from_it() -> None:
    page = PAGE.replace(WAS, f"{WAS} Volumes are deleted after 90 days.")
    page += "\n## Cards\n\nA card is charged after 3 days.\n"
    quoted = [Quotation("a/b", "billing.mdx", ("x",), WAS, "")]

    told = check_page(page, quoted, frozenset(found.text for found in statements(PAGE)))

    assert [finding.now for finding in told if finding.wants_a_person] == [
        "volumes are deleted after 90 days"
    ]


def test_every_quotation_belongs_to_a_fact_of_a_profile() -> None:
    known = profiles()
    for quotation in quotations():
        for fact in quotation.facts:
            slug, _, place = fact.partition(".")
            assert fact == "page" or at(known[slug], place) is not None, quotation


def test_the_facts_of_a_profile_that_rest_on_published_pages_are_quoted() -> None:
    quoted = {fact for quotation in quotations() for fact in quotation.facts}
    for slug in ("runpod", "vastai"):
        for place in ("verbs.park.bills", "billing.zero_balance", "billing.rounding"):
            assert f"{slug}.{place}" in quoted
