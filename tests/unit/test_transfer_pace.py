"""A transfer finds how many connections its link repays, and keeps to those."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from gpu_tenant.transfer.concurrency import FAR, MOST, Pace

MB = 1_000_000
LOOK_S = 0.05
FIRST = Pace().look(0, 0, working=0, most=MOST)
Link = Callable[[int], float]
"""How many bytes come in a second over so many connections."""


@dataclass
class Run:
    """One transfer over a link, looked at as often as the carriage does; connections come at once."""

    link: Link
    most: int = MOST
    pace: Pace = field(default_factory=Pace)
    now_s: float = 100.0
    done_bytes: float = 0.0
    working: int = 0
    busy: float = 0.0
    """How much of a core this process takes."""
    counts: list[int] = field(default_factory=list)
    """How many there were to be, each time that this changed."""

    def goes_on(self, seconds: float) -> int:
        """How many there are to be so much later."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += LOOK_S
            self.done_bytes += self.link(self.working) * LOOK_S
            wanted = self.pace.look(
                self.now_s,
                int(self.done_bytes),
                working=self.working,
                most=self.most,
                busy_s=self.busy * self.now_s,
            )
            if not self.counts or wanted != self.counts[-1]:
                self.counts.append(wanted)
            self.working = wanted
        return self.working


def shared(rate: float) -> Link:
    return lambda n: rate if n else 0.0


def capped(each: float, rate: float) -> Link:
    return lambda n: min(n * each, rate)


def test_it_begins_with_a_few() -> None:
    assert 1 < FIRST <= 4
    assert Run(shared(100 * MB)).goes_on(LOOK_S) == FIRST


@pytest.mark.parametrize("rate", [0.1 * MB, 10 * MB, 1000 * MB])
def test_where_one_fills_the_link_it_settles_on_the_few_it_began_with(rate: float) -> None:
    run = Run(shared(rate))

    assert run.goes_on(20) == FIRST
    assert run.pace.settled
    assert max(run.counts) <= 2 * FIRST


def test_where_each_brings_its_own_rate_it_goes_to_the_most() -> None:
    run = Run(capped(1 * MB, 1000 * MB))

    assert run.goes_on(20) == MOST
    assert run.pace.settled
    assert run.counts == sorted(run.counts), "it never gave any back"


def test_where_this_process_has_no_time_left_no_more_are_opened() -> None:
    idle, busy = Run(capped(1 * MB, 1000 * MB)), Run(capped(1 * MB, 1000 * MB), busy=0.9)

    assert (idle.goes_on(20), busy.goes_on(20)) == (MOST, FIRST)


@pytest.mark.parametrize("fills", [2, 6, 8, 12, 16, 24, 32, 48])
def test_it_settles_where_the_link_is_nearly_full_and_on_few_more_than_fill_it(fills: int) -> None:
    link = capped(100 * MB / fills, 100 * MB)
    run = Run(link)

    settled = run.goes_on(25)

    assert run.pace.settled
    assert link(settled) >= 80 * MB
    assert settled <= max(FIRST, 4 * fills)


def test_what_more_connections_make_slower_is_given_back() -> None:
    run = Run(lambda n: 100 * MB / max(1, n / FIRST))

    assert run.goes_on(10) == FIRST
    assert run.pace.settled


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_a_tenth_does_not_lead_it_astray(seed: int) -> None:
    chance = random.Random(seed)
    few = Run(lambda n: 50 * MB * chance.uniform(0.9, 1.1))
    many = Run(lambda n: n * MB * chance.uniform(0.9, 1.1))

    assert few.goes_on(25) <= 2 * FIRST
    assert many.goes_on(25) >= MOST // 2


def test_it_looks_a_bounded_number_of_times_until_it_settles() -> None:
    for link in (shared(50 * MB), capped(MB, 1000 * MB), capped(9 * MB, 100 * MB)):
        run = Run(link)
        while not run.pace.settled:
            run.goes_on(LOOK_S)
            assert run.now_s < 110, "within ten seconds"
        assert len(run.counts) <= 6


def test_settled_it_tries_again_later_and_goes_by_what_the_link_is_then() -> None:
    run = Run(shared(20 * MB))
    assert run.goes_on(15) == FIRST

    run.link = capped(5 * MB, 1000 * MB)

    assert run.goes_on(10) == FIRST, "not yet"
    assert run.goes_on(40) == MOST


def test_a_link_that_stays_as_it_was_is_tried_seldom() -> None:
    run = Run(shared(20 * MB))
    run.goes_on(300)

    assert max(run.counts) <= 2 * FIRST
    assert len(run.counts) <= 1 + 2 * 11
    more = sum(n > FIRST for n in run.counts)
    assert more <= 11


def test_it_never_wants_more_than_it_may_have() -> None:
    run = Run(capped(1 * MB, 1000 * MB), most=2)
    assert run.goes_on(5) == 2
    run.most = 40
    run.goes_on(60)
    assert max(run.counts) == run.working == 40
    run.most = 3
    assert run.goes_on(LOOK_S) == 3, "at once"
    run.most = 1
    assert run.goes_on(60) == 1


def test_until_all_that_are_wanted_work_nothing_is_decided() -> None:
    pace = Pace()
    for look in range(400):
        wanted = pace.look(look * LOOK_S, look * MB, working=FIRST - 1, most=MOST)
        assert wanted == FIRST
    assert not pace.settled


def test_a_long_way_is_given_time_to_find_its_speed() -> None:
    run = Run(capped(1 * MB, 1000 * MB))
    run.pace.round_trip_s = 0.3

    assert run.goes_on(2.5) <= 4, "not before ten round trips"
    assert run.goes_on(30) == MOST


def test_nothing_that_comes_is_no_reason_for_more() -> None:
    run = Run(shared(0))

    run.goes_on(20)

    assert run.counts[-1] in (FIRST, MOST)
    assert run.pace.settled


@dataclass
class Far(Run):
    """A far link that many share: what is sent above its rate stands in a queue, as a round trip shows."""

    rate: float = 100 * MB
    each: Callable[[float], float] = lambda age_s: 10 * MB
    """What one connection carries, by how long all have been there."""
    begins_s: float = 0.0

    def __post_init__(self) -> None:
        self.pace.round_trip_s = 0.08
        self.link = self._carried
        self.begins_s = self.now_s

    def _carried(self, count: int) -> float:
        offered = count * self.each(self.now_s - self.begins_s)
        self.pace.queued_s = 0.1 if offered >= self.rate else 0.0
        return min(offered, self.rate)


def far(rate: float, each: Callable[[float], float]) -> Far:
    return Far(shared(0), rate=rate, each=each)


def test_a_far_link_that_is_full_is_given_no_more_and_nothing_is_given_back() -> None:
    run = far(20 * MB, lambda age_s: 6 * MB)

    assert run.goes_on(60) == FAR
    assert run.pace.settled
    assert set(run.counts) <= {FIRST, FAR}


def test_as_long_as_a_far_link_is_not_full_it_is_given_more() -> None:
    assert far(50 * MB, lambda age_s: 1 * MB).goes_on(20) == MOST
    assert 8 <= far(100 * MB, lambda age_s: 10 * MB).goes_on(20) <= 16


def test_the_first_speed_of_connections_that_lose_it_again_does_not_end_the_search() -> None:
    def lossy(age_s: float) -> float:
        return 5 * MB if age_s < 2 else 0.6 * MB

    run = far(25 * MB, lossy)

    run.goes_on(12)

    assert run.link(run.working) >= 0.8 * 25 * MB


def test_where_a_far_link_sags_later_what_was_given_back_is_taken_again_and_more() -> None:
    run = far(1000 * MB, lambda age_s: 25 * MB / max(4, run.working) if age_s < 10 else MB)
    assert run.goes_on(9) == FAR, "more of them were no faster, although nothing stood in a queue"

    assert run.goes_on(10) >= 32


def test_connections_that_are_still_gaining_speed_are_waited_for() -> None:
    run = far(70 * MB, lambda age_s: min(18 * MB, age_s * 8 * MB))

    run.goes_on(10)

    assert run.working == FAR
    assert set(run.counts) <= {FIRST, FAR}


def test_only_a_far_box_is_given_spare_connections_and_only_while_it_is_not_settled() -> None:
    near, run = Run(shared(100 * MB)), far(20 * MB, lambda age_s: 6 * MB)
    near.goes_on(LOOK_S)
    run.goes_on(LOOK_S)
    assert (near.pace.spare, run.pace.spare) == (0, FAR)

    run.goes_on(20)

    assert run.pace.spare == 0


def test_nothing_that_comes_over_a_far_link_is_no_reason_to_wait_for_ever() -> None:
    run = far(1000 * MB, lambda age_s: 0)

    run.goes_on(20)

    assert run.pace.settled


@pytest.mark.parametrize("seed", range(5))
def test_noise_of_a_fifth_does_not_gather_connections_over_a_far_link(seed: int) -> None:
    chance = random.Random(seed)
    run = far(1000 * MB, lambda age_s: chance.uniform(8, 12) * MB / max(4, run.working))

    run.goes_on(120)

    assert run.working <= 2 * FAR


def test_what_did_not_pay_at_other_times_does_not_forbid_an_answer_to_a_sag() -> None:
    run = far(1000 * MB, lambda age_s: 25 * MB / max(4, run.working) if age_s < 85 else MB)
    assert run.goes_on(84) == FAR, "it tried more again and again, in vain"

    assert run.goes_on(8) > 2 * FAR, "at once, and not when it would have tried again"


def test_what_its_own_limit_holds_back_is_given_no_more() -> None:
    run = far(1000 * MB, lambda age_s: 2 * MB / max(1, run.working))
    run.link, run.pace.queued_s = shared(2 * MB), math.inf

    run.goes_on(60)

    assert max(run.counts) == FAR
