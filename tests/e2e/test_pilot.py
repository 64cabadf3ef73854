"""A pilot rents within its sum, compares all that it sees, ends the box, and tells it without a name."""

import json
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path

import pytest
from e2e.renting import Tenant, tenant_at

from gpu_tenant.errands.answers import RentalPlan
from gpu_tenant.errands.pilot import Pilot, PilotCheck, PilotReport, proved_facts
from gpu_tenant.faces.cli.pilot import as_markdown
from gpu_tenant.providers.drift import without_names
from gpu_tenant.providers.open_questions import questions_of
from gpu_tenant.service import Tenancy

MOST = "1.00"


@pytest.fixture
async def renting(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tenant]:
    async with tenant_at(getattr(request, "param", "runpod"), tmp_path, time="runs") as tenant:
        yield tenant


def a_pilot(tenancy: Tenancy, provider: str, most: str = MOST, agrees: str | None = "yes") -> Pilot:
    async def agree(plan: RentalPlan) -> str | None:
        return agrees

    return Pilot(
        tenancy,
        provider,
        Decimal(most),
        hear=print,
        agree=agree,
        agrees_ahead="yes" if agrees == "yes" else "",
        stage="rehearsed",
    )


@pytest.mark.parametrize(
    "renting", ["runpod", "vastai", "lambda_cloud", "digitalocean", "autodl", "gcp"], indirect=True
)
async def test_where_all_is_as_believed_a_pilot_finds_no_difference_and_tells_no_name(
    renting: Tenant,
) -> None:
    report: PilotReport = await a_pilot(renting.tenancy, renting.slug).go()

    assert report.differs == ()
    assert report.drift == ()
    assert report.ended == "gone"
    assert renting.creates() == 1
    assert Decimal(renting.meter["billed_usd"]) <= Decimal(MOST)
    renting.assert_nothing_bills()
    (lease,) = renting.tenancy.ledger.leases("all")
    shown = as_markdown(report) + report.model_dump_json()
    named = (str(lease.box_id), str(lease.mark), str(renting.home.root), "rehearsal-key")
    assert [name for name in named if name in shown] == []
    asked = {question.id for question in questions_of(renting.slug)}
    assert asked == {a.id for a in report.answers} | set(report.open_questions)
    assert proved_facts(report) == (), "a rehearsal proves nothing"


async def test_nothing_is_rented_before_somebody_agrees(renting: Tenant) -> None:
    report = await a_pilot(renting.tenancy, renting.slug, agrees=None).go()

    assert report.ended == "nothing was rented"
    assert report.differs == ()
    assert renting.creates() == 0


async def test_where_nothing_is_within_the_sum_nothing_is_rented_and_the_sum_is_named(
    renting: Tenant,
) -> None:
    report = await a_pilot(renting.tenancy, renting.slug, most="0.01").go()

    assert report.ended == "nothing was rented"
    (check,) = report.differs
    assert check.seen.startswith("REFUSED: ")
    assert renting.creates() == 0


def test_on_a_real_account_what_agrees_proves_facts_and_what_differs_does_not() -> None:
    report = PilotReport.model_validate(
        {
            "provider": "runpod",
            "title": "RunPod",
            "version": "1",
            "at": "2026-11-29T00:00:00+00:00",
            "rehearsed": False,
            "most_usd": "1",
            "cost_usd": None,
            "billed_usd": None,
            "ended": "gone",
            "checks": [
                PilotCheck(name=name, verdict=verdict, believed="b", seen="s", fact=fact)
                for name, verdict, fact in (
                    ("start", "agrees", "boot.timeout_s"),
                    ("park", "agrees", "verbs.park"),
                    ("park again", "differs", "verbs.park"),
                )
            ],
            "drift": [],
            "answers": [],
            "open_questions": ["R1"],
            "next": "",
        }
    )

    assert proved_facts(report) == (("boot.timeout_s", "s"),)
    assert "`boot.timeout_s`: s (conf: live, on: 2026-11-29)" in as_markdown(report)
    assert "Counted: unknown." in as_markdown(report)
    assert json.loads(report.model_dump_json())["ended"] == "gone"


def test_what_could_name_somebody_is_left_out_of_a_sentence() -> None:
    said = without_names(
        "REJECTED: box 7qk2abcd93x of alice@example.com at 10.0.0.7:22, key in /home/alice/key, 0.76 USD/h"
    )

    assert not [word for word in ("7qk2abcd93x", "alice", "10.0.0.7") if word in said]
    assert "0.76 USD/h" in said
