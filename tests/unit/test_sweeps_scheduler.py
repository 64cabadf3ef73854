"""Cells go where the queue is short for what a box runs at once, and leave a long one for an idle box."""

from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from gpu_tenant.sweeps.scheduler import Load, deal, surplus

loads_of = st.dictionaries(
    st.sampled_from("abcd"),
    st.builds(
        lambda slots, running, queued: Load(
            slots, running + queued, [str(n) for n in range(queued)]
        ),
        st.integers(0, 4),
        st.integers(0, 4),
        st.integers(0, 9),
    ),
    min_size=1,
)


def test_cells_are_dealt_by_slots() -> None:
    cells = [str(n) for n in range(12)]

    dealt = deal(cells, {"a": Load(1, 0), "b": Load(3, 0), "c": Load(0, 0)}, prefer={})

    assert Counter(dealt.values()) == {"a": 3, "b": 9}
    assert list(dealt) == cells


def test_a_cell_that_is_to_run_again_goes_where_it_ran_if_that_takes_any() -> None:
    loads = {"a": Load(1, 9), "b": Load(1, 0)}

    assert deal(["x"], loads, prefer={"x": "a"}) == {"x": "a"}
    assert deal(["x"], loads, prefer={"x": "gone"}) == {"x": "b"}
    assert deal(["x"], {"a": Load(0, 0)}, prefer={"x": "a"}) == {}


def test_nothing_moves_while_every_box_is_busy() -> None:
    assert surplus({"a": Load(1, 9, [*map(str, range(8))]), "b": Load(1, 1)}) == {}


def test_the_end_of_a_long_queue_goes_to_an_idle_box() -> None:
    assert surplus({"a": Load(1, 5, ["1", "2", "3", "4"]), "b": Load(1, 0)}) == {"a": ["4", "3"]}


def test_what_cannot_begin_where_it_is_leaves_though_every_box_is_busy() -> None:
    assert surplus({"a": Load(0, 2, ["1", "2"]), "b": Load(1, 1)}) == {"a": ["1", "2"]}


@example({"a": Load(2, 0), "b": Load(2, 2, ["0", "1"])})
@given(loads_of)
def test_no_box_ends_up_with_more_to_wait_for_than_it_took_over(
    loads: dict[str, Load],
) -> None:
    taken = surplus(loads)

    for box, cells in taken.items():
        assert set(cells) <= set(loads[box].movable)
        if slots := loads[box].slots:
            assert loads[box].ahead - len(cells) >= slots, "a box gave away what it could have run"
