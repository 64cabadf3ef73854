"""Checks the entries that a box reports, and refuses entries that could not be kept under their names."""

from hashlib import sha256
from typing import Annotated

from pydantic import AfterValidator

from gpu_tenant.domain.errors import CaretakerFailed
from gpu_tenant.domain.seal import Manifest, SealedFile
from gpu_tenant.files.paths import leads_inside, require_apart, to_bytes

DEEPEST, LONGEST = 520, 4000
"""The deepest path and the longest name. Beyond these, a box reports a problem instead of an entry.

Python's recursion ends at 1,000 levels, and a path at 4,096 bytes.
"""


def sound(entries: tuple[SealedFile, ...]) -> tuple[SealedFile, ...]:
    """Return the entries, if all of them can be kept under their names without conflict.

    Raises:
        CaretakerFailed: an entry leads out of the directory, or is in the way of another.
    """
    wrong = next((entry.name for entry in entries if not _can_be(entry)), None)
    try:
        require_apart(entry.name for entry in entries)
    except ValueError as error:
        wrong = str(error)
    if wrong is not None:
        raise CaretakerFailed(
            f"the box's list of files cannot be right: {wrong}",
            remedy="look at the box yourself before you believe what it reports",
        )
    return entries


def _can_be(entry: SealedFile) -> bool:
    """Whether the entry can be kept here: it leads to no other place, and is not too deep for this computer's tools."""
    raw = to_bytes(entry.name)
    if raw.count(b"/") > DEEPEST or len(raw) > LONGEST:
        return False
    leads_out = entry.kind == "link" and not leads_inside(entry.name, entry.target or "")
    return not leads_out and b"\0" not in to_bytes(entry.at)


Entries = Annotated[tuple[SealedFile, ...], AfterValidator(sound)]
"""Entries from a box. They are checked, because the box may be under anybody's control by now."""


def digest_of(manifest: Manifest) -> str:
    """The sha256 over the sorted entries, computed as the caretaker computes it."""
    lines = sorted(
        f"{e.sha256 or '-'} {e.size_bytes} {e.kind} {e.target or '-'} {e.name}\n".encode()
        for e in manifest.entries
    )
    return sha256(b"".join(lines)).hexdigest()
