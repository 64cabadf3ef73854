"""A lease as one file: the facts of the ledger, in a page and in Markdown that nobody's words can bend."""

import json
import re
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import get_args

import pytest
from arranged import LEASE, NOON, HandClock, active, gone, intended, job
from looked import gpu, seen
from markdown_it import MarkdownIt
from pages import Page, require_harmless, require_square

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain import timeline
from gpu_tenant.domain.billing import Billed
from gpu_tenant.domain.errors import BadRequest, LocalTrouble, UnknownLease
from gpu_tenant.domain.evidence import Evidence, Verdict
from gpu_tenant.domain.seal import Discarded, Heap, Manifest, SealedFile, Unclaimed
from gpu_tenant.faces.cli.report import _places, _require_ours, _write
from gpu_tenant.faces.report import Report, as_html, as_markdown, mark_of, report_of
from gpu_tenant.faces.report.chart_svg import Curve, Up, amount, chart
from gpu_tenant.faces.report.render import _cell
from gpu_tenant.jobs.progress import Progress
from gpu_tenant.jobs.samples import keep_reading
from gpu_tenant.ledger import Ledger
from gpu_tenant.service import Tenancy

HOSTILE = "a<script>alert(1)</script>|`x`](javascript:alert(1)) \"' onload=x\n## no\u202e ![i](http://evil.example/i.png) @me <img src=x>"


@pytest.fixture
def tenancy(tmp_path: Path) -> Tenancy:
    opened = open_tenancy({"GPU_TENANT_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)})
    opened.context.clock = HandClock()
    return opened


@pytest.fixture
def ledger(tenancy: Tenancy) -> Ledger:
    return tenancy.ledger


def sealed(name: str = HOSTILE) -> Manifest:
    entry = SealedFile(
        name=name, at=name, kind="file", role="artifact", size_bytes=7, sha256="ab" * 32, mtime_ns=0
    )
    pattern = Discarded.Pattern(pattern=HOSTILE, count=1, bytes=5)
    return Manifest(
        sealed_at=NOON.timestamp(),
        boot_id="b",
        since_ns=None,
        digest="d" * 64,
        entries=(entry,),
        unclaimed=Unclaimed(count=2, bytes=9),
        pushed=Heap(count=0, bytes=0),
        discarded=Discarded(count=1, bytes=5, patterns=(pattern,)),
        problems=(),
        unmatched=(HOSTILE,),
    )


async def hostile(tenancy: Tenancy) -> Report:
    """The report of a lease on which everybody has said the worst that they can."""
    ledger = tenancy.ledger
    active(ledger)
    declared = job("job-1", discard=(HOSTILE,)).model_copy(
        update={
            "command": f"echo '{HOSTILE}' ```` x",
            "artifacts": (HOSTILE,),
            "env_names": ("TOKEN",),
        }
    )
    ledger.note_launched(ledger.declare(declared), at=NOON)
    told = Progress(done=1, unit="step", metrics={"loss": 1.0, HOSTILE[:60]: 2.0})
    for n in range(3):
        shown = seen(gpu(), gpu(1), job="job-1", progress=told, lease=LEASE)
        keep_reading(tenancy.home, shown, at=NOON + timedelta(seconds=9 * n))
    kept = tenancy.home.artifacts_of(LEASE)
    (kept / "log").mkdir(parents=True)
    log = (
        "".join(f"step {n} loss=0.{n} loss@<script>|`{n}=1 x`\n" for n in range(9))
        + "step 10 loss=nan\n"
    )
    (kept / "log" / "job-1.log").write_text(f"{log}{HOSTILE}", encoding="utf-8")
    ledger.keep_in(LEASE, kept)
    manifest = sealed()
    ledger.file_seal(LEASE, manifest, at=NOON)
    verdict = Verdict(
        format=HOSTILE,
        outcome="broken",
        proved=(HOSTILE,),
        not_proved=(HOSTILE,),
        warnings=(HOSTILE,),
        problem=HOSTILE,
    )
    ledger.file_evidence(
        LEASE,
        manifest.digest,
        [Evidence(name=HOSTILE, size_bytes=7, sha256="ab", verdict=verdict)],
        at=NOON,
    )
    for event in (
        timeline.Noticed(words=HOSTILE),
        timeline.Taken(fate="preempted", words=HOSTILE),
        timeline.Waived(by=HOSTILE, loss="x", losses=(HOSTILE,)),
        timeline.Claimed(artifacts=(), discard=(HOSTILE,)),
        timeline.Billed(usd="1", until=NOON.isoformat(), parts={HOSTILE: "1"}, words=HOSTILE),
        timeline.Unread(was=HOSTILE, detail={}),
    ):
        ledger.note(LEASE, event, at=NOON)
    return await report_of(tenancy.context, LEASE)


async def test_the_page_of_a_hostile_lease_has_no_script_no_link_and_every_word(
    tenancy: Tenancy,
) -> None:
    page = require_harmless(as_html(await hostile(tenancy)))

    said = "".join(page.words)
    assert said.count("<script>alert(1)</script>|`x`](javascript:") > 9, "as text, for all to see"
    assert page.tags.count("svg") >= 5
    assert page.tags.count("title") == page.tags.count("svg") + 1


async def test_the_markdown_of_a_hostile_lease_keeps_its_columns_and_its_headings(
    tenancy: Tenancy,
) -> None:
    shown = require_square(as_markdown(await hostile(tenancy)))

    assert "&lt;script&gt;alert(1)&lt;/script&gt;|`x`](javascript:alert(1))" in shown


async def test_each_file_says_where_and_when_it_was_re_read(tenancy: Tenancy) -> None:
    """A file that was re-read in the store has a time of its own."""
    active(tenancy.ledger)
    manifest = sealed("a.bin")
    second = manifest.entries[0].model_copy(update={"name": "b.bin", "at": "b.bin"})
    third = second.model_copy(update={"name": "c.bin", "at": "c.bin"})
    manifest = manifest.model_copy(update={"entries": (*manifest.entries, second, third)})
    tenancy.ledger.file_seal(LEASE, manifest, at=NOON)
    verdict = Verdict(format="bytes", outcome="opaque")
    for name, where, hour in (("a.bin", "here", 1), ("b.bin", "s3:kept", 2)):
        proof = Evidence(name=name, size_bytes=7, sha256="ab" * 32, verdict=verdict, where=where)
        at = NOON + timedelta(hours=hour)
        tenancy.ledger.file_evidence(LEASE, manifest.digest, [proof], at=at)

    told = await report_of(tenancy.context, LEASE)

    for text in (as_html(told), as_markdown(told)):
        a, b, c = (
            next(line for line in re.split(r"<tr>|\n\| ", text) if f"{name}.bin" in line)
            for name in "abc"
        )
        assert f"here, {NOON + timedelta(hours=1):%Y-%m-%d %H:%M:%S} UTC" in a
        assert f"s3:kept, {NOON + timedelta(hours=2):%Y-%m-%d %H:%M:%S} UTC" in b
        assert "not yet" in c


async def test_a_lease_that_is_not_over_says_so_and_has_no_receipt(tenancy: Tenancy) -> None:
    active(tenancy.ledger)

    told = await report_of(tenancy.context, LEASE)

    assert (told.is_over, told.receipt) == (False, None)
    for text in (as_html(told), as_markdown(told)):
        assert "It is not over" in text
        assert "There is no receipt" in text
        assert "nobody bills" in text, "a machine of one's own without a rate"


async def test_a_box_that_bills_after_its_job_has_ended_is_what_to_do_first(
    tenancy: Tenancy,
) -> None:
    active(tenancy.ledger)
    tenancy.ledger.ready(LEASE, at=NOON)
    tenancy.ledger.note_rate(LEASE, Decimal("2.00"), at=NOON)
    tenancy.ledger.note_launched(tenancy.ledger.declare(job("train")), at=NOON)
    ended = timeline.JobEnded(job="train", state="failed", ago_s=None)
    tenancy.ledger.note(LEASE, ended, at=NOON)
    clock = tenancy.clock
    assert isinstance(clock, HandClock)
    clock.advance(1800)

    told = await report_of(tenancy.context, LEASE)

    assert told.to_do is not None
    assert told.to_do.startswith(
        "job failed 30 min ago, its box bills on, 2.00 USD/h, 1.00 USD since"
    )
    for text in (as_html(told), as_markdown(told)):
        do, result, proof, money, state = (
            text.index(words) for words in ("Do this:", "Result", "Proof", "Money", "State")
        )
        assert do < result < proof < money < state


async def test_a_lease_that_is_over_shows_its_receipt(tenancy: Tenancy) -> None:
    gone(tenancy.ledger)

    told = await report_of(tenancy.context, LEASE)

    assert told.receipt is not None
    assert told.is_over
    assert "never used" in as_html(told)
    assert "never used" in as_markdown(told)
    assert [event.kind for event in told.events][-1] == timeline.Receipted.kind


async def test_a_lease_that_never_had_a_box_can_be_reported(tenancy: Tenancy) -> None:
    intended(tenancy.ledger)

    told = await report_of(tenancy.context, LEASE)

    require_harmless(as_html(told))
    require_square(as_markdown(told))
    with pytest.raises(UnknownLease):
        await report_of(tenancy.context, "nobody")


async def test_the_cost_is_told_stretch_by_stretch_with_what_is_not_in_it(
    tenancy: Tenancy, ledger: Ledger
) -> None:
    active(ledger)
    ledger.note_rate(LEASE, Decimal("2.00"), at=NOON)
    ledger.note_parked(LEASE, Decimal("0.10"), at=NOON + timedelta(hours=2))
    ledger.note_resumed(LEASE, None, at=NOON + timedelta(hours=5))
    bill = Billed(
        usd=Decimal("4.5"), until=NOON, by_part={"bytes": Decimal("0.5")}, words="its invoices"
    )
    billed = timeline.Billed(
        usd=str(bill.usd), until=NOON.isoformat(), parts={"bytes": "0.5"}, words=bill.words
    )
    ledger.note(LEASE, billed, at=NOON)
    clock = tenancy.clock
    assert isinstance(clock, HandClock)
    clock.advance(6 * 3600)

    cost = (await report_of(tenancy.context, LEASE)).cost

    assert [rate.usd for rate in cost.rates][1:] == [Decimal("4.0000"), Decimal("0.3000"), None]
    assert cost.spent_usd is None
    assert cost.parked_s == 3 * 3600
    assert (cost.billed_usd, cost.billed_parts) == (Decimal("4.5"), {"bytes": Decimal("0.5")})
    assert any("the rate is unknown" in words for words in cost.not_counted)


async def test_the_report_says_who_gave_up_what_and_names_variables_without_values(
    tenancy: Tenancy,
) -> None:
    told = await hostile(tenancy)

    assert [one.by.split()[1] for one in told.given_up].count("signature") == 1
    assert told.jobs[0].env_names == ("TOKEN",)
    assert told.jobs[0].metrics["loss"].values[:2] == (0.0, 0.1)
    assert told.jobs[0].metrics["loss"].not_finite == 1
    assert json.loads(told.model_dump_json())["lease"] == LEASE


async def test_a_long_log_is_read_in_pieces_and_that_is_said(
    tenancy: Tenancy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu_tenant.faces.report.gather._LOG_BYTES", 40_000)
    monkeypatch.setattr("gpu_tenant.faces.report.gather._WINDOW_BYTES", 4_000)
    active(tenancy.ledger)
    tenancy.ledger.declare(job("train"))
    log = tenancy.home.artifacts_of(LEASE) / "log" / "train.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"step {n} loss={n}\n" for n in range(20_000)), encoding="utf-8")

    (shown,) = (await report_of(tenancy.context, LEASE)).jobs

    assert "40.0 KB of it evenly apart" in shown.metrics_from
    loss = shown.metrics["loss"]
    assert loss.steps == loss.values, "no line was cut"
    assert loss.steps[0] < 10
    assert loss.steps[-1] == 19_999


# Charts


@pytest.mark.parametrize("y", get_args(Up))
def test_a_chart_of_any_values_is_drawn_inside_its_frame(y: Up) -> None:
    for values in (
        [1.0],
        [0.0, 0.0],
        [None, 5.0, None, 7.0],
        [1e-9, 1e12],
        [-3.0, 3.0],
        [5e15] * 3,
    ):
        drawn = chart("c", "t", [Curve("a", range(len(values)), values)], x="step", y=y)
        assert drawn is not None
        lines = re.findall(r'<path class="line k0" d="([^"]+)"', drawn)
        for a, b in re.findall(r"[ML]([\d.-]+) ([\d.-]+)", lines[0]):
            assert 0 <= float(a) <= 720
            assert 0 <= float(b) <= 230
        assert lines[0].count("M") == (2 if None in values else 1)


def test_a_chart_of_nothing_is_none() -> None:
    assert chart("c", "t", [], x="time", y="usd") is None
    assert chart("c", "t", [Curve("a", [1], [None])], x="time", y="usd") is None


@pytest.mark.parametrize("span", [1, 59, 3600, 86_400, 40 * 86_400])
def test_times_are_marked_in_round_steps(span: float) -> None:
    at = NOON.timestamp()
    drawn = chart("c", "t", [Curve("a", [at, at + span], [1, 2])], x="time", y="number")

    assert drawn is not None
    assert 1 <= drawn.count('class="tick across"') <= 8


def test_amounts_are_told_for_a_person() -> None:
    assert amount(1.5e9, "bytes") == "1.5 GB"
    assert amount(97.25, "percent") == "97.2 %"


# Files


def test_a_report_replaces_an_earlier_one_and_no_other_file(tmp_path: Path) -> None:
    place = tmp_path / "gpu-tenant-x.html"
    _require_ours(place, "x-1", "html")
    _write(place, f"<!DOCTYPE html>\n{mark_of('x-1', 'html')}")
    _require_ours(place, "x-1", "html")
    for lease, form in (("x-2", "html"), ("x-1", "md")):
        with pytest.raises(BadRequest, match="was left alone"):
            _require_ours(place, lease, form)
    (tmp_path / "notes.html").write_text("mine", encoding="utf-8")
    (tmp_path / "link.html").symlink_to(place)
    for other in ("notes.html", "link.html", "."):
        with pytest.raises(BadRequest, match="was left alone") as told:
            _require_ours(tmp_path / other, "x-1", "html")
        assert "--to OTHER" in told.value.remedy


def test_a_report_that_cannot_be_written_says_where_it_could(tmp_path: Path) -> None:
    with pytest.raises(LocalTrouble, match="could not be written"):
        _write(tmp_path / "nowhere" / "a.html", "x")


@pytest.mark.parametrize(
    ("to", "form", "names"),
    [
        (None, None, ["kept/gpu-tenant-x.html", "kept/gpu-tenant-x.md"]),
        (None, "md", ["kept/gpu-tenant-x.md"]),
        ("a.html", None, ["a.html"]),
        ("a.md", None, ["a.md"]),
        ("a", "both", ["a.html", "a.md"]),
        (".", "html", ["gpu-tenant-x.html"]),
    ],
)
def test_the_form_goes_by_the_name_of_the_file(
    to: str | None, form: str | None, names: list[str]
) -> None:
    assert [str(place) for _, place in _places("x", to, form, usual=Path("kept"))] == names


def test_a_name_of_one_form_is_not_written_in_another() -> None:
    with pytest.raises(BadRequest, match="is for one form"):
        _places("x", "a.html", "md", usual=Path())


@pytest.mark.parametrize(
    "words",
    [
        "- a",
        "+ a",
        "1. a",
        "12) a",
        "> a",
        "# a",
        "=== a",
        "| a | b |",
        "&lt;b&gt;",
        "a ~~b~~ $c$",
        "*a* _b_ __c__",
    ],
)
def test_words_begin_nothing_in_markdown(words: str) -> None:
    shown = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(f"- {_cell(words)}")
    page = Page(shown)

    assert page.tags == ["ul", "li"]
    assert "".join(page.words).strip() == words
