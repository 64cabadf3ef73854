"""The owner's own machines are offered as the configuration says, at the owner's rate or at none."""

from decimal import Decimal
from pathlib import Path

import pytest
from arranged import lease, setting

from gpu_tenant.domain.errors import LocalTrouble, TenantError
from gpu_tenant.domain.model import LeaseId, LeaseState, SshAddress
from gpu_tenant.domain.offers import Offer, Wish
from gpu_tenant.domain.ports import Market
from gpu_tenant.providers.own import connector as own

PAIR = """
[[own]]
address = "me@attic:2222"
gpus = "rtx4090:2"
rate_usd_h = 0.12
region = "attic"
disk_gb = 500
notes = "loud at night"
"""
SINGLE = """
[[own]]
address = "lab"
gpus = "A100 PCIe 40GB"
"""


@pytest.fixture
def connector(tmp_path: Path) -> own.OwnConnector:
    return own.connect(setting(tmp_path, "own"))


def configure(state: Path, text: str) -> None:
    (state / "config.toml").write_text(text, encoding="utf-8")


async def offered(connector: own.OwnConnector, **wished: object) -> dict[str, Offer]:
    return {offer.id: offer for offer in await connector.offers(Wish.model_validate(wished))}


async def trouble(connector: own.OwnConnector) -> TenantError:
    with pytest.raises(LocalTrouble) as told:
        await connector.offers(Wish())
    return told.value


def test_the_owner_s_machines_are_a_market(connector: own.OwnConnector) -> None:
    assert isinstance(connector, Market)


async def test_without_a_configuration_nothing_is_offered(connector: own.OwnConnector) -> None:
    assert await offered(connector) == {}


async def test_a_configuration_of_other_things_offers_nothing(
    connector: own.OwnConnector, tmp_path: Path
) -> None:
    configure(tmp_path, '[credentials]\nvastai = "env:KEY"\n')

    assert await offered(connector) == {}


async def test_a_rate_is_money_and_never_a_binary_fraction(
    connector: own.OwnConnector, tmp_path: Path
) -> None:
    configure(tmp_path, PAIR.replace("0.12", "0.12000000000000000001"))

    offer = (await offered(connector))["me@attic:2222"]

    assert offer.price.gpu_usd_h == Decimal("0.12000000000000000001")


async def test_a_machine_is_offered_at_its_owner_s_rate(
    connector: own.OwnConnector, tmp_path: Path
) -> None:
    configure(tmp_path, PAIR)

    offer = (await offered(connector))["me@attic:2222"]

    assert (offer.gpu, offer.gpu_count, offer.vram_gib) == ("RTX 4090", 2, 24)
    assert (offer.region, offer.disk_gb, offer.trust) == ("attic", 500, "verified")
    assert offer.price.running_usd_h == Decimal("0.12")
    assert offer.price.source == "owner"
    assert offer.price.download_usd_gb == 0, "the rate is for everything"
    assert "me@attic:2222" in offer.notes[0]
    assert offer.notes[-1] == "loud at night"


async def test_a_machine_without_a_rate_has_an_unknown_price_and_a_rate_of_nought_is_known(
    connector: own.OwnConnector, tmp_path: Path
) -> None:
    configure(tmp_path, SINGLE + PAIR.replace("0.12", "0"))

    offers = await offered(connector)

    assert offers["lab"].price.running_usd_h is None
    assert offers["lab"].price.upload_usd_gb is None
    assert offers["me@attic:2222"].price.running_usd_h == 0


async def test_a_disk_that_is_not_stated_is_said_to_be_unknown(
    connector: own.OwnConnector, tmp_path: Path
) -> None:
    configure(tmp_path, SINGLE)

    offer = (await offered(connector, disk_gb=100))["lab"]

    assert any("has not stated its free disk" in note for note in offer.notes)


async def test_a_drained_machine_is_not_offered(
    connector: own.OwnConnector, tmp_path: Path
) -> None:
    configure(tmp_path, PAIR + "drained = true\n" + SINGLE)

    assert set(await offered(connector)) == {"lab"}


async def test_a_lent_machine_is_not_offered(connector: own.OwnConnector, tmp_path: Path) -> None:
    configure(tmp_path, PAIR + SINGLE)
    await connector.create(
        lease(
            LeaseState.INTENDED,
            lease_id=LeaseId("own-abcd"),
            provider="own",
            address=SshAddress(target="lab"),
        )
    )

    assert set(await offered(connector)) == {"me@attic:2222"}


async def test_one_machine_is_asked_for_again_by_its_address(
    connector: own.OwnConnector, tmp_path: Path
) -> None:
    configure(tmp_path, PAIR + SINGLE)

    assert set(await offered(connector, offer="lab")) == {"lab"}
    assert await offered(connector, offer="elsewhere") == {}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ('gpus = "RTX 4090:0"', "has no count after the colon"),
        ('gpus = "A100"', "say which: A100 SXM 80GB"),
        ('gpus = "RTX 409O"', "did you mean RTX 4090"),
        ('gpus = "RTX 4090"\nrate_usd_h = -1', "`rate_usd_h`"),
        ('gpus = "RTX 4090"\nrate_usd_h = nan', "`rate_usd_h`"),
        ('gpus = "RTX 4090"\nrate_usd_h = true', "`rate_usd_h`"),
        ('gpus = "RTX 4090"\nrate_usd_h = "cheap"', "`rate_usd_h`"),
        ('gpus = "RTX 4090"\nprice = 1', "`price`"),
        ("drained = false", "`gpus`"),
    ],
)
async def test_a_machine_that_is_described_wrongly_is_named_with_what_is_wrong(
    connector: own.OwnConnector, tmp_path: Path, wrong: str, words: str
) -> None:
    configure(tmp_path, f'{PAIR}[[own]]\naddress = "me@cellar"\n{wrong}\n')

    told = await trouble(connector)

    assert told.message.startswith("me@cellar in config.toml")
    assert words in told.message
    assert "[[own]]" in told.remedy


@pytest.mark.parametrize("address", ["-oProxyCommand=x", "me@a b", ""])
async def test_an_address_that_is_none_is_refused(
    connector: own.OwnConnector, tmp_path: Path, address: str
) -> None:
    configure(tmp_path, PAIR.replace("me@attic:2222", address))

    assert "`address`" in (await trouble(connector)).message


async def test_a_machine_without_an_address_is_named_by_its_place(
    connector: own.OwnConnector, tmp_path: Path
) -> None:
    configure(tmp_path, PAIR + '[[own]]\ngpus = "RTX 4090"\n')

    assert (await trouble(connector)).message.startswith("machine number 2")


async def test_a_machine_that_is_there_twice_is_refused(
    connector: own.OwnConnector, tmp_path: Path
) -> None:
    configure(tmp_path, PAIR + PAIR + "drained = true\n")

    assert "it is listed 2 times" in (await trouble(connector)).message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[own]\n", "not a list of machines"),
        ("own = 1\n", "not a list"),
        ("[[own]", "cannot be read"),
    ],
)
async def test_a_configuration_that_is_none_is_trouble_and_not_an_empty_market(
    connector: own.OwnConnector, tmp_path: Path, text: str, words: str
) -> None:
    configure(tmp_path, text)

    assert words in (await trouble(connector)).message
