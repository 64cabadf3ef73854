"""A quotation is found again, or told, whatever its page has become."""

import pytest
from evals.book import at, profiles
from evals.sources.check import Quotation, check_page, quotations
from evals.sources.coverage import listed, quoted_facts, without_a_sentence
from evals.sources.statements import likeness, matters, statements

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


def test_a_fact_of_money_or_survival_has_its_sentence_or_is_listed_as_having_none() -> None:
    assert without_a_sentence() == listed()


def test_a_sentence_of_a_page_belongs_to_a_fact_of_a_profile() -> None:
    known = profiles()
    for fact in quoted_facts() - {"page"}:
        slug, _, place = fact.partition(".")
        assert at(known[slug], place) is not None, fact


def test_a_price_of_storage_is_told_wherever_it_stands() -> None:
    page = PAGE + "\n## Elsewhere\n\nA faster volume costs \\$0.14 per GB.\n"
    quoted = [Quotation("a/b", "billing.mdx", ("x",), WAS, "")]

    told = check_page(page, quoted, frozenset(found.text for found in statements(PAGE)))

    assert [found.now for found in told if found.wants_a_person] == [
        "a faster volume costs $0.14 per gb"
    ]


def test_chinese_is_compared_sign_by_sign_and_by_what_its_words_mean() -> None:
    was, now = "停机后数据保留 30 天", "停机后数据保留 7 天"

    assert [found.text for found in statements(f"{was}。{now}。")] == [was, now]
    assert likeness(was, now) > 0.8
    assert matters(was) != matters(now)
    assert matters("数据会保留") != matters("数据不保留")


def test_the_facts_of_a_profile_that_rest_on_published_pages_are_quoted() -> None:
    quoted = {fact for quotation in quotations() for fact in quotation.facts}
    for slug in ("runpod", "vastai"):
        for place in ("verbs.park.bills", "billing.zero_balance", "billing.rounding"):
            assert f"{slug}.{place}" in quoted
