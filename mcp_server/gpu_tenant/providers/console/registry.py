"""Boxes that no provider lists. Each has a small file here for as long as a lease uses it."""

import json
import os
from hashlib import sha256
from pathlib import Path

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, BoxTaken, ProviderTrouble
from gpu_tenant.domain.model import Box, BoxId, BoxState, Lease, SshAddress
from gpu_tenant.files.replace_file import replace_file


class Lent:
    """The boxes of one platform that are lent to leases. They are recorded below one directory of this computer."""

    def __init__(self, provider: str, directory: Path) -> None:
        self._provider = provider
        self._directory = directory

    def lend(self, lease: Lease) -> Box:
        """Put the machine that the lease names on the list, under that lease.

        Raises:
            BadRequest: the lease names no machine.
            BoxTaken: another lease uses the machine.
        """
        if not isinstance(lease.address, SshAddress):
            raise BadRequest(
                "no machine was named",
                remedy=f"{Command('adopt', 'TARGET')}, where TARGET is user@host[:port] or an ssh alias",
            )
        box = Box(
            provider=self._provider,
            id=lease.box_id or BoxId(lease.address.target),
            mark=lease.mark,
            state=BoxState.PARKED if lease.parked_at else BoxState.READY,
            address=lease.address,
            price_usd_h=None,
        )
        known = self.find(box.id)
        if known and known.mark != lease.mark:
            raise BoxTaken(
                f"{box.id} is lent to {known.mark}", remedy=f"{Command('leases')} shows by whom"
            )
        self.write(box)
        return box

    def boxes(self) -> list[Box]:
        """Return every box that is lent now.

        Raises:
            ProviderTrouble: the list cannot be read completely.
        """
        try:
            # Not glob, which treats a directory that cannot be read as empty.
            files = sorted(path for path in self._directory.iterdir() if path.suffix == ".json")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ProviderTrouble(
                f"{self._directory} cannot be listed: {error}", remedy=str(Command("doctor"))
            ) from error
        return [_read(path) for path in files]

    def find(self, box_id: str) -> Box | None:
        """Return the box with that name, if it is lent."""
        path = self._file(box_id)
        return _read(path) if path.exists() else None

    def write(self, box: Box) -> None:
        """Write the box to the list."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(self._file(box.id), box.model_dump_json(), durable="directory")

    def remove(self, box_id: str) -> None:
        """Remove the box from the list."""
        self._file(box_id).unlink(missing_ok=True)

    def _file(self, box_id: str) -> Path:
        return self._directory / f"{sha256(os.fsencode(box_id)).hexdigest()[:16]}.json"


def _read(path: Path) -> Box:
    try:
        return Box.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise ProviderTrouble(
            f"{path} does not say which machine is lent: {error}",
            remedy=f"{Command('leases', all=True)} shows the leases; remove the file when its lease has ended",
        ) from error
