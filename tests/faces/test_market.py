"""Offers on a terminal: a table on stdout, in the words of the answer; troubles on stderr."""

from decimal import Decimal

import pytest

from gpu_tenant.domain.expected_cost import Term
from gpu_tenant.domain.offers import Price
from gpu_tenant.faces.cli import offers_table
from gpu_tenant.leases.offers import Found, Ranked

PRICE = Price(
    gpu_usd_h=Decimal("0.30"),
    disk_usd_h=Decimal("0.02"),
    parked_usd_h=None,
    upload_usd_gb=None,
    download_usd_gb=None,
    source="api",
)
RANKED = Ranked(
    quote="q-7k2m",
    provider="vastai",
    gpu="RTX 4090",
    gpu_count=2,
    vram_gib=24,
    region="[bold]Oz[/bold]",
    running_usd_h=PRICE.running_usd_h,
    price=PRICE,
    interruptible=True,
    trust="unverified",
    reliability=0.987,
    max_hours=80,
    expected_usd=Decimal("2.6035"),
    terms=(
        Term(name="compute", usd=Decimal("2.5600"), words="8 h at 0.3200 USD/h"),
        Term(name="host failure", usd=Decimal("0.0310"), words="its score"),
    ),
    notes=("CUDA 12.4 at most, and a sentence that makes the line longer than any terminal",),
)
UNPRICED = RANKED.model_copy(
    update={
        "quote": None,
        "running_usd_h": None,
        "expected_usd": None,
        "terms": (),
        "price": PRICE.model_copy(update={"gpu_usd_h": None}),
    }
)
FOUND = Found(
    offers=(RANKED, UNPRICED),
    cheapest="q-7k2m",
    untested="0.21 USD/h at untested hosts: `--trust any`",
    unfit={"above the cap of 1 USD/h": 12, "less disk": 3},
    troubles={"gcp": "NO_QUOTA: the quota [GPUS] is 0; ask for more"},
    next="`gpu-tenant provision --quote q-7k2m`: rents the first of these that is still available",
)


def test_offers_are_a_table_with_one_whole_line_each_and_their_notes_below(
    capsys: pytest.CaptureFixture[str],
) -> None:
    offers_table.print_found(FOUND)

    printed = capsys.readouterr()
    _, priced, unpriced, *rest = printed.out.splitlines()
    for shown in ("q-7k2m", "2 x RTX 4090", "[bold]Oz[/bold]", "0.3200", "0.3000 + 0.0200"):
        assert shown in priced
    for shown in ("2.60", "98.7%", "interruptible; unverified host", "in 80.0 h", "24 GiB"):
        assert shown in priced
    assert unpriced.count("unknown") == 3, "the rate, its GPU part, and the whole"
    assert rest == [
        "note: CUDA 12.4 at most, and a sentence that makes the line longer than any terminal (each)",
        "unverified host: a stranger's machine that its platform has not tested; its owner can read what is on it",
        "0.21 USD/h at untested hosts: `--trust any`",
        "left out: 12 above the cap of 1 USD/h; 3 less disk",
        "next: `gpu-tenant provision --quote q-7k2m`: rents the first of these that is still available",
    ]
    assert printed.err == "gcp: NO_QUOTA: the quota [GPUS] is 0; ask for more\n"


def test_an_explanation_is_the_terms_with_their_sentences(
    capsys: pytest.CaptureFixture[str],
) -> None:
    offers_table.print_explained(FOUND)

    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[0]
        == "q-7k2m: 2 x RTX 4090 at vastai, in all 2.6035 USD; its risks rank it as 0.0310 USD dearer"
    )
    assert lines[1].split(maxsplit=2) == ["2.5600", "compute", "8 h at 0.3200 USD/h"]
    assert "no quote: 2 x RTX 4090 at vastai, in all unknown" in lines


def test_where_nothing_fits_the_next_step_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    offers_table.print_found(
        Found(offers=(), cheapest=None, unfit={}, troubles={}, next="`gpu-tenant doctor`")
    )

    assert capsys.readouterr().out == "nothing is offered now\nnext: gpu-tenant doctor\n"


@pytest.mark.parametrize(
    ("unfit", "troubles", "said"),
    [
        ({"less disk": 2, "another GPU": 1}, {"gcp": "x"}, "nothing fits: 3 offers left out"),
        ({}, {"gcp": "x"}, "nothing is offered, because no answer came: gcp"),
    ],
)
def test_an_empty_market_says_whether_nothing_fits_or_nobody_answered(
    unfit: dict[str, int],
    troubles: dict[str, str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = Found(offers=(), cheapest=None, unfit=unfit, troubles=troubles, next="again")

    for show in (offers_table.print_found, offers_table.print_explained):
        show(found)
        assert capsys.readouterr().out.splitlines()[0] == said


@pytest.mark.parametrize("width", [60, 90, 120, 160])
def test_a_terminal_gets_as_many_columns_as_it_has_room_for_and_the_others_by_name(
    width: int, capsys: pytest.CaptureFixture[str]
) -> None:
    offers_table.print_found(FOUND, width)

    heading, priced, unpriced, *rest = capsys.readouterr().out.splitlines()
    for essential in ("QUOTE", "PROVIDER", "GPU", "USD/H", "IN ALL"):
        assert essential in heading
    assert "CPUS" not in heading, "it is unknown of each"
    hidden = [line for line in rest if line.startswith("a wider terminal shows")]
    assert max(map(len, (heading, priced, unpriced))) <= max(width, 60)
    for name in ("VRAM", "REGION", "ENDS"):
        told = {word for line in hidden for word in line.replace(",", "").replace(";", "").split()}
        assert (name in heading.split()) != (name in told)


def test_offers_of_which_all_that_is_shown_is_the_same_are_one_line_and_their_number(
    capsys: pytest.CaptureFixture[str],
) -> None:
    dearer = RANKED.model_copy(update={"quote": "q-dear", "running_usd_h": Decimal("0.40")})
    same = [RANKED.model_copy(update={"quote": quote}) for quote in ("q-7k2m", "q-two", "q-three")]
    offers_table.print_found(FOUND.model_copy(update={"offers": (*same, dearer)}))

    _, first, second, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("q-7k2m ")
    assert second.startswith("q-dear ")
    assert rest[0] == "q-7k2m: and 2 more alike (q-two, q-three)"
    assert rest[1].endswith("longer than any terminal (each)")
