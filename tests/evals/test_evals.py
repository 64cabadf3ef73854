"""The evaluation's sets are whole, its answers are there, and a wrong fact is noticed."""

from collections import Counter

import pytest
from evals import answers, mutation, triggers
from evals.book import agrees, at, profiles, steps
from evals.report import Report

from gpu_tenant.providers.profile_facts import Leaf

LISTED = 40


@pytest.fixture(scope="module")
def answered() -> Report:
    return answers.run()


@pytest.fixture(scope="module")
def mutated() -> Report:
    return mutation.run()


def only(report: Report, *words: str) -> str:
    """The problems that hold one of these words, a line each."""
    found = [problem for problem in report.problems if any(word in problem for word in words)]
    return "\n".join(found[:LISTED])


def value(report: Report, name: str) -> float:
    return next(figure.value for figure in report.figures if figure.name == name)


def test_there_are_queries_enough_a_third_of_them_near_misses_in_both_languages() -> None:
    asked = triggers.queries()

    assert len(asked) >= 120
    assert sum(not query.wanted for query in asked) * 3 >= len(asked)
    assert sum(query.chinese for query in asked) * 3 >= len(asked)


def test_no_query_is_asked_twice() -> None:
    asked = Counter(" ".join(query.text.lower().split()) for query in triggers.queries())

    assert [text for text, times in asked.items() if times > 1] == []


def test_the_skill_stands_among_thirty_others_with_a_description_of_its_own() -> None:
    described = triggers.skills()

    assert len(described) > 30
    assert len(set(described.values())) == len(described)
    assert max(map(len, described.values())) <= 1024


def test_a_query_triggers_when_ours_ranks_first_and_near_enough() -> None:
    query = triggers.Query("is my pod still billing", wanted=True, chinese=False, held_out=False)
    scored = triggers.Scored(query, meaning=[0.4, 0.5], words=[0.3, 0.1])

    assert not scored.triggers(0.0, 0.0)
    assert scored.triggers(1.0, 0.0)
    assert not scored.triggers(1.0, 0.8)


def test_the_threshold_is_the_middle_of_those_that_tell_best() -> None:
    wanted, other = (
        triggers.Query(w, w == "yes", chinese=False, held_out=True) for w in ("yes", "no")
    )
    scored = [triggers.Scored(wanted, [0.8], [0]), triggers.Scored(other, [0.4], [0])]

    weight, threshold = triggers.chosen(scored)

    assert triggers.rate(scored, weight, threshold).f1 == 1
    assert threshold == pytest.approx(0.61)


def test_there_are_scenarios_enough(answered: Report) -> None:
    assert value(answered, "scenarios") >= 80


def test_every_platform_is_asked_about() -> None:
    files = {f for s in answers.scenarios() for fact in s.facts for f in fact.files}

    assert [slug for slug in profiles() if f"profiles/{slug}.md" not in files] == []


def test_the_skill_holds_every_fact_that_a_right_answer_rests_on(answered: Report) -> None:
    assert value(answered, "facts present") == 1, only(answered, ": ")


def test_what_an_answer_needs_is_two_links_from_the_hub_and_no_page_is_lost(
    answered: Report,
) -> None:
    assert only(answered, "links from", "no link") == ""


def test_the_two_books_of_facts_agree(mutated: Report) -> None:
    assert only(mutated, "evals/facts.yaml", "does not exist") == ""


def test_no_profile_contradicts_itself(mutated: Report) -> None:
    assert value(mutated, "rules that a profile breaks") == 0, only(mutated, "profiles/")


def test_every_wrong_fact_is_noticed(mutated: Report) -> None:
    assert only(mutated, "nothing notices") == ""


def test_every_platform_and_hundreds_of_facts_are_made_wrong(mutated: Report) -> None:
    assert value(mutated, "platforms") == len(profiles())
    assert value(mutated, "mutants") > 600


def test_a_pointer_leads_into_lists_by_path_and_by_id() -> None:
    facts: Leaf = {"paths": [{"path": "/a.b", "survives": {"park": "no"}}], "clocks": [{"id": "x"}]}

    assert at(facts, "paths[/a.b].survives.park") == "no"
    assert at(facts, "clocks[x].id") == "x"
    assert at(facts, "clocks[y].id") is None
    with pytest.raises(ValueError, match="not a pointer"):
        steps("paths[")


@pytest.mark.parametrize(
    ("stated", "found", "same"),
    [
        ("yes", "yes", True),
        ("yes", "unknown", False),
        ("48", 48.0, True),
        ("0", 48.0, False),
        (["gpu", "disk"], ["disk", "gpu"], True),
        (["gpu"], ["gpu", "disk"], False),
        ({"says": ["48 h"]}, "deleted 48 h later", True),
        ({"says": ["48 h"]}, "deleted 96 h later", False),
        ("absent", None, True),
        ("absent", "none", False),
    ],
)
def test_a_fact_agrees_with_its_statement_or_does_not(
    stated: object, found: object, same: bool
) -> None:
    assert agrees(stated, found) is same  # type: ignore[arg-type]
