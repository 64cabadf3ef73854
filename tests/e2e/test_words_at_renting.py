"""What a person reads at a terminal around renting is short: the question, and what was rented."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from e2e.rehearsal import Rehearsal
from terminal import at_a_terminal

pytestmark = pytest.mark.timeout(300)

COLUMNS = 100
"""As wide as the tests' terminal is."""
TITLES = ["ends", "budget", "watched", "keeps", "risk"]


def environ(stage: Rehearsal) -> dict[str, str]:
    plain = {n: v for n, v in os.environ.items() if not n.startswith(("GPU_TENANT", "VAST"))}
    return {**plain, "HOME": str(stage.directory), **stage.environment}


def test_the_question_before_renting_is_short_and_fits_the_terminal_and_has_more_on_request(
    rehearse: Callable[..., Rehearsal], tmp_path: Path
) -> None:
    stage, tree = rehearse(), tmp_path / "tree"
    tree.mkdir()
    (tree / "train.sh").write_text("true\n", encoding="utf-8")
    asked = ("run", "--dir", str(tree), "--smoke", "none", "--on", "vastai", "--max-usd", "50")

    with at_a_terminal(
        *asked, "--artifact", "out/", "--", "sh", "train.sh", env=environ(stage)
    ) as terminal:
        question = terminal.read_until("Rent it?").replace("\r\n", "\n")
        question = click.unstyle(question)
        terminal.type("more")
        terminal.read_until("no smoke test was run\r\n")
        terminal.type("perhaps")
        terminal.read_until("'perhaps' is not one of yes, no, more")
        terminal.type("")  # whoever types only Enter rents nothing
        terminal.ended()
    assert stage.ask("meter")["usd_h"] == "0.000000"
    shown = click.unstyle(terminal.shown.replace("\r\n", "\n"))

    short = question.partition(" is chosen\n")[2].splitlines()[:-1]
    assert " USD/h for 1 h" in short[0]
    assert "at most " in short[0]
    assert " plus traffic by " in " ".join(short[:2]), (
        "Vast.ai charges for bytes, and that sum is not known"
    )
    titles = [line[2:].split("  ")[0] for line in short[1:] if line[2] != " " and line[0] == " "]
    assert titles == TITLES
    assert "the most that it costs" not in question
    assert shown.count(short[0]) == 1, "what was refused is not shown again"
    assert [line for line in shown.splitlines() if len(line) > COLUMNS] == []
    assert "if this computer dies: " in shown.removeprefix(question)


def test_what_was_rented_is_shown_in_brief_and_one_command_has_all_terms(
    rehearse: Callable[..., Rehearsal],
) -> None:
    stage = rehearse()
    quote = json.loads(stage.does("offers", "--json"))["cheapest"]

    words = stage.does("provision", "--quote", quote, "--smoke", "none", "--budget-usd", "40")
    lease = json.loads(stage.does("leases", "--json"))["leases"][0]["lease"]
    terms = stage.does("terms", lease)

    titles = [line[2:].split("  ")[0] for line in words.splitlines()[1:]]
    assert titles.count("all terms") == titles.count("ends") == titles.count("watched") == 1
    assert len(titles) <= 7, words
    assert "the most that it costs" not in words
    assert "the most that it costs" in terms
