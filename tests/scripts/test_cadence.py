"""The saving interval is Young's, in whole steps, and is not given for times that it cannot hold for."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CADENCE = Path(__file__).parents[2] / "scripts" / "cadence.py"
Reply = dict[str, Any]


def cadence(*words: str) -> Reply:
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(CADENCE), *words], capture_output=True, check=False
    )
    reply: Reply = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == (0 if reply["ok"] else 2 if reply["code"] == "BAD_REQUEST" else 1)
    return reply


def test_the_interval_is_rounded_down_to_a_step() -> None:
    reply = cadence("--save-s", "40", "--mtbf-h", "6", "--step-s", "1.5")

    best = math.sqrt(2 * 6 * 3600 * 40)
    assert best - 1.5 < reply["interval_s"] <= best
    assert reply["interval_steps"] * 1.5 == reply["interval_s"]
    assert reply["valid"]


def test_no_other_interval_loses_less() -> None:
    reply = cadence("--save-s", "40", "--mtbf-h", "20")

    def loss(interval_s: float) -> float:
        return 40 / (interval_s + 40) + interval_s / (2 * 20 * 3600)

    best = loss(reply["interval_s"])
    assert reply["expected_loss_fraction"] == pytest.approx(best, abs=1e-4)
    assert all(best < loss(reply["interval_s"] * f) for f in (0.5, 0.8, 1.25, 2))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--save-s", "40", "--mtbf-h", "0.1"), "not short"),
        (("--save-s", "1", "--mtbf-h", "1", "--step-s", "9000"), "one step"),
    ],
)
def test_where_the_formula_does_not_hold_it_says_so(words: tuple[str, ...], told: str) -> None:
    reply = cadence(*words)

    assert (reply["valid"], reply["code"]) == (False, "NOT_VALID")
    assert told in reply["message"]


@pytest.mark.parametrize(("grace_s", "told"), [("30", "too short"), ("60", "long enough")])
def test_a_notice_is_set_against_a_save(grace_s: str, told: str) -> None:
    assert told in cadence("--save-s", "40", "--mtbf-h", "6", "--grace-s", grace_s)["words"]


@pytest.mark.parametrize("number", ["0", "-1", "nan", "inf", "", "forty", "1e300", "1e-300"])
def test_what_is_no_time_is_refused(number: str) -> None:
    reply = cadence("--save-s=" + number, "--mtbf-h=1")

    assert (reply["code"], "--save-s" in reply["message"]) == ("BAD_REQUEST", True)
