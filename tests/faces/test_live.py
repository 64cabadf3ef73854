"""`leases --live` on a terminal of its own: what it shows, that its clock runs, and how it is left."""

import json
import os
import pty
import re
import selectors
import sqlite3
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from decimal import Decimal
from io import StringIO
from pathlib import Path

import looked
import pytest
from arranged import HandClock, eventually, lease, profile
from rich.console import Console

from gpu_tenant.domain.model import LeaseId, LeaseState
from gpu_tenant.domain.protection import protection
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.faces.cli.live_frame import Frame, LiveState, SilentBox
from gpu_tenant.leases.cards import Card, Leases, card, in_all

NOW = HandClock().now()
COUNTDOWN = re.compile(r"\b\d+:\d\d:\d\d\b")
IN_THE_WAY = """CREATE TRIGGER in_the_way BEFORE INSERT ON holds
 BEGIN SELECT raise(ABORT, 'in the way'); END"""
"""With it each look at a lease fails in a way that no program of ours foresees."""
ABSENT = """INSERT INTO sightings(lease_id, listed, at)
 SELECT id, 'omitted', '2026-11-20T12:00:00+00:00' FROM leases"""
"""With it the next look has something to write down."""
LEAVES_THE_SCREEN = (b"\x1b[?1049l", b"\x1b[?25h")


class Terminal:
    """A terminal of its own, with the live view on it, and all that was drawn there."""

    def __init__(self, home: Path, *argv: str) -> None:
        self._master, self._slave = pty.openpty()
        self.resize(80)
        self.before = termios.tcgetattr(self._slave)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "gpu_tenant", "leases", "--live", *argv],
            env={"PATH": os.environ["PATH"], "HOME": str(home), "TERM": "xterm-256color"},
            preexec_fn=lambda: os.login_tty(self._slave),
        )
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._master, selectors.EVENT_READ)
        self.drawn = b""

    def resize(self, columns: int) -> None:
        termios.tcsetwinsize(self._slave, (40, columns))

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def terminate(self) -> None:
        self._process.terminate()

    def frame(self) -> str:
        """What the last whole frame showed."""
        while self._selector.select(timeout=0):
            self.drawn += os.read(self._master, 65536)
        frames = self.drawn.split(b"\x1b[H")
        return plain(frames[-1 if len(frames) < 3 else -2].decode(errors="replace"))

    def shows(self, *words: str) -> bool:
        """Whether one frame shows all of it, soon."""
        return eventually(lambda: all(word in self.frame() for word in words))

    def left(self) -> int:
        """The status with which it has ended."""
        assert eventually(lambda: (self.frame(), self._process.poll())[1] is not None)
        self.frame()
        return self._process.wait()

    def is_as_before(self) -> bool:
        """Whether the keys, the cursor and the screen are as a shell left them."""
        shown = all(code in self.drawn for code in LEAVES_THE_SCREEN)
        return shown and termios.tcgetattr(self._slave) == self.before

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._selector.close()
        os.close(self._master)
        os.close(self._slave)


@contextmanager
def terminal(home: Path, *argv: str) -> Iterator[Terminal]:
    opened = Terminal(home, *argv)
    try:
        yield opened
    finally:
        opened.end()


def run(home: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpu_tenant", *argv],
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        check=False,
        timeout=120,
        env={"PATH": os.environ["PATH"], "HOME": str(home)},
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("live")


@pytest.fixture(scope="module")
def working(home: Path) -> Iterator[str]:
    """A lease on which a job runs that says what a terminal or a program might take for its own words."""
    tree = home / "tree"
    tree.mkdir()
    (tree / "a.sh").write_text(
        "printf '[red]step 3/10 loss=0.5[/red] \\033[2J[link=x]\\n'; exec sleep 600\n",
        encoding="utf-8",
    )
    made: str = json.loads(run(home, "provision", "--smoke", "none", "--json").stdout)["lease"]
    assert run(home, "push", "--lease", made, str(tree)).returncode == 0
    launched = run(home, "launch", "--lease", made, "--artifact", "out/", "--", "sh", "a.sh")
    assert launched.returncode == 0, launched.stderr
    yield made
    run(home, "stop", made, "--grace-s", "1")


def test_it_shows_the_lease_counts_down_and_q_leaves_the_terminal_as_it_was(
    home: Path, working: str
) -> None:
    with terminal(home) as seen:
        assert seen.shows(working, "ready", "DEADLINE", "USD/H", "SPENT", "nobody bills for it")
        first = COUNTDOWN.findall(seen.frame())
        assert eventually(lambda: COUNTDOWN.findall(seen.frame()) not in ([], first))
        assert "PLATFORM" not in seen.frame(), "80 columns have no room for it"
        seen.resize(160)
        assert seen.shows("PLATFORM", "AGE", "BY DEADLINE")

        seen.press(b"q")

        assert seen.left() == 0
        assert seen.is_as_before()


def test_the_words_of_a_box_are_shown_as_they_stand(home: Path, working: str) -> None:
    with terminal(home, "--every", "600") as seen:
        assert seen.shows("[red]step 3/10 loss=0.5[/red] [link=x]", "30%", "running, step 3 of 10")
        assert b"\x1b[2J" not in seen.drawn.split(b"\x1b[?1049h", 1)[1]


def test_a_box_that_does_not_answer_is_said_to_be_blind_and_is_seen_again(
    home: Path, working: str
) -> None:
    (box,) = (at for at in home.rglob("boxes/*") if at.name == working)
    with terminal(home, "--every", "600") as seen:
        assert seen.shows("running, step 3 of 10")
        aside = box.rename(home / "aside")

        assert seen.shows(f"{working}: no answer since", "which does not mean")
        assert "running, step 3 of 10" in seen.frame(), "what was seen last stays"
        aside.rename(box)

        assert eventually(lambda: "no answer since" not in seen.frame())


def test_what_nobody_foresaw_is_words_on_the_screen_and_the_view_goes_on(tmp_path: Path) -> None:
    made = json.loads(run(tmp_path, "provision", "--smoke", "none", "--json").stdout)["lease"]
    ledger = tmp_path / ".gpu-tenant" / "ledger.sqlite3"
    with terminal(tmp_path) as seen:
        assert seen.shows(made, "ready")
        _say_to(ledger, IN_THE_WAY)
        _say_to(ledger, ABSENT)
        seen.press(b"r")
        assert seen.shows(made, "looking at the lease failed: IntegrityError")

        _say_to(ledger, "DROP TRIGGER in_the_way")
        seen.press(b"r")

        assert eventually(lambda: "looking at the lease failed" not in seen.frame())
        seen.press(b"q")
        assert seen.left() == 0
        assert b"Traceback" not in seen.drawn


def _say_to(ledger: Path, sql: str) -> None:
    with closing(sqlite3.connect(ledger, isolation_level=None)) as db:
        db.execute(sql)


@pytest.mark.parametrize(("how", "status"), [(b"\x03", 130), ("TERM", 143)])
def test_ended_from_outside_it_leaves_the_terminal_as_it_was(
    how: bytes | str, status: int, home: Path
) -> None:
    with terminal(home) as seen:
        assert seen.shows("q leaves")

        if isinstance(how, bytes):
            seen.press(how)
        else:
            seen.terminate()

        assert seen.left() == status
        assert seen.is_as_before()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--live",), "`gpu-tenant leases --json`"),
        (("--live", "--json"), "--live is for a person"),
        (("--every", "30"), "--every goes with --live"),
    ],
)
def test_where_nobody_looks_it_says_what_to_ask_instead(
    argv: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    ran = run(tmp_path, "leases", *argv)

    assert ran.returncode == 2
    assert words in ran.stderr
    assert "\x1b" not in ran.stdout + ran.stderr


# Frames of leases that cost money


def rented(name: str, *, usd_h: str | None = "3.60", alarm: str | None = None) -> Card:
    standing = lease(
        lease_id=LeaseId(name),
        provider="tiny",
        price_usd_h=None if usd_h is None else Decimal(usd_h),
    )
    tiny = profile("tiny")
    return card(
        standing, tiny, jobs=(), alarm=alarm, now=NOW, protection=protection(tiny, standing, None)
    )


def told(*cards: Card, alarms: tuple[str, ...] = ()) -> Leases:
    return in_all(cards, alarms=alarms, foreign=(), leftovers=(), unseen=(), free={"own"})


def drawn(
    seen: LiveState, *, after_s: float = 0, width: int = 80, height: int = 24, from_line: int = 0
) -> list[str]:
    console = Console(file=StringIO(), width=width, height=height, color_system=None)
    frame = Frame(seen, NOW + timedelta(seconds=after_s), from_line=from_line, keys="q leaves")
    console.print(frame, end="", height=height)
    assert isinstance(console.file, StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_between_two_looks_what_was_spent_grows_and_the_deadline_comes_nearer() -> None:
    seen = LiveState({"tiny": "Tiny"}, leases=told(rented("tiny-a")), at=NOW)

    now, later, late = (" ".join(drawn(seen, after_s=s)) for s in (0, 600, 1e6))

    assert "0.0000" in now
    assert "0.6000" in later
    assert "spent in all 0.6000 USD" in later
    assert COUNTDOWN.findall(now) != COUNTDOWN.findall(later)
    assert "passed" in late


def test_a_job_that_failed_on_a_box_that_bills_and_a_silent_box_are_not_shown_as_fine() -> None:
    seen = LiveState({"tiny": "Tiny"}, leases=told(*map(rented, ("tiny-a", "tiny-b", "tiny-c"))))
    for name, state in (("tiny-a", "failed"), ("tiny-b", "running"), ("tiny-c", "running")):
        seen.jobs[name] = looked.seen(job="job1", lease=name).model_copy(update={"state": state})
    seen.blind["tiny-b"] = SilentBox(NOW, "no route")

    lines = drawn(seen, width=120)

    def row(name: str) -> str:
        return next(line for line in lines if line.startswith(name))

    assert "job failed, bills on" in row("tiny-a")
    assert "ready, no answer" in row("tiny-b")
    assert "ready  " in row("tiny-c")


def test_on_the_smallest_screen_what_needs_a_person_is_above_all_else_with_its_cost() -> None:
    cards = [rented(f"tiny-{number:02}") for number in range(30)]
    cards[20] = cards[20].with_job("failed", since_s=3600)
    seen = LiveState({"tiny": "Tiny"}, leases=told(*cards), at=NOW)
    seen.blind["tiny-25"] = SilentBox(NOW, "no route")

    top = drawn(seen, after_s=600)
    scrolled = drawn(seen, after_s=600, from_line=20)

    for screen in (top, scrolled):
        words = " ".join(" ".join(screen).split())
        assert "DO THIS tiny-20: job failed 60 min ago, its box bills on" in words
        assert "3.60 USD since" in words
        assert "collect tiny-20" in words
        assert "tiny-25: its box has not answered for 10 min" in words
        assert len(screen) == 24
    assert any(line.startswith("tiny-00") for line in top), "the table keeps its place"


def test_what_is_unknown_is_never_counted_as_nothing() -> None:
    seen = LiveState({}, leases=told(rented("tiny-a", usd_h=None)), at=NOW)

    row = next(line for line in drawn(seen, after_s=600) if line.startswith("tiny-a "))

    assert row.count("unknown") >= 2
    assert "0.0" not in row


def test_alarms_and_blindness_are_words_and_stay_on_the_screen_of_many_leases() -> None:
    cards = [rented(f"tiny-{number:02}", alarm="[b]wakes[/b] you") for number in range(60)]
    seen = LiveState({}, leases=told(*cards, alarms=("tiny-00: [b]wakes[/b] you",)), at=NOW)
    seen.blind["tiny-07"] = SilentBox(NOW, "no route [/]")

    top = drawn(seen)
    end = drawn(seen, from_line=10_000)

    assert len(top) == len(end) == 24
    assert "1 alarm, told below" in " ".join(top)
    assert "lines below" in top[-1]
    assert any("tiny-00" in line and "alarm" in line for line in top)
    pages = [line for at in range(0, 300, 8) for line in drawn(seen, from_line=at)]
    assert any(line.strip() == "tiny-00: [b]wakes[/b] you" for line in pages)
    assert "tiny-07: no answer since" in " ".join(pages)
    assert any("no route [/]" in line for line in pages)
    assert "below" not in end[-1]


def test_of_thousands_of_leases_only_those_in_sight_are_laid_out() -> None:
    ended = rented("tiny").model_copy(update={"state": LeaseState.GONE})
    cards = (ended.model_copy(update={"lease": f"tiny-{number:04}"}) for number in range(3000))
    seen = LiveState({"tiny": "Tiny"}, leases=told(*cards), at=NOW)

    began = time.process_time()
    top, middle, end = (drawn(seen, from_line=line) for line in (0, 1500, 10_000))

    assert time.process_time() - began < 2
    assert any(line.startswith("LEASE") for line in top)
    (row, *_) = (at for at, line in enumerate(top) if line.startswith("tiny-0000"))
    assert middle[row - 1].startswith("tiny-1499"), "the head of the table is its first line"
    assert any(line.startswith("tiny-2999") for line in end)
    assert {len(top), len(middle), len(end)} == {24}


def test_it_tells_what_the_job_will_cost_and_what_a_parked_lease_leaks() -> None:
    card = rented("tiny-a").model_copy(
        update={"job_ends_in_s": 7200, "forecast_job_usd": Decimal("7.2"), "jobs": ("job1",)}
    )
    still = rented("tiny-b").model_copy(
        update={"phase": "parked", "leaking_usd_month": Decimal(72)}
    )
    seen = LiveState({"tiny": "Tiny"}, leases=told(card, still), at=NOW)
    seen.jobs["tiny-a"] = looked.seen(job="job1", lease="tiny-a").model_copy(
        update={"alarm": "its loss is [b]no number[/b]"}
    )

    shown = drawn(seen, after_s=3600, width=120, height=40)

    assert any(line.strip() == "ends in 60 min, at about 7.20 USD" for line in shown)
    assert any(line.strip() == "its loss is [b]no number[/b]" for line in shown)
    assert any(line.strip() == "tiny-b: parked, 72.00 USD a month" for line in shown)


def test_every_line_fits_the_terminal() -> None:
    seen = LiveState(
        {"tiny": "A platform of a long name"}, leases=told(rented("tiny-abcd")), at=NOW
    )
    seen.trouble = "x" * 300

    for width in (40, 80, 120, 200):
        assert max(map(len, drawn(seen, width=width))) <= width
