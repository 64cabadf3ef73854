"""A box is counted from when it was made, by a word that can be true, or else from when it was asked for."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from arranged import NOON

from gpu_tenant.domain.billing_start import birth
from gpu_tenant.domain.model import Box, BoxId, BoxState
from gpu_tenant.domain.timestamps import instant

LATE = NOON + timedelta(hours=5)
LAG_S = 120


def made(at: datetime | None) -> Box:
    return Box(
        provider="vastai",
        id=BoxId("7"),
        mark=None,
        state=BoxState.READY,
        address=None,
        price_usd_h=Decimal(1),
        created_at=at,
    )


@pytest.mark.parametrize(
    ("told", "counted", "is_odd"),
    [
        (NOON + timedelta(seconds=3), NOON + timedelta(seconds=3), False),
        (NOON - timedelta(seconds=1), NOON, False),  # whole seconds
        (LATE + timedelta(seconds=30), LATE, False),  # its clock is a little ahead
        (None, NOON, False),
        (LATE + timedelta(hours=1), NOON, True),
        (NOON - timedelta(days=1), NOON, True),
    ],
)
def test_a_creation_time_is_believed_where_it_can_be_true(
    told: datetime | None, counted: datetime, is_odd: bool
) -> None:
    found = birth(made(told), asked_at=NOON, now=LATE, list_lag_s=LAG_S)

    assert found.at == counted
    assert (found.words is not None) == is_odd


@pytest.mark.parametrize(
    ("told", "at"),
    [
        ("2026-11-20T12:00:00Z", NOON),
        ("2026-11-20T20:00:00+08:00", NOON),
        ("2026-11-20T04:00:00.000-08:00", NOON),
        (NOON.timestamp(), NOON),
        ("2026-11-20T12:00:00", None),  # of no known zone
        ("0001-01-01T00:00:00Z", None),
        ("yesterday", None),
        (True, None),
        (None, None),
        ({}, None),
        (1e300, None),
        (-1e18, None),
        (float("nan"), None),
    ],
)
def test_what_a_provider_tells_of_a_moment_is_that_moment_or_none(
    told: object, at: datetime | None
) -> None:
    found = instant(told)

    assert found == at
    assert found is None or found.tzinfo is UTC
