"""The real clock."""

import asyncio
from datetime import UTC, datetime


class WallClock:
    """This computer's clock, and the event loop's sleep."""

    shared_with_boxes = True

    def now(self) -> datetime:
        """Implement `Clock.now`."""
        return datetime.now(UTC)  # noqa: TID251 - the one place

    async def sleep(self, seconds: float) -> None:
        """Implement `Clock.sleep`."""
        await asyncio.sleep(seconds)

    async def follow(self, seconds: float) -> None:
        """Implement `Clock.follow`."""
        await asyncio.sleep(seconds)
