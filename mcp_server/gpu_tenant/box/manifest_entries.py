"""Checks the list of files that a box reports, and refuses files that could not be saved under their names."""

from hashlib import sha256
from typing import Annotated

from pydantic import AfterValidator

from gpu_tenant.domain.errors import CaretakerFailed
from gpu_tenant.domain.seal import Manifest, SealedFile
from gpu_tenant.files.paths import leads_inside, require_apart, to_bytes

DEEPEST, LONGEST = 520, 4000
"""The maximum depth and length of a path. For a deeper or longer path, a box reports a problem instead of an entry.

The limits are below those of Python (1,000 levels of recursion) and of a path (4,096 bytes).
"""


def sound(entries: tuple[SealedFile, ...]) -> tuple[SealedFile, ...]:
    """Return the entries, if all of them can be saved under their names without conflict.

    Raises:
        CaretakerFailed: an entry leads out of the directory, is too long or too deep, or conflicts with another.
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
    """Whether the entry can be saved here: it leads nowhere else, and its path is not too long or too deep."""
    raw = to_bytes(entry.name)
    if raw.count(b"/") > DEEPEST or len(raw) > LONGEST:
        return False
    leads_out = entry.kind == "link" and not leads_inside(entry.name, entry.target or "")
    return not leads_out and b"\0" not in to_bytes(entry.at)


Entries = Annotated[tuple[SealedFile, ...], AfterValidator(sound)]
"""Entries from a box. They are checked, because somebody else may control the box."""


def digest_of(manifest: Manifest) -> str:
    """Return the sha256 of the sorted entries, computed in the same way as by the caretaker."""
    lines = sorted(
        f"{e.sha256 or '-'} {e.size_bytes} {e.kind} {e.target or '-'} {e.name}\n".encode()
        for e in manifest.entries
    )
    return sha256(b"".join(lines)).hexdigest()
