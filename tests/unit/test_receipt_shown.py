"""A receipt at a terminal: one sum, and no list that is cut without saying so."""

from decimal import Decimal

import click
import pytest
from arranged import NOON

from gpu_tenant.domain.model import BoxId, LeaseId, LeaseState
from gpu_tenant.domain.receipt import Receipt
from gpu_tenant.faces.cli import output
from gpu_tenant.leases.cards import TornDown


def ended(**differs: object) -> TornDown:
    receipt = Receipt.model_validate(
        {
            "lease_id": LeaseId("tiny-abcd"),
            "provider": "tiny",
            "box_id": BoxId("1"),
            "ground": "verified",
            "active_at": NOON,
            "destroy_asked_at": NOON,
            "first_absent_at": NOON,
            "second_absent_at": NOON,
            "lived_s": 60,
            "cost_usd": Decimal("0.0068"),
            "billed_usd": Decimal("0.0080"),
            "counts": "compute and disk by its provider's rate",
            "kept_files": 16,
            "kept_bytes": 9,
            "kept_in": "/kept",
            "formats": {"pickle": 15, "json": 1},
            "not_proved": [],
            "warnings": [],
            "given_up": [],
            "left_behind": None,
            **differs,
        }
    )
    return TornDown(lease="tiny-abcd", state=LeaseState.GONE, receipt=receipt)


def test_the_sum_is_never_below_the_bill_and_is_said_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.receipt(ended())

    said = capsys.readouterr().out
    assert "  cost  0.0080 USD billed so far; by our count 0.0068 USD\n" in said
    assert said.count("0.0068") == said.count("0.0080") == 1
    assert "; read whole: 1 json, 15 pickle\n" in said


def test_a_list_that_is_cut_says_how_much_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    output.receipt(ended(warnings=[f"sentence {n}" for n in range(8)]))

    lines = [x for x in capsys.readouterr().out.splitlines() if "warning" in x]
    assert len(lines) == 6
    assert lines[-1].endswith("and 3 more: `gpu-tenant report tiny-abcd`")


def test_a_receipt_names_nothing_that_cannot_be_mended_any_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output.receipt(ended(not_proved=["values: only their hash covers them"]))

    said = capsys.readouterr().out
    assert "not proved" not in said
    assert "only their hash" not in said
    assert "gpu-tenant report tiny-abcd" in said
    assert len(said.splitlines()) == 4


def test_verbose_shows_when_the_box_was_seen_gone(capsys: pytest.CaptureFixture[str]) -> None:
    with click.Context(click.Command("teardown")):
        output.note_verbose(True)
        output.receipt(ended())

    assert "  seen gone  twice, last at " in capsys.readouterr().out
