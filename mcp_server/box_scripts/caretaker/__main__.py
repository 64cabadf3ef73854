"""The caretaker, a script on a rented box: it runs jobs, reports their state, and lists and hashes their files.

It needs Python 3.7 and nothing else (no root, tmux, docker, systemd, rsync, pip). It deletes only the files that its
owner names to `prune`, and only if they are still the same, byte for byte.

    caretaker.py --home DIR VERB --request -     one JSON object of arguments on stdin
    caretaker.py --home DIR VERB --flags ...     the same by hand; see --help

The reply is one JSON object on stdout: `{"ok": true, ...}` with exit status 0, or
`{"ok": false, "code": ..., "message": ...}` with 1 (not done) or 2 (a wrong request, BAD_REQUEST).

File names are bytes and JSON is text, so paths in JSON are escaped: `%`, control characters, characters
that hide or reorder text, and every byte that is not UTF-8 are written as `%XX`. All other characters,
also spaces, quotes and Chinese, stand for themselves. Percent-decoding gives the bytes back.

Patterns are globs in that escaped text, as in .gitignore. `*.pt` matches at any depth below the work
directory, `./x` and `a/b` only from its root; `out/` matches everything below; `**` crosses directories;
`\\*` is a star. `/abs/...` and `~/...` name other places.

DIR contains jobs/<job>/{lock,log,spec,started,main,exit,ending}, since, since-push, pushed, guard, notice, hashes
(.json each), pruned (lines of JSON), heartbeat, and queue/, which belongs to runner.py. The values of `env`
are never written there.
"""

from __future__ import annotations

import errno
import json
import os
import sys

from box_scripts.caretaker.progress import TELLING, end_with_asker
from box_scripts.caretaker.refusal import Refusal
from box_scripts.caretaker.requests import checked_arguments
from box_scripts.caretaker.verbs import LOOKS, PART_OF, function_of


def _answer(argv: list[str]) -> dict:
    arguments: object
    if (
        len(argv) == 5
        and argv[0] == "--home"
        and argv[2] in PART_OF
        and argv[3:] == ["--request", "-"]
    ):
        home, verb, arguments = argv[1], argv[2], None
    else:
        from box_scripts.caretaker.by_hand import by_hand  # here, because it is slow to compile

        home, verb, arguments = by_hand(argv, __doc__)
    if arguments is None:
        content = sys.stdin.buffer.readline() if verb == "receive" else sys.stdin.buffer.read()
        try:
            arguments = json.loads(content.decode())
        except ValueError:
            raise Refusal("BAD_REQUEST", "stdin holds no JSON object") from None
    request = checked_arguments(verb, arguments)
    home = os.path.realpath(os.path.expanduser(home))
    os.makedirs(home, 0o700, exist_ok=True)
    TELLING.every_s = request.pop("tells_s", None)
    if request.pop("tenant", False):
        try:
            with open(os.path.join(home, "heartbeat"), "ab") as file:
                os.utime(file.fileno())
        except OSError:  # the disk is full
            pass
    back_in_s = request.pop("back_in_s", None)
    if back_in_s is not None:
        from box_scripts.caretaker.next_look import note_next_look

        note_next_look(home, back_in_s)
    if verb in LOOKS:
        end_with_asker()
    return dict(function_of(verb)(home, request), ok=True)


def main(argv: list[str]) -> int:
    """Write one JSON object to stdout. Return the exit status."""
    try:
        reply = _answer(argv)
    except Refusal as refusal:
        reply = refusal.reply
    except OSError as error:
        code = "DISK_FULL" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "OS_ERROR"
        reply = Refusal(code, ascii(str(error))[1:-1]).reply
    except Exception as error:  # noqa: BLE001  a bug is reported as JSON, too
        reply = Refusal(
            "CARETAKER_BROKE", "%s: %s" % (type(error).__name__, ascii(str(error))[1:-1])
        ).reply
    sys.stdout.buffer.write(json.dumps(reply, separators=(",", ":")).encode() + b"\n")
    sys.stdout.buffer.flush()
    return 0 if reply["ok"] else 2 if reply["code"] == "BAD_REQUEST" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
