"""Decides which box takes which cell next, by the length of each box's queue relative to its slots."""

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

B = TypeVar("B", bound=str)


@dataclass(frozen=True, slots=True)
class Load:
    """What a box has to do."""

    slots: int
    """How many cells the box runs at the same time. With 0, it takes nothing more."""
    ahead: int
    """How many cells run or wait on the box."""
    movable: Sequence[str] = ()
    """The waiting cells that can still move to another box, in the order of the queue."""


def deal(cells: Sequence[str], loads: Mapping[B, Load], *, prefer: Mapping[str, B]) -> dict[str, B]:
    """Give each cell to its preferred box, if that box takes cells.

    Otherwise, give it to the box with the shortest queue.

    If no box takes any cells, the cells wait. That is no error.
    """
    dealt: dict[str, B] = {}
    ahead = {box: load.ahead for box, load in loads.items() if load.slots}
    if not ahead:
        return dealt
    order = {box: place for place, box in enumerate(ahead)}
    heap = [(count / loads[box].slots, order[box], box) for box, count in ahead.items()]
    heapq.heapify(heap)
    for cell in sorted(cells, key=lambda cell: cell not in prefer):
        if (wanted := prefer.get(cell)) in ahead:
            dealt[cell] = wanted
            ahead[wanted] += 1
            heapq.heappush(heap, (ahead[wanted] / loads[wanted].slots, order[wanted], wanted))
            continue
        rounds, _, box = heapq.heappop(heap)
        # Since this entry was put on the heap, the box's queue may have grown.
        while rounds != ahead[box] / loads[box].slots:
            rounds, _, box = heapq.heappop(heap)
        dealt[cell] = box
        ahead[box] += 1
        heapq.heappush(heap, (ahead[box] / loads[box].slots, order[box], box))
    return {cell: dealt[cell] for cell in cells}


def surplus(loads: Mapping[B, Load]) -> dict[B, list[str]]:
    """Choose which cells to take from the ends of which queues, because a box has free slots or takes nothing more.

    Nothing moves while every box is busy, because moving a cell costs two calls. A box that takes nothing
    more gives up everything that can move.
    """
    taken: dict[B, list[str]] = {
        box: list(load.movable) for box, load in loads.items() if not load.slots and load.movable
    }
    ahead = {box: load.ahead for box, load in loads.items() if load.slots}
    if not any(count < loads[box].slots for box, count in ahead.items()):
        return taken
    left = {box: list(loads[box].movable) for box in ahead}
    # A cell for which its own box has a free slot begins at once. So a box with free slots gives
    # nothing away.
    while donors := [box for box in ahead if left[box] and ahead[box] > loads[box].slots]:
        giver = max(donors, key=lambda box: ahead[box] / loads[box].slots)
        taker = min(ahead, key=lambda box: ahead[box] / loads[box].slots)
        # On the other box, the cell would wait at least as long.
        if (ahead[taker] + 1) / loads[taker].slots > (ahead[giver] - 1) / loads[giver].slots:
            break
        taken.setdefault(giver, []).append(left[giver].pop())
        ahead[giver] -= 1
        ahead[taker] += 1
    return taken
