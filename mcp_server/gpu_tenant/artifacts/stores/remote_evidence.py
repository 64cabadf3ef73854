"""What the durable store proves about a seal. Only its bytes count, re-read now, and not what it reports."""

import asyncio
import tempfile
from pathlib import Path

from pydantic import ValidationError

from gpu_tenant.artifacts.formats import prove
from gpu_tenant.artifacts.stores.locality import store_doubt
from gpu_tenant.artifacts.stores.protocol import (
    DurableStore,
    brought_back,
    seal_stored_as,
    stored_as,
)
from gpu_tenant.box.manifest_entries import digest_of
from gpu_tenant.domain.errors import LocalTrouble, NotStored, StoreTrouble
from gpu_tenant.domain.evidence import Evidence, Verdict
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.seal import Manifest, SealedFile
from gpu_tenant.domain.wording import some
from gpu_tenant.files.paths import below

_SEAL_BYTES = 1 << 30
"""A larger file cannot be a seal. The seal of a million files is smaller."""


class Witness:
    """One store that is asked about one seal. Once the store has failed to answer, it is not asked again."""

    def __init__(self, store: DurableStore, lease: Lease, seal: Manifest) -> None:
        self.words = store.words
        self._store = store
        self._lease = lease
        self._seal = seal
        self._silent: str | None = None

    async def at(self, entry: SealedFile) -> Path | None:
        """Return the path of the store's copy on this computer. None if the store is elsewhere."""
        directory = (await self._store.where()).directory
        return None if directory is None else below(directory, self._name(entry))

    async def doubt(self) -> str | None:
        """Say why the store may vanish with the box. None if it cannot, or if it is a directory on this computer."""
        doubt = await store_doubt(await self._store.where(), self._lease)
        return None if doubt is None else doubt.words

    async def proves(self, entry: SealedFile) -> Evidence | str:
        """Re-read the store's copy of the entry. Returns what it proves, or the reason why it proves nothing."""
        if self._silent is not None:
            return self._silent
        try:
            return await (self._link(entry) if entry.kind == "link" else self._file(entry))
        except NotStored:
            return f"{self.words} does not have it"
        except StoreTrouble as trouble:
            # Remember the failure: otherwise each of a thousand files would wait for the same missing answer.
            self._silent = f"{self.words} could not be re-read: {trouble.message}"
            return self._silent
        except LocalTrouble as trouble:
            return f"{self.words} could not be re-read on this computer: {trouble.message}"
        except OSError as error:
            return f"{self.words} could not be re-read on this computer: {error.strerror}"

    async def _file(self, entry: SealedFile) -> Evidence | str:
        async with brought_back(
            self._store, self._name(entry), size_bytes=entry.size_bytes, scratch=self._scratch()
        ) as path:
            found = await asyncio.to_thread(prove, path, name=entry.name, sha256=entry.sha256)
            if found is None or found.size_bytes != entry.size_bytes:
                size = found.size_bytes if found else 0
                return f"{self.words} has {some(size, 'byte')} of it, but the box has {entry.size_bytes:,}"
            if found.sha256 != entry.sha256:
                return f"{self.words} has other bytes than the box"
            return Evidence(
                name=entry.name,
                size_bytes=found.size_bytes,
                sha256=found.sha256,
                verdict=found.verdict,
                where=self.words,
            )

    async def _link(self, entry: SealedFile) -> Evidence | str:
        async with brought_back(
            self._store, self._name(entry), size_bytes=0, scratch=self._scratch()
        ) as path:
            if path.stat().st_size > _SEAL_BYTES:
                return f"{self.words} has a seal that cannot be read"
            try:
                kept = Manifest.model_validate_json(path.read_bytes())
            except ValidationError:
                return f"{self.words} has a seal that cannot be read"
        # The digest covers every entry, including the target of each link. So an equal digest proves this link.
        if digest_of(kept) != self._seal.digest:
            return f"{self.words} has another seal"
        points = ("points where it did on the box, by the seal that is kept there",)
        verdict = Verdict(format="link", outcome="loads", proved=points)
        return Evidence(name=entry.name, size_bytes=0, sha256="", verdict=verdict, where=self.words)

    def _name(self, entry: SealedFile) -> str:
        if entry.kind == "link":
            return seal_stored_as(self._lease.id, self._seal.digest)
        return stored_as(self._lease.id, entry.name)

    def _scratch(self) -> Path:
        """Return a directory that probably has enough room: the kept directory if it exists, else the temporary one."""
        kept = Path(self._lease.kept_in or "")
        return kept if self._lease.kept_in and kept.is_dir() else Path(tempfile.gettempdir())
