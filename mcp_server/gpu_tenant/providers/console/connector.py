"""Boxes that a person rents, starts, stops and ends in a platform's console, because there is no API for it.

The program proves that nothing would be lost, tells the person what to do, and believes the person who says that it
is done. It does not believe the person if the box still answers.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, OwnerMustAct, PartlyListed
from gpu_tenant.domain.model import Box, BoxId, BoxState, Lease, Profile, SshAddress
from gpu_tenant.domain.offers import Attachable, Leftover, Offer, Wish
from gpu_tenant.domain.order import AtProvider
from gpu_tenant.domain.permit import (
    TeardownPermit,
    VolumePermit,
    Waived,
    genuine,
    genuine_for_volume,
)
from gpu_tenant.domain.ports import (
    Accounted,
    Asking,
    Connector,
    Findable,
    Growing,
    Imaging,
    Market,
    Outlived,
    Outliving,
    Parking,
    Reclaiming,
    Residue,
    Storing,
    Timed,
)
from gpu_tenant.domain.volumes import ListedVolume, Volume
from gpu_tenant.providers.console.registry import Lent


class ByHand:
    """A connector that keeps its own list of boxes, and asks a person to act."""

    def __init__(self, profile: Profile, directory: Path) -> None:
        self._profile = profile
        self.provider = profile.id
        self._lent = Lent(profile.id, directory)

    async def create(self, lease: Lease) -> Box:
        """Implement `Connector.create`: put the box that its owner named on the list, under this lease."""
        return self._lent.lend(lease)

    async def list_boxes(self) -> list[Box]:
        """Implement `Connector.list_boxes`: return the boxes whose end no person has attested yet."""
        return self._lent.boxes()

    async def destroy(self, permit: TeardownPermit) -> None:
        """Implement `Connector.destroy`: ask a person to end the box, because only a person can.

        Raises:
            OwnerMustAct: the box is on the list; the error tells the person what to do. The box is unchanged.
        """
        permit = genuine(permit, provider=self._profile.id)
        if self._lent.find(permit.box_id) is not None:
            lost = (
                "a person has signed for what would be lost"
                if isinstance(permit.ground, Waived)
                else "nothing on it would be lost"
            )
            raise OwnerMustAct(
                f"{lost}, and only a person can end it: {self._profile.console_words('destroy')}",
                remedy="when the console shows that it is gone, "
                f"{Command('teardown', permit.lease_id, ended=True)}",
            )

    async def park(self, lease: Lease) -> None:
        """Implement `Parking.park`: record that the box was stopped, by a command on it or by a person."""
        self._change(lease, state=BoxState.PARKED)

    async def resume(self, lease: Lease) -> None:
        """Implement `Parking.resume`: record that a person has started the box again."""
        self._change(lease, state=BoxState.READY)

    def tends(self, box_id: BoxId | None) -> bool:
        """Implement `Tended.tends`."""
        return box_id is not None and self._lent.find(box_id) is not None

    def note_moved(self, lease: Lease, address: SshAddress) -> None:
        """Implement `Tended.note_moved`."""
        self._change(lease, address=address)

    def note_ended(self, lease: Lease) -> None:
        """Implement `Tended.note_ended`."""
        if lease.box_id is not None:
            self._lent.remove(lease.box_id)

    def _change(self, lease: Lease, **change: object) -> None:
        box = self._lent.find(lease.box_id) if lease.box_id else None
        if box is not None:
            self._lent.write(box.model_copy(update=change))


class Both:
    """The connector of a platform with an API for some of its boxes, and only a console for the others."""

    def __init__(self, api: Connector, by_hand: ByHand) -> None:
        self._api = api
        self._by_hand = by_hand
        self.has_registry_logins = isinstance(api, Imaging) and api.has_registry_logins

    def refused_image(self, source: AtProvider) -> str | None:
        """Implement `Imaging.refused_image`, for the boxes that the API makes."""
        if isinstance(self._api, Imaging):
            return self._api.refused_image(source)
        return "its boxes start from its own images, and an order cannot name another"

    async def offers(self, wish: Wish) -> Sequence[Offer]:
        """Implement `Market.offers`."""
        return await self._api.offers(wish) if isinstance(self._api, Market) else []

    async def create(self, lease: Lease) -> Box:
        """Implement `Connector.create`: the box was rented by a quote, or named by its owner."""
        return await (self._api if lease.quote else self._by_hand).create(lease)

    async def list_boxes(self) -> list[Box]:
        """Implement `Connector.list_boxes`."""
        by_hand = await self._by_hand.list_boxes()
        try:
            return [*await self._api.list_boxes(), *by_hand]
        except PartlyListed as part:
            raise PartlyListed(
                part.message, remedy=part.remedy, shown=[*part.shown, *by_hand]
            ) from None

    async def find_box(self, lease: Lease) -> Box | None:
        """Implement `Findable.find_box`. None also if the API cannot look up one box."""
        if self.tends(lease.box_id) or not isinstance(self._api, Findable):
            return None
        return await self._api.find_box(lease)

    async def destroy(self, permit: TeardownPermit) -> None:
        """Implement `Connector.destroy`."""
        permit = genuine(permit, provider=self._by_hand.provider)
        await (self._by_hand if self.tends(permit.box_id) else self._api).destroy(permit)

    async def park(self, lease: Lease) -> None:
        """Implement `Parking.park`."""
        await self._parking(lease).park(lease)

    async def resume(self, lease: Lease) -> None:
        """Implement `Parking.resume`."""
        await self._parking(lease).resume(lease)

    def asked_with(self, salt: str) -> Asking | None:
        """Implement `Accounted.asked_with`. None if all boxes are rented in the console."""
        return self._api.asked_with(salt) if isinstance(self._api, Accounted) else None

    async def account(self) -> str | None:
        """Implement `Accounted.account`."""
        return await self._api.account() if isinstance(self._api, Accounted) else None

    async def leftovers(self) -> Sequence[Leftover]:
        """Implement `Residue.leftovers`."""
        return await self._api.leftovers() if isinstance(self._api, Residue) else []

    def refused_volumes(self, volumes: Sequence[Attachable]) -> str | None:
        """Implement `Storing.refused_volumes`, for the boxes that the API makes."""
        if isinstance(self._api, Storing):
            return self._api.refused_volumes(volumes)
        return "it has no volumes that this program can mount"

    def volume_usd_month(self, size_gb: int, region: str) -> Decimal | None:
        """Implement `Storing.volume_usd_month`."""
        return self._storing().volume_usd_month(size_gb, region)

    async def create_volume(self, volume: Volume) -> ListedVolume:
        """Implement `Storing.create_volume`."""
        return await self._storing().create_volume(volume)

    async def list_volumes(self) -> Sequence[ListedVolume]:
        """Implement `Storing.list_volumes`."""
        return await self._storing().list_volumes()

    async def grow_volume(self, volume: Volume, size_gb: int) -> None:
        """Implement `Growing.grow_volume`."""
        if not isinstance(self._api, Growing):
            raise BadRequest(
                f"no volume at {self._by_hand.provider} can be made larger",
                remedy="make a larger one, and copy what is on this one",
            )
        await self._api.grow_volume(volume, size_gb)

    async def destroy_volume(self, permit: VolumePermit) -> None:
        """Implement `Storing.destroy_volume`."""
        permit = genuine_for_volume(permit, provider=self._by_hand.provider)
        await self._storing().destroy_volume(permit)

    async def may_stay(self, volume: Volume) -> str | None:
        """Implement `Outliving.may_stay`."""
        return await self._api.may_stay(volume) if isinstance(self._api, Outliving) else None

    async def reclaimed_with(self, lease: Lease) -> Mapping[str, str]:
        """Implement `Reclaiming.reclaimed_with`."""
        if isinstance(self._api, Reclaiming) and not self.tends(lease.box_id):
            return await self._api.reclaimed_with(lease)
        return {}

    async def timer_at(self, lease: Lease) -> datetime | None:
        """Implement `Timed.timer_at`. Also None if the API's boxes have no timer."""
        if isinstance(self._api, Timed) and not self.tends(lease.box_id):
            return await self._api.timer_at(lease)
        return None

    async def what_outlives(self, lease: Lease) -> str | None:
        """Implement `Outlived.what_outlives`."""
        if isinstance(self._api, Outlived) and not self.tends(lease.box_id):
            return await self._api.what_outlives(lease)
        return None

    def tends(self, box_id: BoxId | None) -> bool:
        """Implement `Tended.tends`."""
        return self._by_hand.tends(box_id)

    def note_moved(self, lease: Lease, address: SshAddress) -> None:
        """Implement `Tended.note_moved`."""
        self._by_hand.note_moved(lease, address)

    def note_ended(self, lease: Lease) -> None:
        """Implement `Tended.note_ended`."""
        self._by_hand.note_ended(lease)

    def _storing(self) -> Storing:
        if not isinstance(self._api, Storing):
            raise BadRequest(
                f"no volume is kept at {self._by_hand.provider} by this program",
                remedy=f"{Command('profiles', self._by_hand.provider)} says what outlives a box there",
            )
        return self._api

    def _parking(self, lease: Lease) -> Parking:
        if self.tends(lease.box_id) or not isinstance(self._api, Parking):
            return self._by_hand
        return self._api
