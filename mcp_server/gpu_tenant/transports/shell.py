"""What a transport asks of the shell on a box: to run one command, or to receive one file."""

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
    """One line that every login shell we know (sh, bash, zsh, fish, csh, busybox) runs as `argv`.

    Those shells disagree on some characters inside single quotes: a quote, a backslash, `!`, a line end, a byte
    beyond
    ASCII. Such characters travel as octal, and only `sh` reads them.

    Raises:
        BadRequest: `argv` is empty, or holds a NUL, which no argument can.
    """
    if not argv or any("\0" in argument for argument in argv):
        raise BadRequest(f"not a command: {list(argv)!r}", remedy="see `gpu-tenant --help`")
    script = os.fsencode(f"exec {shlex.join(argv)}")
    plain = re.sub(rb"[^ -~]|['\\!]", lambda odd: b"\\0%03o" % odd[0][0], script)
    return f"""exec sh -c 'eval "$(printf %b "$0")"' '{plain.decode()}'"""


def taking(destination: str, *, size_bytes: int, mode: int) -> Sequence[str]:
    """The command that writes its input to `destination`, by rename or not at all."""
    target = _anchored(destination.rstrip("/"))
    part = posixpath.join(posixpath.dirname(target), f".gpu-tenant-{secrets.token_hex(8)}.part")
    return ["sh", "-c", _PUT, "put", part, target, f"{mode:04o}", str(size_bytes)]


def refused(path: str, ended: Finished) -> BoxTrouble:
    """The error for a box that did not accept `path`."""
    return BoxTrouble(
        f"the box refused {path!r}: {as_told(ended.stderr)}",
        remedy=f"run {Command('audit')} to see its disks and paths",
    )


def _anchored(path: str) -> str:
    """`path` in a form that no command takes for an option."""
    return path if path.startswith("/") else f"./{path}"
