"""Changes to a person's own files. They are shown first and then made. Each is made completely or not at all."""

import difflib
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from gpu_tenant.domain.errors import Refused
from gpu_tenant.files.replace_file import replace_file

Content = bytes | Path | None
"""The bytes of a file, the target of a link, or None if nothing is there."""

BACKUP = ".before-gpu-tenant"

_SECRET = re.compile(
    r'(?i)((?:key|token|secret|passw|auth|credential|cookie)[\w.-]*"?\s*[:=]\s*)("[^"]*"|\'[^\']*\')'
)


@dataclass(frozen=True, slots=True)
class Change:
    """One file as it is now, and as it will be after the change."""

    path: Path
    before: Content
    after: Content
    mode: int = 0o644
    backup: Literal["kept", "none", "used up"] = "none"
    kept_at: Path | None = None
    """Where the backup is written. None means next to the file."""

    context_lines: ClassVar[int] = 1

    @property
    def does(self) -> Literal["writes", "changes", "deletes", "links"]:
        """The kind of change, as one word."""
        if self.after is None:
            return "deletes"
        if isinstance(self.after, Path):
            return "links"
        return "writes" if self.before is None else "changes"

    def diff(self) -> str:
        """Return the unified diff of the change. A new file is shown only if it holds settings.

        The values of settings that are named like secrets are left out.
        """
        new_settings = self.before is None and self.backup != "none"
        before = b"" if new_settings else self.before
        if not (isinstance(before, bytes) and isinstance(self.after, bytes)):
            return ""
        old, new = (part.decode(errors="replace").splitlines() for part in (before, self.after))
        name = str(self.path)
        lines = difflib.unified_diff(old, new, name, name, n=self.context_lines, lineterm="")
        return "".join(_SECRET.sub(r'\1"..."', line) + "\n" for line in lines)

    def now(self) -> Content:
        """Return what is at the path now.

        Raises:
            Refused: the file cannot be read.
        """
        return there(self.path)

    def make(self) -> None:
        """Make the change. Before that, write a backup if one is wanted."""
        beside = self.kept_at or backup_of(self.path)
        if self.backup == "kept" and isinstance(self.before, bytes):
            place(beside, self.before, self.mode)
        self.put()
        if self.backup == "used up":
            beside.unlink(missing_ok=True)

    def put(self) -> None:
        """Write the new content, or delete the file if there is none."""
        match self.after:
            case None:
                self.path.unlink(missing_ok=True)
            case bytes() as content:
                place(self.path, content, self.mode)
            case Path() as target:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.unlink(missing_ok=True)
                self.path.symlink_to(target, target_is_directory=True)


def plan_replacement(
    path: Path, content: Content, mode: int, *, known: str | None
) -> Change | None:
    """Plan to put `content` at `path`. Content that somebody else wrote there gets a backup.

    None if nothing has to change. `known` is the digest of what we wrote there ourselves.
    """
    before = there(path)
    if before == content:
        return None
    edited = before is not None and digest(before) != known
    return Change(path, before, content, mode, "kept" if edited else "none")


def there(path: Path) -> Content:
    """Return what is at `path`. A link is not followed.

    Raises:
        Refused: the file cannot be read.
    """
    try:
        return path.readlink() if path.is_symlink() else path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Refused(
            f"{path} cannot be read: {error.strerror}",
            remedy="make it readable, then run the same command again",
        ) from error


def digest(content: Content) -> str:
    """Return a digest that is equal for equal content."""
    if isinstance(content, Path):
        return f"-> {content}"
    return hashlib.sha256(content or b"").hexdigest()


def backup_of(path: Path) -> Path:
    """Return the path of the backup with the content from before our change."""
    return path.with_name(path.name + BACKUP)


def missing_above(paths: Iterable[Path]) -> set[str]:
    """Return the directories that must be made for these files."""
    return {str(parent) for path in paths for parent in path.parents if not parent.exists()}


def place(path: Path, content: bytes, mode: int) -> None:
    """Write `content` to the file. The file never has only a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content, durable="file", mode=mode)
