"""A box of the account that is under no lease, stopped at its owner's word: whose it is, and what is kept."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from arranged import HandClock, profile
from tiny import TinyParking, no_answer

from gpu_tenant.domain.errors import BadRequest, BoxUnreachable, ProviderSilent, Refused
from gpu_tenant.domain.model import BoxState, Lease, Place, Profile
from gpu_tenant.domain.ports import Transport
from gpu_tenant.files.state_dir import Home
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.watch_actions import park_stray
from gpu_tenant.ledger import Ledger
from gpu_tenant.service import Tenancy

KEEPS = profile("tiny").model_copy(update={"park": "keeps"})
UNSURE = Place(path="~", survives={"park": "unknown"})


class Account:
    """A tenancy at a provider that can park; no box of it is ever reached."""

    def __init__(self, root: Path, of: Profile = KEEPS) -> None:
        self.clock = HandClock()
        self.tiny = TinyParking(self.clock)
        self.tenancy = Tenancy(
            Context(
                home=Home(root),
                ledger=Ledger(root / "ledger", self.clock),
                profiles={"tiny": of},
                connectors={"tiny": self.tiny},
                public_key=str,
                environ={},
                open_transport=self._nobody_there,
                introduce=self._nobody_asks,
            )
        )

    @staticmethod
    def _nobody_there(lease: Lease) -> Transport:
        raise BoxUnreachable("nobody is there", remedy="look again")

    @staticmethod
    async def _nobody_asks(lease: Lease, password: str) -> None:
        raise AssertionError


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    made = Account(tmp_path)
    yield made
    made.tenancy.ledger.close()


async def test_it_is_stopped_though_it_lets_nobody_in_and_its_disk_is_kept(
    account: Account,
) -> None:
    box = account.tiny.rent("somebody-else")

    card = await park_stray(account.tenancy.context, "tiny", box.id)

    assert card.phase == "parked"
    assert account.tiny.boxes[box.id].state is BoxState.PARKED
    assert (
        account.tenancy.ledger.lease(card.lease).touched_at is not None
    )  # so it is never given back unproved


async def test_another_gpu_tenant_s_box_is_not_stopped(account: Account) -> None:
    box = account.tiny.rent("gpu-tenant:0123ab:tiny-abcd")

    with pytest.raises(Refused, match="belongs to another gpu-tenant"):
        await park_stray(account.tenancy.context, "tiny", box.id)

    assert account.tiny.boxes[box.id].state is BoxState.READY
    assert account.tenancy.ledger.leases() == []


@pytest.mark.parametrize("more", [{"park": "none"}, {"park": "wipes"}, {"places": (UNSURE,)}])
async def test_where_a_stop_may_not_keep_the_disk_nothing_is_changed(
    tmp_path: Path, more: dict[str, object]
) -> None:
    account = Account(tmp_path, KEEPS.model_copy(update=more))
    box = account.tiny.rent(None)

    with pytest.raises(Refused, match="known to keep all of a disk"):
        await park_stray(account.tenancy.context, "tiny", box.id)

    assert account.tiny.boxes[box.id].state is BoxState.READY
    assert account.tenancy.ledger.leases() == []
    account.tenancy.ledger.close()


async def test_on_a_list_that_cannot_be_had_nothing_is_stopped(account: Account) -> None:
    box = account.tiny.rent(None)
    account.tiny.refuses("list", no_answer())

    with pytest.raises(ProviderSilent):
        await park_stray(account.tenancy.context, "tiny", box.id)
    with pytest.raises(BadRequest):
        await park_stray(account.tenancy.context, "tiny", "no-such-box")

    assert account.tiny.boxes[box.id].state is BoxState.READY
    assert account.tenancy.ledger.leases() == []
