"""An absence counts only where the box was rented, and an owner can say that elsewhere is the same."""

import pytest
from arranged import NOON, HandClock, context_of, intended, profile
from tiny import TinyProvider

from gpu_tenant.domain.model import Lease, LeaseId, LeaseState
from gpu_tenant.domain.ports import Asking
from gpu_tenant.leases.account_check import remember, same_account
from gpu_tenant.leases.settle import settle
from gpu_tenant.ledger import Ledger

LEASE = LeaseId("tiny-abcd")
TINY = profile("tiny", list_lag_s=60)


class Asked(TinyProvider):
    """A provider that is asked somewhere, with a key, and may say whose that is."""

    where, key = "https://api.tiny", "first"
    name: str | None = "me"

    def asked_with(self, salt: str) -> Asking:
        return Asking(where=self.where, key=self.key)

    async def account(self) -> str | None:
        return self.name


@pytest.mark.parametrize(
    ("where", "key", "name", "is_lost"),
    [
        ("https://api.tiny", "first", "me", True),
        ("https://api.tiny", "second", "me", True),
        ("https://api.tiny", "second", "you", False),
        ("https://api.tiny", "second", None, False),
        ("https://elsewhere", "first", "me", False),
    ],
)
async def test_a_lease_is_lost_only_by_the_list_that_its_box_was_rented_from(
    ledger: Ledger, clock: HandClock, where: str, key: str, name: str | None, is_lost: bool
) -> None:
    tiny = Asked(clock)
    intent = ledger.intend(
        lease_id=LEASE,
        provider="tiny",
        terms=intended(ledger).terms,
        address=None,
        price_usd_h=None,
        at=NOON,
    )
    await remember(context_of(ledger, TINY, tiny), intent)
    tiny.where, tiny.key, tiny.name = where, key, name

    after, told = await looked(intent, tiny, ledger, clock)

    assert (after.state is LeaseState.VOID) == is_lost
    assert is_lost or "proves nothing" in told
    assert is_lost or ledger.absences(LEASE) == []
    if not is_lost:
        assert same_account(context_of(ledger, TINY, tiny), "tiny") == 1
        after, _ = await looked(after, tiny, ledger, clock)
        assert after.state is LeaseState.VOID


async def looked(lease: Lease, tiny: Asked, ledger: Ledger, clock: HandClock) -> tuple[Lease, str]:
    told = ""
    for _ in range(4):
        clock.advance(300)
        lease, words = await settle(context_of(ledger, TINY, tiny), lease)
        told += words or ""
    return lease, told
