"""What ends a bill when this computer dies is said as it is, and this computer is never switched off."""

from decimal import Decimal

import pytest
from arranged import NOON, lease, quote
from contract.staged import PROFILES

from gpu_tenant.domain.model import (
    Address,
    Lease,
    LeaseState,
    LocalAddress,
    SshAddress,
    WorkPlace,
)
from gpu_tenant.domain.protection import GuardState, protection, way_out

FAR = SshAddress(target="root@203.0.113.7:40022")
ARMED = GuardState(state="armed", ends_the_meter=True, words="armed: it was proved")
DONE_TOO = ARMED.model_copy(update={"when_done": True})
JOBS_ONLY = GuardState(state="armed", ends_the_meter=False, words="armed to stop the jobs only")


def at(provider: str, address: Address = FAR, signed: str = "keep", usd_h: str = "1.5") -> Lease:
    made = lease(provider=provider)
    terms = made.terms.model_copy(update={"on_deadline": signed})
    update = {"address": address, "terms": terms, "quote": None, "price_usd_h": Decimal(usd_h)}
    return made.model_copy(update=update)


@pytest.mark.parametrize(
    ("provider", "signed", "kind"),
    [
        ("vastai", "keep", "in-box credential"),
        ("autodl", "keep", "in-box poweroff"),
        ("gcp", "keep", "provider timer"),
        ("runpod", "keep", "in-box credential"),
        ("runpod", "waive", "in-box credential"),
        ("lambda_cloud", "waive", "nothing"),
        ("digitalocean", "keep", "nothing"),
        ("own", "keep", "nothing"),
        ("local", "keep", "nothing"),
    ],
)
def test_what_protects_each_platform_is_known_before_it_is_rented(
    provider: str, signed: str, kind: str
) -> None:
    told = protection(PROFILES[provider], at(provider, signed=signed), None)

    assert told.kind == kind
    if kind.startswith("in-box"):
        assert told.words.endswith("until the guard is armed, nothing ends the bill")
    if kind == "nothing":
        assert told.words.startswith("nothing ends the bill: ")


@pytest.mark.parametrize("provider", ["vastai", "autodl"])
def test_a_guard_that_could_not_prove_it_protects_nothing(provider: str) -> None:
    assert protection(PROFILES[provider], at(provider), ARMED).words == ARMED.words
    assert protection(PROFILES[provider], at(provider), JOBS_ONLY).kind == "nothing"


def test_what_costs_nothing_needs_no_protection() -> None:
    free = at("vastai", usd_h="0")

    assert protection(PROFILES["vastai"], free, None).kind == "nothing needed"


@pytest.mark.parametrize("provider", ["own", "local"])
def test_nobody_is_said_to_bill_for_a_machine_of_ones_own_only_where_no_price_is_stated(
    provider: str,
) -> None:
    priced = protection(PROFILES[provider], at(provider, usd_h="1.89"), None)
    free = at(provider).model_copy(update={"price_usd_h": None})

    assert "only the machine's owner can stop its 1.89 USD/h" in priced.words
    assert protection(PROFILES[provider], free, None).words == "nobody bills for it"


def test_a_box_that_stands_still_has_no_guard_and_its_disk_bills_on() -> None:
    cheap = at("vastai", usd_h="0.01")
    parked = cheap.model_copy(update={"parked_at": NOON})

    for told in (
        protection(PROFILES["vastai"], parked, ARMED),
        protection(PROFILES["vastai"], cheap, ARMED, fate="outbid"),
    ):
        assert told.kind == "nothing"
        assert told.words.startswith("nothing ends the bill for its disk")
    assert "if the box starts by itself" in told.words


def test_what_is_stopped_for_nothing_needs_no_protection_but_what_may_wake_has_none() -> None:
    free = at("autodl").model_copy(update={"price_usd_h": Decimal(0), "quote": quote()})

    parked = protection(PROFILES["autodl"], free.model_copy(update={"parked_at": NOON}), ARMED)

    assert parked.kind == "nothing needed"
    assert protection(PROFILES["autodl"], free, None, fate="outbid").kind == "nothing"


def test_what_has_ended_needs_none() -> None:
    over = lease(LeaseState.GONE, provider="vastai", price_usd_h=Decimal(1))

    assert (
        protection(PROFILES["vastai"], over, ARMED).words
        == "nothing has to end the bill: the lease has ended"
    )


@pytest.mark.parametrize(
    "address",
    [
        LocalAddress(directory="/home/somebody/box"),
        *(
            SshAddress(target=f"root@{host}")
            for host in (
                "127.0.0.1:5022",
                "127.8.9.1",
                "localhost",
                "localhost:22",
                "[::1]:22",
                "::1",
            )
        ),
    ],
)
def test_a_box_that_may_be_this_computer_is_never_told_to_switch_itself_off(
    address: Address,
) -> None:
    assert way_out(PROFILES["autodl"], at("autodl", address)) is None
    assert way_out(PROFILES["autodl"], at("autodl")) == {
        "kind": "command",
        "command": "shutdown",
        "on": "keep",
    }


def test_a_stop_that_keeps_the_work_is_a_way_out() -> None:
    keeps = {"kind": "runpod", "on": "keep"}
    settled = {"place": WorkPlace(path="/workspace", at="/workspace")}

    assert way_out(PROFILES["runpod"], at("runpod")) == keeps
    assert way_out(PROFILES["runpod"], at("runpod").model_copy(update=settled)) == keeps


def test_a_stop_that_may_empty_a_disk_is_no_way_out_unless_it_was_signed_for() -> None:
    home = {"place": WorkPlace(path="~", why="/workspace: no disk is mounted there")}
    unsigned, signed = (
        at("runpod", signed=signed).model_copy(update=home) for signed in ("keep", "waive")
    )
    assert way_out(PROFILES["runpod"], unsigned) is None
    told = protection(PROFILES["runpod"], unsigned, None)
    assert "the disk that the work is on (/workspace: no disk is mounted there)" in told.words
    assert way_out(PROFILES["runpod"], signed) == {
        "kind": "runpod",
        "on": "waive",
    }
    # Nobody knows whether what is mounted there is a local SSD.
    assert way_out(PROFILES["gcp"], at("gcp")) is None
    assert way_out(PROFILES["vastai"], at("vastai", signed="waive")) == {
        "kind": "vastai",
        "on": "keep",
    }


@pytest.mark.parametrize(
    ("provider", "signed", "store", "armed", "words"),
    [
        (
            "vastai",
            "keep",
            "s3:b",
            None,
            "the box is stopped 2 min after its last job, but not before s3:b has",
        ),
        (
            "vastai",
            "keep",
            "s3:b",
            DONE_TOO,
            "the box is stopped 2 min after its last job, but not before s3:b has",
        ),
        ("vastai", "keep", "s3:b", ARMED, "it bills 1.5 USD/h until 2026-"),
        ("vastai", "keep", None, None, "it bills 1.5 USD/h until 2026-"),
        ("gcp", "keep", None, None, "it bills 1.5 USD/h until 2026-"),
        (
            "runpod",
            "keep",
            "s3:b",
            None,
            "the box is stopped 2 min after its last job, but not before s3:b has",
        ),
        ("runpod", "keep", None, None, "it bills 1.5 USD/h until 2026-"),
        ("lambda_cloud", "keep", None, None, "it bills 1.5 USD/h until somebody ends it"),
    ],
)
def test_what_is_billed_when_the_work_is_done_and_nobody_is_there_is_said(
    provider: str, signed: str, store: str | None, armed: GuardState | None, words: str
) -> None:
    box = at(provider, signed=signed)
    terms = box.terms.model_copy(update={"when_done": "end", "store": store})

    told = protection(PROFILES[provider], box.model_copy(update={"terms": terms}), armed)

    assert words in told.words.partition("; when its work is done and nobody watches it, ")[2]
    assert "work done" not in protection(PROFILES[provider], box, armed).words, "it is kept"
