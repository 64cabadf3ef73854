"""Which files on a box a new discard pattern gives up, although they exist nowhere else."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpu_tenant.box.manifest import reseal
from gpu_tenant.box.session import Session
from gpu_tenant.domain.errors import Refused
from gpu_tenant.domain.seal import Manifest, SealedFile
from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.domain.wording import size
from gpu_tenant.files.artifact_directory import is_here
from gpu_tenant.files.patterns import literal_pattern, matches_kept_name
from gpu_tenant.ledger import Ledger

_MOST = 500
"""A person signs for names. More than this many are not read by anybody."""


@dataclass(frozen=True, slots=True)
class OnlyCopy:
    """A file on the box of which no other copy is known."""

    at: str
    """Its path, relative to the work directory if it lies there."""
    size_bytes: int

    def is_covered_by(self, pattern: str) -> bool:
        """Whether the pattern gives this file up."""
        name = f"root{self.at}" if self.at.startswith("/") else f"work/{self.at}"
        return matches_kept_name(pattern, name)

    @property
    def words(self) -> str:
        """Its name and size, as a person is asked to sign for it."""
        return f"{quote_text(self.at)} ({size(self.size_bytes)})"

    @property
    def pattern(self) -> str:
        """The pattern that matches this file alone."""
        return literal_pattern(self.at)


async def given_up_by(
    session: Session,
    discard: Sequence[str],
    *,
    ledger: Ledger,
    artifacts: Sequence[str] = (),
    running: Literal["refused", "listed"] = "refused",
) -> list[OnlyCopy]:
    """Return the files that would be lost with the box if these patterns were in force as well. Nothing is recorded.

    What came from here and is unchanged, what is kept here byte for byte, and what the box knows as a cache are not
    among them. The box is asked twice, because it alone knows what a pattern covers there.

    Raises:
        Refused: there are too many of them for a person to read.
    """
    known = set(ledger.declarations(session.lease.id)[1])
    if not [pattern for pattern in discard if pattern not in known]:
        return []

    async def listed(patterns: Sequence[str]) -> Manifest:
        return await reseal(
            session,
            ledger=ledger,
            artifacts=artifacts,
            discard=patterns,
            hashes="recalled",
            running=running,
            named=10 * _MOST,
        )

    before, after = await listed(()), await listed(discard)
    stay = {entry.at for entry in after.entries} | {path.at for path in after.unclaimed.largest}
    lost = [entry for entry in before.entries if entry.at not in stay]
    here = await asyncio.to_thread(_kept_here, session, lost)
    lease = session.lease
    only = [
        OnlyCopy(lease.from_work(entry.at), entry.size_bytes)
        for entry in lost
        if entry.at not in here
    ]
    only += [
        OnlyCopy(lease.from_work(path.at), path.size_bytes)
        for path in before.unclaimed.largest
        if path.at not in stay
    ]
    hidden = before.unclaimed.count - len(before.unclaimed.largest)
    if len(only) > _MOST or (hidden > 0 and after.unclaimed.count < before.unclaimed.count):
        raise Refused(
            f"the patterns {', '.join(discard)} give up more than {_MOST} files that exist nowhere else",
            remedy="keep them, or name fewer; a person may give up the whole box instead",
        )
    return only


def _kept_here(session: Session, entries: Sequence[SealedFile]) -> set[str]:
    """Return which of these files are kept on this computer with the same bytes, read just now."""
    kept_in = session.lease.kept_in
    if kept_in is None:
        return set()
    return {entry.at for entry in entries if entry.sha256 and is_here(Path(kept_in), entry)}
