"""What is particular to AutoDL: a blind create, a release that wants a stop first, prices in yuan."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import cast

import httpx2
import pytest
from arranged import never_used, setting
from contract.staged import PROFILES, Staged, on_stage

from gpu_tenant.domain.errors import (
    CredentialRefused,
    LocalTrouble,
    NoFunds,
    ProviderSilent,
    ProviderTrouble,
)
from gpu_tenant.domain.model import Box, BoxState, Lease, LeaseState, SshAddress
from gpu_tenant.domain.offers import USD_STEP, Offer, Wish
from gpu_tenant.domain.permit import TeardownPermit
from gpu_tenant.domain.ports import Credential, Setting
from gpu_tenant.emulators.world import KEY
from gpu_tenant.providers.autodl.connector import AutodlConnector

PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIO5PcPo3x7yyWPCPwGCQ7FjRjKZw1L3YNyZdWpEEf6pE me"
HOUR_USD = Decimal("1.98") * Decimal("0.14")
"""Of a 4090D, by the rehearsal's prices."""


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Staged]:
    with on_stage("autodl", tmp_path) as stage:
        stage.connector = connected(stage)  # type: ignore[misc]
        yield stage


def connected(staged: Staged, **environ: str) -> AutodlConnector:
    """A connector to the stage, whose owner says in its environment what `environ` says."""
    return AutodlConnector(
        Setting(
            profile=PROFILES["autodl"],
            state=staged.home.root,
            clock=staged.clock,
            rehearsed_at=staged.stage.url,
            environ={**staged.stage.environment, **environ},
            credential=Credential("env:AUTODL_TOKEN", lambda: KEY),
            public_key=lambda: PUBLIC_KEY,
            shell_at=setting(staged.home.root).shell_at,
        )
    )


async def wanted(staged: Staged, offer_id: str = "4090D:1@any") -> Lease:
    """The intent to rent what that offer is of."""
    (offer,) = await cast("AutodlConnector", staged.connector).offers(Wish(offer=offer_id))
    intent = await staged.intent()
    assert intent.quote is not None
    return intent.model_copy(update={"quote": intent.quote.model_copy(update={"offer": offer})})


async def rented(staged: Staged) -> tuple[Lease, Box, TeardownPermit]:
    """A box that runs, its lease, and leave to destroy it."""
    intent = await wanted(staged)
    await staged.connector.create(intent)
    box = await staged.ready(intent)
    lease = intent.model_copy(update={"box_id": box.id, "state": LeaseState.ACTIVE})
    return lease, box, never_used(lease)


def sent(staged: Staged, path_end: str) -> list[dict[str, object]]:
    return [line for line in staged.ask("requests") if line["path"].endswith(path_end)]


def verbs(staged: Staged) -> list[str]:
    """What was asked of the box, in order."""
    paths = [line["path"].rpartition("/")[2] for line in staged.ask("requests")]
    return [verb for verb in paths if verb in ("power_on", "power_off", "release")]


# Failures inside a 200


async def test_an_owner_whose_identity_is_not_verified_is_told_so(staged: Staged) -> None:
    staged.fault("unverified")

    with pytest.raises(CredentialRefused, match="TORealName") as told:
        await staged.connector.list_boxes()

    assert "实名认证" in told.value.remedy


async def test_an_empty_account_is_no_funds_and_what_it_holds_is_said(staged: Staged) -> None:
    intent = await wanted(staged)
    staged.fault("balance_zero")

    with pytest.raises(NoFunds, match="余额不足"):
        await staged.connector.create(intent)

    assert "the account holds 0 CNY, and an hour costs 1.98" in (await offered(staged)).notes


async def test_a_failure_of_unknown_meaning_proves_no_create_undone(staged: Staged) -> None:
    intent = await wanted(staged)

    silent = {}
    for code in ("InternalError", "ServerError", "ParamError"):
        body = {"code": code, "msg": "出错了"}
        staged.fault("status", "POST", "/create$", status=200, body=body)
        with pytest.raises(ProviderTrouble, match=f"{code} 出错了") as told:
            await staged.connector.create(intent)
        silent[code] = isinstance(told.value, ProviderSilent)

    assert silent == {"InternalError": True, "ServerError": True, "ParamError": False}


# A box


async def test_our_key_gets_in_by_the_command_it_starts_with_and_no_password_is_shown(
    staged: Staged,
) -> None:
    lease, box, _ = await rented(staged)

    (order,) = sent(staged, "/create")
    assert not set("'\"\\`$") & set(str(cast("dict[str, str]", order["body"])["start_command"]))
    key = " ".join(PUBLIC_KEY.split()[:2])
    assert staged.stage.world.state.things[box.id].facts["keys"] == [key]
    assert box.mark == lease.mark
    at = f"{staged.stage.url}/api/v1/dev/instance/pro/snapshot?instance_uuid={box.id}"
    async with httpx2.AsyncClient() as client:
        shown = await client.get(at, headers={"Authorization": KEY})
    password = shown.json()["data"]["root_password"]
    assert password not in f"{box!r} {vars(staged.connector)!r} {staged.ask('requests')}"


async def test_stopped_and_started_twice_over_it_is_elsewhere_and_lets_our_key_in_again(
    staged: Staged,
) -> None:
    lease, box, _ = await rented(staged)
    connector = cast("AutodlConnector", staged.connector)

    for _ in range(2):
        await connector.park(lease)
    staged.wait(60)
    for _ in range(2):
        await connector.resume(lease)
    back = await staged.ready(lease)

    assert isinstance(box.address, SshAddress)
    assert isinstance(back.address, SshAddress)
    assert back.address.target != box.address.target
    assert PUBLIC_KEY.split()[1] in str(sent(staged, "/power_on")[0]["body"])


async def test_what_is_not_told_of_a_box_yet_hides_no_box(staged: Staged) -> None:
    _, box, _ = await rented(staged)
    staged.fault("no_snapshot", "GET", "/snapshot$", times=2)

    (seen,) = await staged.connector.list_boxes()

    assert (seen.id, seen.state, seen.address, seen.price_usd_h) == (
        box.id,
        BoxState.READY,
        None,
        None,
    )


async def test_a_box_is_found_whether_the_query_or_the_body_must_name_it(staged: Staged) -> None:
    lease, box, permit = await rented(staged)
    staged.fault("wants_body")

    (seen,) = await staged.connector.list_boxes()
    found = await cast("AutodlConnector", staged.connector).find_box(lease)

    assert seen.address == box.address is not None
    assert found is not None
    assert found.address == box.address
    await staged.connector.destroy(permit)
    staged.wait(60)
    assert staged.alive == []


async def test_a_refusal_to_tell_the_address_is_told(staged: Staged) -> None:
    await rented(staged)
    body = {"code": "ServerError", "msg": "系统繁忙"}
    staged.fault("status", "GET", "/snapshot$", status=200, body=body)

    (seen,) = await staged.connector.list_boxes()

    assert (seen.state, seen.address) == (BoxState.READY, None)
    assert "AutoDL does not tell its address and price" in (seen.words or "")
    assert "系统繁忙" in (seen.words or "")


async def test_answers_that_leave_out_what_can_be_done_without_hide_nothing(
    staged: Staged,
) -> None:
    _, box, _ = await rented(staged)
    staged.fault("sparse")

    (seen,) = await staged.connector.list_boxes()

    assert (seen.address, seen.price_usd_h) == (box.address, box.price_usd_h)
    assert "the account holds" not in str((await offered(staged)).notes)


@pytest.mark.parametrize(
    "data",
    [
        {"payg_price": None, "proxy_host": None, "ssh_port": "x", "ssh_command": 7},
        {"payg_price": "1980", "proxy_host": ["a"]},
        {},
        None,
    ],
    ids=str,
)
async def test_details_of_another_form_hide_no_box(staged: Staged, data: object) -> None:
    _, box, _ = await rented(staged)
    answer = {"code": "Success", "data": data}
    staged.fault("status", "GET", "/snapshot$", status=200, body=answer)

    (seen,) = await staged.connector.list_boxes()

    assert (seen.id, seen.state, seen.address) == (box.id, BoxState.READY, None)
    assert "no address for ssh" in (seen.words or "")


async def test_money_that_is_blocked_pays_for_nothing(staged: Staged) -> None:
    staged.fault("blocked")

    assert "the account holds 0 CNY, and an hour costs 1.98" in (await offered(staged)).notes


@pytest.mark.parametrize("held", [{}, {"assets": None, "voucher_balance": 5}], ids=str)
async def test_what_the_account_holds_may_be_unknown(staged: Staged, held: object) -> None:
    answer = {"code": "Success", "data": held}
    staged.fault("status", "POST", "/wallet/balance$", status=200, body=answer)

    assert "the account holds" not in str((await offered(staged)).notes)


async def test_the_price_of_a_box_that_boots_is_unknown_and_not_zero(staged: Staged) -> None:
    made = await staged.connector.create(await wanted(staged))

    (seen,) = await staged.connector.list_boxes()

    assert (made.price_usd_h, seen.price_usd_h) == (None, None)


async def test_a_page_that_is_another_than_was_asked_for_is_no_list(staged: Staged) -> None:
    staged.fault("page_boundary", "POST", "/pro/list$", amount=1)

    with pytest.raises(ProviderSilent, match="page 2 was answered for page 1"):
        await staged.connector.list_boxes()


@pytest.mark.parametrize(
    ("rows", "counted", "why"),
    [
        (["pro-1", "pro-1"], 2, "it names pro-1 twice"),
        (["pro-1"], 2, "its number of rows should be 2, but is 1"),
    ],
)
async def test_a_list_that_cannot_be_used_tells_its_own_reason(
    staged: Staged, rows: list[str], counted: int, why: str
) -> None:
    about = {"list": [{"uuid": uuid} for uuid in rows], "page_index": 1, "max_page": 1}
    page = {"code": "Success", "data": {**about, "result_total": counted}}
    staged.fault("status", "POST", "/pro/list$", status=200, body=page)

    with pytest.raises(ProviderSilent, match=f"cannot be used: {why}"):
        await staged.connector.list_boxes()


# Its end


async def test_a_running_box_is_stopped_once_and_then_released(staged: Staged) -> None:
    _, box, permit = await rented(staged)
    staged.wait(3600)

    await staged.connector.destroy(permit)
    staged.wait(60)

    assert verbs(staged) == ["power_off", "release"]
    assert staged.alive == []
    billed = Decimal(staged.meter["by_thing"][box.id])
    assert HOUR_USD <= billed <= HOUR_USD * Decimal(3600 + 60) / 3600


async def test_a_box_that_still_starts_is_told_to_stop_until_it_does(staged: Staged) -> None:
    intent = await wanted(staged)
    made = await staged.connector.create(intent)
    lease = intent.model_copy(update={"box_id": made.id, "state": LeaseState.ACTIVE})

    await staged.connector.destroy(never_used(lease))
    staged.wait(60)

    assert verbs(staged)[-1] == "release"
    assert verbs(staged).count("power_off") > 1
    assert staged.alive == []


async def test_a_parked_box_costs_nothing_for_a_fortnight_and_is_released_without_another_stop(
    staged: Staged,
) -> None:
    lease, _, permit = await rented(staged)
    await cast("AutodlConnector", staged.connector).park(lease)
    staged.wait(14 * 86_400)
    (kept,) = await staged.connector.list_boxes()

    await staged.connector.destroy(permit)

    assert (kept.state, kept.price_usd_h) == (BoxState.PARKED, Decimal(0))
    assert verbs(staged) == ["power_off", "release"]


async def test_not_found_alone_is_no_proof_while_the_list_shows_the_box(staged: Staged) -> None:
    _, _, permit = await rented(staged)
    unknown = {"code": "RecordNotFoundError", "msg": "实例不存在"}
    staged.fault("status", "GET", "/pro/status$", status=200, body=unknown)

    await staged.connector.destroy(permit)
    staged.wait(60)

    assert staged.alive == []


# Prices


async def offered(staged: Staged, offer_id: str = "4090D:1@any", **environ: str) -> Offer:
    (offer,) = await connected(staged, **environ).offers(Wish(offer=offer_id))
    return offer


async def test_without_a_rate_and_without_a_price_in_yuan_the_price_is_unknown(
    staged: Staged,
) -> None:
    no_rate = await offered(staged, AUTODL_CNY_USD="")
    no_price = await offered(staged, AUTODL_CNY_H="v-48g=2.98")

    assert (no_rate.price.running_usd_h, no_price.price.running_usd_h) == (None, None)
    assert "1.98 CNY/h; for the price in USD, state `cny_usd` below `[rates]`" in no_rate.notes
    assert '`"4090D" = ...` below `[autodl.cny_h]`' in no_price.notes[0]


async def test_a_converted_price_shows_what_is_billed_and_the_day_of_the_rate(
    staged: Staged,
) -> None:
    today = f"{staged.clock.now():%Y-%m-%d}"
    dated = await offered(staged)
    undated = await offered(staged, AUTODL_CNY_USD_ON="")
    old = await offered(staged, AUTODL_CNY_USD_ON="2026-10-01")

    for offer, day in (
        (dated, f"the rate of {today}"),
        (undated, "an undated rate: write its day as `cny_usd_on` below `[rates]`"),
        (old, "the rate of 2026-10-01, 48 days old: look it up again"),
    ):
        assert offer.price.converted == f"1.98 CNY/h at 0.14 USD for 1 CNY, {day}"
        assert offer.price.converted in offer.notes
        assert offer.price.running_usd_h == HOUR_USD.quantize(USD_STEP)


async def test_the_owner_says_it_in_the_configuration(staged: Staged) -> None:
    staged.home.root.mkdir(exist_ok=True)
    (staged.home.root / "config.toml").write_text(
        '[rates]\ncny_usd = 0.1\ncny_usd_on = 2026-11-20\n[autodl]\nimage = "image-db8346e037"\ncuda_v_from = 128\n'
        '[autodl.cny_h]\n"5090-p" = 3\n',
        encoding="utf-8",
    )
    connector = connected(staged, AUTODL_CNY_USD="", AUTODL_CNY_H="")

    (offer,) = await connector.offers(Wish(gpu="RTX 5090"))
    await connector.create(await wanted(staged, offer.id))

    assert offer.price.running_usd_h == Decimal("0.3")
    assert offer.price.converted == "3 CNY/h at 0.1 USD for 1 CNY, the rate of 2026-11-20"
    order = cast("dict[str, object]", sent(staged, "/create")[0]["body"])
    assert (order["image_uuid"], order["cuda_v_from"]) == ("image-db8346e037", 128)


async def test_a_bad_line_in_the_configuration_is_told_and_hides_no_box(staged: Staged) -> None:
    _, box, _ = await rented(staged)
    staged.home.root.mkdir(exist_ok=True)
    (staged.home.root / "config.toml").write_text('[autodl]\nimages = "x"\n', encoding="utf-8")

    with pytest.raises(LocalTrouble, match="does not say what AutoDL costs: `images`"):
        await offered(staged)

    (seen,) = await staged.connector.list_boxes()
    assert (seen.id, seen.price_usd_h) == (box.id, None)


async def test_a_box_dearer_than_its_owner_said_is_seen_to_be(staged: Staged) -> None:
    _, box, _ = await rented(staged)

    staged.fault("dearer", amount=2)

    (seen,) = await staged.connector.list_boxes()
    assert box.price_usd_h == HOUR_USD.quantize(Decimal("0.0001"))
    assert seen.price_usd_h == 2 * HOUR_USD.quantize(Decimal("0.0001"))


async def test_what_several_gpus_cost_is_not_taken_from_a_figure_that_may_be_of_one(
    staged: Staged,
) -> None:
    intent = await wanted(staged, "4090D:2@any")
    await staged.connector.create(intent)

    box = await staged.ready(intent)

    assert box.price_usd_h is None
    assert intent.quote is not None
    assert intent.quote.offer.price.running_usd_h == (2 * HOUR_USD).quantize(Decimal("0.0001"))


# What is offered


async def test_cards_with_more_memory_than_they_are_sold_with_go_by_their_own_name(
    staged: Staged,
) -> None:
    offers = await cast("AutodlConnector", staged.connector).offers(Wish())

    assert {(o.gpu, o.vram_gib) for o in offers} == {
        ("RTX 4090D", 24),
        ("RTX 4090 48GB", 48),
        ("RTX 3090 48GB", 48),
        ("RTX 5090", 32),
        ("RTX 4080 SUPER 32GB", 32),
        ("RTX PRO 6000", 96),
        ("H800", 80),
    }
    assert all(
        "whether one is in stock is certain only when a box is created" in str(o.notes)
        for o in offers
    )


async def test_a_region_is_asked_for_only_where_one_is_wished(staged: Staged) -> None:
    connector = cast("AutodlConnector", staged.connector)
    (west,) = await connector.offers(Wish(gpu="RTX 4090D", region="west"))

    for offer_id in (west.id, "4090D:1@any"):
        intent = await wanted(staged, offer_id)
        await connector.create(intent.model_copy(update={"mark": f"gpu-tenant:{offer_id}"}))

    assert (west.region, await connector.offers(Wish(region="eu"))) == ("westDC3", [])
    asked = [cast("dict[str, object]", line["body"]) for line in sent(staged, "/create")]
    assert [body.get("data_center_list") for body in asked] == [["westDC3"], None]
