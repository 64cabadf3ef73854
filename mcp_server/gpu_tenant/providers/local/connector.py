"""Boxes on this computer: a private directory and the processes that run in it."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import ProviderTrouble
from gpu_tenant.domain.model import Box, BoxId, BoxState, Lease, LocalAddress
from gpu_tenant.domain.permit import TeardownPermit, genuine
from gpu_tenant.domain.ports import Setting, find_marked
from gpu_tenant.files.remove_tree import Mounted, remove_tree, require_unmounted

BOX_VARIABLE = "GPU_TENANT_BOX"
"""In every process of a local box, this variable holds the box's directory."""

_DYING = ".dying-"


class LocalConnector:
    """Makes, lists and deletes boxes below one directory of this computer."""

    def __init__(self, boxes: Path) -> None:
        self._boxes = boxes.absolute()

    async def create(self, lease: Lease) -> Box:
        """Implement `Connector.create`. The box appears by a rename, so it is either complete or not there."""
        if ours := find_marked(lease, await self.list_boxes()):
            return ours
        being_made = self._boxes / f".new-{lease.id}"
        try:
            remove_tree(being_made)
            (being_made / "home").mkdir(parents=True, mode=0o700)
            being_made.chmod(0o700)
            record = being_made / "box.json"
            record.touch(mode=0o600)
            record.write_text(json.dumps({"mark": lease.mark}), encoding="utf-8")
            being_made.rename(self._boxes / lease.id)
        except OSError as error:
            raise ProviderTrouble(
                f"no local box could be made: {error}",
                remedy="free some space, then provision again",
            ) from error
        return self._box(self._boxes / lease.id)

    async def list_boxes(self) -> list[Box]:
        """Implement `Connector.list_boxes`."""
        try:
            return [
                self._box(entry)
                for entry in sorted(self._boxes.iterdir())
                if not entry.name.startswith(".") and entry.is_dir()
            ]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ProviderTrouble(
                f"{self._boxes} cannot be listed: {error}", remedy=str(Command("doctor"))
            ) from error

    async def destroy(self, permit: TeardownPermit) -> None:
        """Implement `Connector.destroy`. First end the box's processes, which are found by the box's mark."""
        permit = genuine(permit, provider="local")
        directory = self._boxes / permit.box_id
        dying = self._boxes / f"{_DYING}{permit.box_id}"
        # Killed at once: the permit allows the loss, so no grace is needed, and the guard ignores
        # requests to end.
        for _ in range(100):
            pids = list(_processes_of(directory))
            if not pids:
                break
            for pid in pids:
                _kill(pid)
            await asyncio.sleep(0.02)
        try:
            # Checked before the move, so that after a refusal the box is still where its lease says.
            await asyncio.to_thread(require_unmounted, directory)
            if directory.exists():
                directory.rename(dying)
            await asyncio.to_thread(remove_tree, dying)
        except Mounted as mounted:
            raise ProviderTrouble(
                f"{mounted.place} is mounted in the box, and what lies there does not belong to the box",
                remedy=f"`umount {mounted.place}`, then run the same command again",
            ) from mounted

    def _box(self, directory: Path) -> Box:
        try:
            mark = json.loads((directory / "box.json").read_text(encoding="utf-8"))["mark"]
            state = BoxState.READY
        except (OSError, ValueError, KeyError):
            mark, state = None, BoxState.BROKEN
        return Box(
            provider="local",
            id=BoxId(directory.name),
            mark=mark,
            state=state,
            address=LocalAddress(directory=os.fspath(directory / "home")),
            price_usd_h=None,
        )


def _processes_of(directory: Path) -> Iterator[int]:
    """Yield the processes of this computer whose environment has the box's mark."""
    carried = f"{BOX_VARIABLE}={directory / 'home'}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            state = (
                (entry / "stat")
                .read_text(encoding="utf-8", errors="replace")
                .rpartition(")")[2]
                .split()[0]
            )
        except OSError:
            continue
        if carried in variables and state != "Z":
            yield int(entry.name)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def connect(setting: Setting) -> LocalConnector:
    """Return the connector for boxes below the user's state directory."""
    return LocalConnector(setting.state / "boxes")
