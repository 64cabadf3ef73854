"""Machines of the owner's, lent to a lease and handed back; nothing is ever deleted on them."""

import json
import os
from hashlib import sha256
from pathlib import Path

from gpu_tenant.errors import BadRequest, BoxTaken, ProviderTrouble
from gpu_tenant.model import Box, BoxId, BoxState, Lease, SshAddress
from gpu_tenant.permit import TeardownPermit, genuine
from gpu_tenant.ports import Setting


class OwnConnector:
    """The list of lent machines: one small file each, below one directory of this computer."""

    def __init__(self, lent: Path) -> None:
        self._lent = lent

    async def create(self, lease: Lease) -> Box:
        """As `Connector.create`: the named machine is on the list of lent ones, under this lease."""
        if not isinstance(lease.address, SshAddress):
            raise BadRequest(
                "no machine was named",
                remedy="`gpu-tenant adopt user@host[:port]`, or an ssh alias",
            )
        box = Box(
            provider="own",
            id=BoxId(lease.address.target),
            mark=lease.mark,
            state=BoxState.READY,
            address=lease.address,
            price_usd_h=None,
        )
        self._lent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._file(box.id)
        known = self._read(path) if path.exists() else None
        if known and known.mark != lease.mark:
            raise BoxTaken(
                f"{box.id} is lent to {known.mark}", remedy="`gpu-tenant leases` shows by whom"
            )
        being_written = path.with_suffix(".new")
        being_written.write_text(box.model_dump_json(), encoding="utf-8")
        being_written.replace(path)
        return box

    async def list_boxes(self) -> list[Box]:
        """As `Connector.list_boxes`."""
        try:
            # Not glob: it takes a directory that cannot be read for an empty one.
            files = sorted(path for path in self._lent.iterdir() if path.suffix == ".json")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ProviderTrouble(
                f"{self._lent} cannot be listed: {error}", remedy="`gpu-tenant doctor`"
            ) from error
        return [self._read(path) for path in files]

    async def destroy(self, permit: TeardownPermit) -> None:
        """As `Connector.destroy`: the machine is off the list; on it, nothing was touched."""
        self._file(genuine(permit, provider="own").box_id).unlink(missing_ok=True)

    def _file(self, box_id: str) -> Path:
        return self._lent / f"{sha256(os.fsencode(box_id)).hexdigest()[:16]}.json"

    @staticmethod
    def _read(path: Path) -> Box:
        try:
            return Box.model_validate(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            raise ProviderTrouble(
                f"{path} does not say which machine is lent: {error}",
                remedy="`gpu-tenant leases --all` tells; remove the file when its lease has ended",
            ) from error


def connect(setting: Setting) -> OwnConnector:
    """The connector for machines that are noted below the user's state directory."""
    return OwnConnector(setting.state / "lent")
