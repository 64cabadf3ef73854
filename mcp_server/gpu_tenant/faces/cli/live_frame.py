"""Draws one frame of the live view: every lease in its last known state, with costs and times up to now."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from gpu_tenant.box.caretaker import ENDED
from gpu_tenant.domain.offers import USD_STEP
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.domain.wording import size, some, span, usd_words
from gpu_tenant.faces.chinese import for_terminal
from gpu_tenant.faces.cli.lease_table import rate_words, short, spent_words, sum_line, to_do
from gpu_tenant.jobs.monitor import Watched
from gpu_tenant.leases.cards import Card, Foreign, Leases
from gpu_tenant.leases.condition import Tone

_SOON_S = 1800
_BAR_WIDTH = 20
_METRICS = 3
_DO_FIRST = 3
"""At most this many leases that need a person stay at the top of the screen."""
NOTES = 3
"""At most this many of the newest notes are shown."""


@dataclass(frozen=True, slots=True)
class SilentBox:
    """A box that does not answer: since when, and the error."""

    since: datetime
    words: str


@dataclass(slots=True)
class LiveState:
    """The last known state of everything, and the time of it."""

    titles: Mapping[str, str]
    leases: Leases | None = None
    at: datetime | None = None
    trouble: str | None = None
    gpus: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, Watched] = field(default_factory=dict)
    blind: dict[str, SilentBox] = field(default_factory=dict)
    notes: deque[str] = field(default_factory=lambda: deque(maxlen=NOTES))

    def since_s(self, now: datetime) -> float:
        """How old the leases' figures are, in seconds."""
        return 0 if self.at is None else max(0.0, (now - self.at).total_seconds())


class Frame:
    """The whole screen. The top and the bottom stay in place, and the middle scrolls."""

    def __init__(self, seen: LiveState, now: datetime, *, from_line: int, keys: str) -> None:
        self._seen = seen
        self._now = now
        self._keys = keys
        self.from_line = from_line
        """The first line of the middle that is shown. Drawing the frame limits it to the existing lines."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height, free = options.height or console.height, options.reset_height()
        head = console.render_lines(self._head(), free)
        rows = len(self._cards) + 1 if self._cards else 0
        rest = console.render_lines(Group(*self._below_the_table()), free)
        room = max(1, height - len(head) - 1)
        self.from_line = max(0, min(self.from_line, rows + len(rest) - room))
        end = self.from_line + room
        shown = self._rows_in_sight(console, free, end) if self.from_line < rows else []
        shown += rest[max(0, self.from_line - rows) : max(0, end - rows)]
        below = rows + len(rest) - self.from_line - len(shown)
        shown += [[Segment("")]] * (room - len(shown))
        more = f"; {some(below, 'line')} below" if below else ""
        foot = _plain_text(self._keys + more, "dim")
        foot.no_wrap, foot.overflow = True, "ellipsis"
        for line in (*head, *shown, *console.render_lines(foot, free)):
            yield from line
            yield Segment.line()

    def _head(self) -> RenderableType:
        seen, lines = self._seen, []
        if seen.leases is None:
            lines.append(_plain_text("asking every provider…"))
        else:
            spent = seen.leases.spent_usd + sum(
                (_since(card, seen.since_s(self._now)) for card in seen.leases.leases), Decimal(0)
            )
            lines.append(_plain_text(sum_line(seen.leases.model_copy(update={"spent_usd": spent}))))
            lines.append(_plain_text(f"looked {span(seen.since_s(self._now))} ago", "dim"))
            if seen.leases.alarms:
                told = some(len(seen.leases.alarms), "alarm")
                lines[-1].append_text(_plain_text(f"; {told}, told below", "bold red"))
            lines += self._do_this()
        if seen.trouble is not None:
            lines.append(_plain_text(f"the last look failed: {seen.trouble}", "bold red"))
        return Group(*lines, Text(""))

    def _do_this(self) -> Iterator[Text]:
        """Yield what a person must do. This is at the top of the screen, and does not scroll away."""
        if self._seen.leases is None:
            return
        words = list(to_do(_as_seen(card, self._seen, self._now) for card in self._cards))
        if words:
            yield _plain_text("DO THIS", "bold red")
        yield from (_plain_text(f"  {line}", "bold") for line in words[:_DO_FIRST])
        if len(words) > _DO_FIRST:
            yield _plain_text(f"  and {len(words) - _DO_FIRST} more below", "bold")

    @property
    def _cards(self) -> tuple[Card, ...]:
        return self._seen.leases.leases if self._seen.leases else ()

    def _rows_in_sight(
        self, console: Console, options: ConsoleOptions, end: int
    ) -> list[list[Segment]]:
        """Draw only the visible lines of the table, down to `end`, because there may be thousands of lines."""
        first = self.from_line
        cards = self._cards[max(0, first - 1) : end - 1]
        table = _fit_table(cards, self._seen, self._now, console, options)
        # The table's heading is the first line of the middle.
        return console.render_lines(table, options)[min(first, 1) :]

    def _below_the_table(self) -> Iterator[RenderableType]:
        seen, shown = self._seen, self._seen.leases
        if shown is None:
            return
        if not shown.leases:
            yield _plain_text(
                "no lease is live: no box of ours is billing that this ledger knows of"
            )
        more = list(to_do(_as_seen(card, seen, self._now) for card in shown.leases))[_DO_FIRST:]
        yield from _with_title("DO THIS, TOO", [_plain_text(words, "bold") for words in more])
        yield from _with_title("ALARMS", [_plain_text(words, "red") for words in shown.alarms])
        yield from _with_title("JOBS", list(self._jobs(shown.leases)))
        yield from _with_title("IF THIS COMPUTER DIES", _meters(shown.leases))
        leaks = [
            f"{card.lease}: {card.phase}, {usd_words(card.leaking_usd_month)} a month"
            for card in shown.leases
            if card.leaking_usd_month is not None
        ]
        yield from _with_title("BILLS THOUGH NOTHING RUNS", [_plain_text(words) for words in leaks])
        yield from _with_title("NOT OURS", [_plain_text(_of_others(box)) for box in shown.foreign])
        yield from _with_title(
            "BILLS WITHOUT A BOX", [_plain_text(words) for words in shown.also_billing]
        )
        yield from _with_title("SWEEPS", [_plain_text(words) for words in shown.sweeps])
        yield from _with_title("NOTES", [_plain_text(words) for words in seen.notes])
        if shown.watched:
            yield from _with_title("WATCHED BY", [_plain_text(shown.watched)])

    def _jobs(self, cards: tuple[Card, ...]) -> Iterator[RenderableType]:
        for card in cards:
            watched, blind = self._seen.jobs.get(card.lease), self._seen.blind.get(card.lease)
            if blind is not None:
                yield _plain_text(
                    f"{card.lease}: no answer since {blind.since:%H:%M:%S} UTC, which does not mean that it has ended; "
                    f"its box is asked again ({blind.words})",
                    "yellow",
                )
            if watched is not None:
                yield from _job(watched, _course(card, self._seen.since_s(self._now)))


# Each column of the table is a function of a card, the state, and the age of the card in seconds.

_Column = tuple[str, Callable[[Card, LiveState, float], Text]]

_COLUMNS: tuple[_Column, ...] = (
    ("LEASE", lambda card, seen, past_s: _name(card.lease, "bold")),
    ("NAME", lambda card, seen, past_s: _plain_text(short(card.name))),
    (
        "PLATFORM",
        lambda card, seen, past_s: _name(seen.titles.get(card.provider, card.provider)),
    ),
    ("STATE", lambda card, seen, past_s: _state(card, seen)),
    ("GPU", lambda card, seen, past_s: _plain_text(_gpus(card, seen))),
    ("AGE", lambda card, seen, past_s: _plain_text(_age(card, past_s))),
    ("DEADLINE", lambda card, seen, past_s: _deadline(card, past_s)),
    ("USD/H", lambda card, seen, past_s: _plain_text(rate_words(card))),
    ("SPENT", lambda card, seen, past_s: _plain_text(_spent_words(card, past_s))),
    ("BY DEADLINE", lambda card, seen, past_s: Text(usd_words(card.forecast_deadline_usd))),
)
_LEFT_OUT_FIRST = ("PLATFORM", "AGE", "GPU", "BY DEADLINE", "NAME")
"""On a narrow terminal these columns are left out, in this order. All others are always shown."""


def _fit_table(
    cards: tuple[Card, ...],
    seen: LiveState,
    now: datetime,
    console: Console,
    options: ConsoleOptions,
) -> Table:
    """Build the table, with as many columns as fit."""
    for count in range(len(_LEFT_OUT_FIRST) + 1):
        columns = [column for column in _COLUMNS if column[0] not in _LEFT_OUT_FIRST[:count]]
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name, _ in columns:
            table.add_column(for_terminal(name), no_wrap=True)
        for card in cards:
            table.add_row(*(cell(card, seen, seen.since_s(now)) for _, cell in columns))
        wide = options.update(max_width=10_000)
        if Measurement.get(console, wide, table).maximum <= options.max_width:
            break
    return table


def _with_title(title: str, lines: Sequence[RenderableType]) -> Iterator[RenderableType]:
    if lines:
        yield Text(f"\n{for_terminal(title)}", style="bold")
        yield Padding(Group(*lines), (0, 0, 0, 2))


def _meters(cards: tuple[Card, ...]) -> list[Text]:
    """Say what ends each bill if this computer dies. Leases with the same answer share a line."""
    said: dict[str, list[str]] = {}
    for card in cards:
        if card.state.live:
            said.setdefault(card.stops_the_meter, []).append(card.lease)
    return [_plain_text(f"{', '.join(leases)}: {words}") for words, leases in said.items()]


def _of_others(box: Foreign) -> str:
    whose = f"of the gpu-tenant {box.deployment}; " if box.deployment else ""
    rate = _rate(box.price_usd_h)
    named = "".join(f", {words}" for words in (box.name, box.gpus) if words)
    return f"{box.box} at {box.provider}{named}, {box.state}, {rate} USD/h; {whose}left alone"


def _course(card: Card, past_s: float) -> str:
    """Say when the lease's job will have ended and what it will have cost by then. Empty if that is unknown."""
    if card.job_ends_in_s is None:
        return ""
    left = f"ends in {span(max(0.0, card.job_ends_in_s - past_s))}"
    if card.forecast_job_usd is None:
        return left
    return f"{left}, at about {usd_words(card.forecast_job_usd)}"


def _job(watched: Watched, course: str) -> Iterator[RenderableType]:
    code = "" if watched.exit_code is None else f", status {watched.exit_code}"
    at = watched.progress
    place = ""
    if at is not None and at.done is not None:
        whole = "" if at.total is None else f" of {at.total:g}"
        place = f", {at.unit} {at.done:g}{whole}"
    metrics = [f"{name}={value:g}" for name, value in (at.metrics if at else {}).items()]
    said = f"{watched.job} on {watched.lease}: {watched.state}{code}{place}"
    yield _plain_text("  ".join([said, *metrics[:_METRICS]]))
    if watched.alarm:
        yield _plain_text(f"  {watched.alarm}", "bold red")
    if watched.why:
        yield _plain_text(f"  {watched.why}", "red" if watched.state == "failed" else "")
    if watched.state in ENDED or watched.state == "absent":
        return
    line = Table.grid(padding=(0, 2, 0, 0))
    cells: list[RenderableType] = [_plain_text(_load(watched))]
    if at is not None and at.fraction is not None:
        bar = ProgressBar(total=1, completed=at.fraction, width=_BAR_WIDTH)
        cells = [bar, Text(f"{at.fraction:.0%}"), *cells]
    line.add_row(*cells)
    yield Padding(line, (0, 0, 0, 2))
    if course:
        yield _plain_text(f"  {course}")
    last = next((said for said in reversed(watched.log.split("\n")) if said.strip()), "")
    if last:
        words = _name(f"  {for_terminal('box says')}: {last.strip()}", "dim")
        words.no_wrap, words.overflow = True, "ellipsis"
        yield words


def _load(watched: Watched) -> str:
    """Say how much of its box the job uses."""
    gpus = [
        f"GPU {gpu.index} {_amount(gpu.util_pct)} % {_amount(gpu.mem_used_mib)}/{_amount(gpu.mem_total_mib)} MiB"
        for gpu in watched.gpus
    ]
    memory = f"memory {size(watched.memory_used_bytes)} of {size(watched.memory_limit_bytes)}"
    return "  ".join([*gpus, memory, f"disk free {size(watched.disk_free_bytes)}"])


def _amount(amount: float | None) -> str:
    return "unknown" if amount is None else f"{amount:g}"


_STYLES: Mapping[Tone, str] = {
    "good": "green",
    "accent": "cyan",
    "warn": "yellow",
    "bad": "bold red",
    "soft": "dim",
}


def _as_seen(card: Card, seen: LiveState, now: datetime | None = None) -> Card:
    """Return the card, updated by the newest state of its job and its box."""
    watched, blind = seen.jobs.get(card.lease), seen.blind.get(card.lease)
    if watched is None and blind is None:
        return card
    return card.with_job(
        watched.state if watched else None,
        blind=blind.words if blind else None,
        since_s=None
        if blind is None or now is None
        else max(0.0, (now - blind.since).total_seconds()),
    )


def _state(card: Card, seen: LiveState) -> Text:
    """Return the lease's condition, by the newest state of its job and its box."""
    blind, card = seen.blind.get(card.lease), _as_seen(card, seen)
    said = [card.condition.word]
    if blind is not None:
        said.append("no answer")
    if card.alarm:
        said.append("alarm")
    elif card.condition.is_wasted:
        said.append("bills on")
    return _plain_text(", ".join(said), _STYLES.get(card.condition.tone, ""))


def _gpus(card: Card, seen: LiveState) -> str:
    """Name the lease's GPUs, by its quote or else by what a job's box reported."""
    watched = seen.jobs.get(card.lease)
    # A row has one line, even if a box reports a GPU name with line breaks.
    names = [" ".join(gpu.name.split()) for gpu in watched.gpus] if watched else []
    return seen.gpus.get(card.lease, gpu_count(names[0], len(names)) if names else "unknown")


def gpu_count(gpu: str, count: int) -> str:
    """Return the GPU's name with its count."""
    return gpu if count == 1 else f"{gpu} x{count}"


def _age(card: Card, past_s: float) -> str:
    return span(card.age_s + (past_s if card.state.live else 0))


def _deadline(card: Card, past_s: float) -> Text:
    if card.deadline_in_s is None:
        return Text("-")
    left_s = card.deadline_in_s - past_s
    if left_s < 0:
        return _plain_text(f"passed {span(-left_s)} ago", "bold red")
    minutes, seconds = divmod(int(left_s), 60)
    hours, minutes = divmod(minutes, 60)
    return Text(f"{hours}:{minutes:02}:{seconds:02}", style="yellow" if left_s < _SOON_S else "")


def _rate(usd_h: Decimal | None) -> str:
    return "unknown" if usd_h is None else f"{usd_h.normalize():f}"


def _spent_words(card: Card, past_s: float) -> str:
    if card.cost_usd is None or card.bills == "nobody":
        return spent_words(card)
    return usd_words(card.cost_usd + _since(card, past_s))


def _since(card: Card, past_s: float) -> Decimal:
    """Return the lease's cost since the card was made, in USD. 0 if unknown."""
    if card.price_usd_h is None or card.cost_usd is None or not card.state.live:
        return Decimal(0)
    return (card.price_usd_h * Decimal(past_s) / 3600).quantize(USD_STEP)


def _plain_text(words: str, style: str = "") -> Text:
    """Return a sentence without markup and without characters that control a terminal, in the reader's language."""
    return Text(for_terminal(plain(words)), style=style)


def _name(words: str, style: str = "") -> Text:
    """Return a name, or words of a box, as they are, but without characters that control a terminal."""
    return Text(plain(words), style=style)
