"""A provider of a few lines: boxes in a list, and what goes wrong next, said beforehand."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import count

from arranged import HandClock, offer

from gpu_tenant.domain.errors import NoCapacity, ProviderSilent
from gpu_tenant.domain.model import Box, BoxId, BoxState, Lease, SshAddress
from gpu_tenant.domain.offers import Leftover, Offer, Wish
from gpu_tenant.domain.permit import TeardownPermit, genuine


class TinyProvider:
    """Makes, lists and destroys boxes at half a dollar an hour, in memory."""

    def __init__(self, clock: HandClock, slug: str = "tiny") -> None:
        self.slug = slug
        self.asked: list[str] = []
        """Every verb that was asked of it, in order."""
        self.boxes: dict[BoxId, Box] = {}
        self.unlisted: set[BoxId] = set()
        """Boxes that exist, and that its list does not show (yet)."""
        self.immortal: set[BoxId] = set()
        """Boxes that stay, whatever it is told."""
        self._clock = clock
        self._ids = (BoxId(f"b{n}") for n in count(1))
        self._wrong: dict[str, deque[tuple[str, Exception]]] = defaultdict(deque)
        self._due: list[tuple[datetime, Callable[[], object]]] = []

    # --- what a test says beforehand

    def refuses(self, verb: str, *errors: Exception) -> None:
        """The next calls of `verb` fail so, and do nothing."""
        self._wrong[verb] += [("before", error) for error in errors]

    def loses(self, verb: str, *errors: Exception) -> None:
        """The next calls of `verb` are carried out, and fail so."""
        self._wrong[verb] += [("after", error) for error in errors]

    def later(self, seconds: float, happens: Callable[[], object]) -> None:
        """After so long, by the clock, it happens."""
        self._due.append((self._clock.now() + timedelta(seconds=seconds), happens))

    def rent(self, mark: str | None, **more: object) -> Box:
        """A box with that mark exists."""
        box = Box(
            provider=self.slug,
            id=next(self._ids),
            mark=mark,
            state=BoxState.READY,
            address=SshAddress(target="root@198.51.100.7:2222"),
            price_usd_h=Decimal("0.50"),
            created_at=self._clock.now(),
        ).model_copy(update=more)
        self.boxes[box.id] = box
        return box

    def change(self, box_id: BoxId | None, **more: object) -> None:
        """That box is different now."""
        assert box_id is not None
        self.boxes[box_id] = self.boxes[box_id].model_copy(update=more)

    @contextmanager
    def _carried_out(self, verb: str) -> Iterator[None]:
        self.asked.append(verb)
        due = [(at, happens) for at, happens in self._due if at <= self._clock.now()]
        self._due = [each for each in self._due if each not in due]
        for _, happens in due:
            happens()
        when, error = self._wrong[verb].popleft() if self._wrong[verb] else ("", None)
        if error is not None and when == "before":
            raise error
        yield
        if error is not None:
            raise error

    # --- Connector

    async def create(self, lease: Lease) -> Box:
        with self._carried_out("create"):
            made = [box for box in self.boxes.values() if box.mark == lease.mark]
            return made[0] if made else self.rent(lease.mark)

    async def list_boxes(self) -> list[Box]:
        with self._carried_out("list"):
            return [box for box in self.boxes.values() if box.id not in self.unlisted]

    async def destroy(self, permit: TeardownPermit) -> None:
        box_id = genuine(permit, provider=self.slug).box_id
        with self._carried_out("destroy"):
            if box_id not in self.immortal:
                self.boxes.pop(box_id, None)


class TinyMarket(TinyProvider):
    """One that has offers."""

    def __init__(self, clock: HandClock, slug: str = "tiny") -> None:
        super().__init__(clock, slug)
        self.shelf: list[Offer] = [offer(provider=slug)]
        self.wishes: list[Wish] = []

    async def offers(self, wish: Wish) -> list[Offer]:
        with self._carried_out("offers"):
            self.wishes.append(wish)
            return [each for each in self.shelf if wish.offer in (None, each.id)]


class TinyParking(TinyProvider):
    """One that can stop a box and keep its disk, for two cents an hour."""

    def __init__(self, clock: HandClock, slug: str = "tiny") -> None:
        super().__init__(clock, slug)
        self.after_resume: dict[str, object] = {}
        """What is different of a box that was started again."""

    async def park(self, lease: Lease) -> None:
        with self._carried_out("park"):
            self.change(lease.box_id, state=BoxState.PARKED, price_usd_h=Decimal("0.02"))

    async def resume(self, lease: Lease) -> None:
        with self._carried_out("resume"):
            self.change(lease.box_id, state=BoxState.BOOTING, price_usd_h=Decimal("0.50"))
            self.change(lease.box_id, **self.after_resume)


class TinyResidue(TinyProvider):
    """One that bills for disks, too."""

    def __init__(self, clock: HandClock, slug: str = "tiny") -> None:
        super().__init__(clock, slug)
        self.disks: list[Leftover] = []

    async def leftovers(self) -> list[Leftover]:
        with self._carried_out("leftovers"):
            return list(self.disks)


def no_answer() -> ProviderSilent:
    return ProviderSilent("no answer", remedy="look again")


def nothing_free() -> NoCapacity:
    return NoCapacity("it is gone", remedy="`gpu-tenant offers` shows others")


def leftover(name: str, *, mark: str | None = None) -> Leftover:
    return Leftover(
        provider="tiny",
        kind="disk",
        id=name,
        name=name,
        mark=mark,
        size_gb=40,
        usd_month=Decimal("4.00"),
    )
