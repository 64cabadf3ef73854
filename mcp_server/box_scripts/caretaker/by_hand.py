"""Reads a call by hand: a verb with command-line flags in place of one JSON object."""

from __future__ import annotations

import argparse
import os

from box_scripts.caretaker.paths import escape_path
from box_scripts.caretaker.refusal import Refusal
from box_scripts.caretaker.requests import FIELDS, TAKES
from box_scripts.caretaker.verbs import PART_OF, function_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def by_hand(argv: list[str], about: str | None) -> tuple[str, str, object]:
    """Return the home, the verb and the arguments. The arguments are None if they come as JSON on stdin."""

    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise Refusal("BAD_REQUEST", "%s; see %s --help" % (message, self.prog))

    parser = Parser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", required=True, help="where records and logs are kept")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for verb in PART_OF:
        summary = (function_of(verb).__doc__ or "").splitlines()[0]
        flags = verbs.add_parser(verb, help=summary, description=summary)
        flags.add_argument(
            "--request", choices=["-"], help="read all arguments from stdin, as one JSON object"
        )
        for name in (TAKES[verb] + " tenant back_in_s tells_s").replace("!", "").split():
            kind, text = FIELDS[name]
            flag = "--" + (name[:-1] if name in ("artifacts", "roots", "paths") else name).replace(
                "_", "-"
            )
            if name == "argv":
                flags.add_argument(
                    "argv", nargs="*", help="-- and then the command", metavar="COMMAND"
                )
            elif name == "default_discard":
                flags.add_argument(
                    "--no-default-discard", dest=name, action="store_false", default=None
                )
            elif kind == "flag":
                flags.add_argument(flag, dest=name, action="store_true", default=None, help=text)
            elif kind not in ("env", "object", "objects", "secret"):
                typed = {"number": float, "whole": int}.get(kind, str)
                action = "append" if kind in ("texts", "paths") else "store"
                flags.add_argument(flag, dest=name, action=action, type=typed, help=text)
    given = vars(parser.parse_args(argv))
    home, verb, source = given.pop("home"), given.pop("verb"), given.pop("request")
    if source:
        return home, verb, None
    for name, value in given.items():
        literal = FIELDS[name][0] in ("path", "paths") or name == "paths"
        plain = escape_path if literal else lambda raw: raw.decode("utf-8", "surrogateescape")
        if isinstance(value, str):
            given[name] = plain(os.fsencode(value))
        elif isinstance(value, list):
            given[name] = [plain(os.fsencode(item)) for item in value]
    return home, verb, given
