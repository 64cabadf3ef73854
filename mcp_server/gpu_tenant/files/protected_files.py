"""Files that must never leave this computer. They are recognized by their place and content, not by their name."""

import os
import pwd
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

_PLACES = (
    ".ssh",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".gnupg",
    ".oci",
    ".config/gcloud",
    ".config/gh",
    ".config/rclone",
    ".config/doctl",
    ".config/vastai",
    ".vast_api_key",
    ".runpod",
    ".netrc",
    ".git-credentials",
    ".pgpass",
    ".local/share/keyrings",
    ".password-store",
    ".config/op",
    ".vault-token",
    ".terraform.d/credentials.tfrc.json",
    ".lambda_cloud",
    ".modal.toml",
    # The logins of coding agents. No job of the owner's needs them.
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
    ".config/github-copilot",
    ".local/share/opencode/auth.json",
)
"""Paths below a home directory where keys and logins for other services usually are."""
_MOST = 20_000
_HEAD_BYTES = 1 << 20
_FORMS = tuple(
    re.compile(form)
    for form in (
        rb"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY",
        rb'"private_key"\s*:\s*"-----BEGIN',
        rb"(?i)aws_secret_access_key\s*=",
        rb"client-key-data\s*:",
        rb'"auths"\s*:\s*\{[^}]*"(?:auth|identitytoken)"\s*:\s*"[^"]',
        rb"PuTTY-User-Key-File-",
    )
)


def homes() -> tuple[Path, ...]:
    """Return the home directories of the owner: the one in use, and the account's own if that is another.

    An agent, a container or sudo may set another `$HOME`. The owner's keys are still in the account's.
    """
    with suppress(KeyError):  # an account without an entry
        own = pwd.getpwuid(os.getuid()).pw_dir
        return tuple(dict.fromkeys((Path.home(), Path(own))))
    return (Path.home(),)


def is_key_by_content(content: bytes) -> bool:
    """Whether the bytes contain a private key, or a login to a cloud, a cluster or a registry."""
    return any(form.search(content) for form in _FORMS)


class Guarded:
    """The protected places (files and directories) of one owner, and every file in them, even under another name.

    `open_places` are inside protected places but contain no keys: they hold files that were fetched from boxes.
    """

    def __init__(
        self, places: Iterable[Path], *homes: Path, open_places: Iterable[Path] = ()
    ) -> None:
        # The last part of a path is not resolved. If it is a link, its target does not become an open place.
        self._open = tuple(place.parent.resolve() / place.name for place in open_places)
        self.places = tuple(
            dict.fromkeys(
                place.resolve()
                for place in (*places, *(home / name for home in homes for name in _PLACES))
            )
        )
        self._files: frozenset[tuple[int, int]] | None = None

    def holds(self, path: Path) -> bool:
        """Whether the file at `path` is in a protected place, even if links lead to it.

        A hard link is the same file under another name, so it counts as well.
        """
        real = path.resolve()
        if any(real.is_relative_to(place) for place in self._open):
            return self.has_twin(real)
        return any(real.is_relative_to(place) for place in self.places) or self.has_twin(real)

    def meets(self, directory: Path) -> bool:
        """Whether a protected place is inside `directory`, or contains it."""
        real = directory.resolve()
        return any(p.is_relative_to(real) or real.is_relative_to(p) for p in self.places)

    def keys_among(self, directory: Path, files: Mapping[str, Path]) -> Iterator[str]:
        """Yield the names of those `files` of the work tree `directory` that are protected.

        If a link was included, the place of the file to which it leads is what counts.
        """
        inside, is_near = directory.resolve(), self.meets(directory)
        for name, path in files.items():
            lies_here = path.is_relative_to(directory) or path.is_relative_to(inside)
            if self.has_twin(path) if lies_here and not is_near else self.holds(path):
                yield name

    def has_twin(self, path: Path) -> bool:
        """Whether the file at `path` is a hard link to a file in a protected place."""
        try:
            seen = path.lstat()
        except OSError:
            return False
        if not stat.S_ISREG(seen.st_mode) or seen.st_nlink < 2:
            return False
        if self._files is None:
            self._files = frozenset(self._inodes())
        return (seen.st_dev, seen.st_ino) in self._files

    def has_key(self, path: Path) -> bool:
        """Whether the file is in a protected place, or contains a key or a login."""
        if self.holds(path):
            return True
        try:
            with path.open("rb") as file:
                return is_key_by_content(file.read(_HEAD_BYTES))
        except OSError:
            return False

    def _inodes(self) -> Iterator[tuple[int, int]]:
        left = _MOST
        for place in self.places:
            if place.is_file():
                yield _of(place)
            for folder, inner, names in os.walk(place):
                # Boxes and the files from them are not keys, and there may be a million of them.
                inner[:] = [name for name in inner if name not in ("boxes", "kept", "logs")]
                for name in names:
                    left -= 1
                    if left < 0:
                        return
                    yield _of(Path(folder, name))


def _of(path: Path) -> tuple[int, int]:
    try:
        seen = path.lstat()
    except OSError:
        return (-1, -1)
    return seen.st_dev, seen.st_ino
