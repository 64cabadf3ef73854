"""The commands that a transport gives to the shell on a box: to run something, or to receive a file."""

import os
import posixpath
import re
import secrets
import shlex
from collections.abc import Sequence

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, BoxTrouble
from gpu_tenant.domain.ports import Finished
from gpu_tenant.transports import as_told

_PUT = """
part=$1 destination=$2
trap 'rm -f "$part"' EXIT
trap 'exit 1' HUP INT PIPE TERM
umask 077
set -e
[ ! -d "$destination" ] || { echo "it is a directory" >&2; exit 1; }
cat >"$part"
[ "$(wc -c <"$part")" -eq "$4" ] || { echo "only a part of it arrived" >&2; exit 1; }
chmod "$3" "$part"
mv -f "$part" "$destination"
"""


def command_line(argv: Sequence[str]) -> str:
    """Return one line that runs `argv` in every login shell that we know (sh, bash, zsh, fish, csh, busybox).

    These shells disagree on some characters inside single quotes: a quote, a backslash, `!`, a line end, and
    bytes beyond ASCII. Such characters are sent as octal codes, which only `sh` reads.
    beyond ASCII. Such characters are sent as octal, which only `sh` reads.

    Raises:
        BadRequest: `argv` is empty, or contains a NUL, which no argument can contain.
    """
    if not argv or any("\0" in argument for argument in argv):
        raise BadRequest(f"not a command: {list(argv)!r}", remedy="see `gpu-tenant --help`")
    script = os.fsencode(f"exec {shlex.join(argv)}")
    plain = re.sub(rb"[^ -~]|['\\!]", lambda odd: b"\\0%03o" % odd[0][0], script)
    return f"""exec sh -c 'eval "$(printf %b "$0")"' '{plain.decode()}'"""


def write_command(destination: str, *, size_bytes: int, mode: int) -> Sequence[str]:
    """Return the command that writes its input to `destination`, by a rename: completely or not at all."""
    target = _anchor(destination.rstrip("/"))
    part = posixpath.join(posixpath.dirname(target), f".gpu-tenant-{secrets.token_hex(8)}.part")
    return ["sh", "-c", _PUT, "put", part, target, f"{mode:04o}", str(size_bytes)]


def refusal_for(path: str, ended: Finished) -> BoxTrouble:
    """Make the error for a box that refused the file `path`. `ended` is the command that failed."""
    return BoxTrouble(
        f"the box refused {path!r}: {as_told(ended.stderr)}",
        remedy=f"run {Command('audit')} to see its disks and paths",
    )


def _anchor(path: str) -> str:
    """Return `path` in a form that no command can take for an option."""
    return path if path.startswith("/") else f"./{path}"
