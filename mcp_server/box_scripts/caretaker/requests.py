"""The arguments of each verb: their names and types, and how they are checked."""

from __future__ import annotations

import os

from box_scripts.caretaker.paths import unescape_path
from box_scripts.caretaker.records import NUMBER
from box_scripts.caretaker.refusal import Refusal

SEALING = (
    "work! roots artifacts discard default_discard exclude ever rented_ns quiet hash running"
    " named key pushed older since_ns ours alone elsewhere kept kept_disks restarted made_by"
    " logins bring_bytes late demanded outliving"
)
TAKES = {  # the arguments of each verb; those with a `!` are required
    "start": "job! argv! cwd! env env_unset artifacts discard max_runtime_s stalled_after_s grace_s stop_signal setup",
    "status": "job offset limit sample",
    "tail": "job! offset limit",
    "stop": "job! grace_s signal",
    "manifest": SEALING,
    "patterns": "work! roots artifacts discard",
    "complete": "work! artifacts discard done quiet_s limit_bytes limit_s share key",
    "prune": "work! artifacts discard checkpoints! key",
    "index": "work! paths! begin key",
    "receive": "work! over",
    "place": "work! files! stale over",
    "guard": "deadline left_s grace_s signal idle_s when_done end store seal copy_s scripts notice rehearsed disarm",
}
FIELDS = {  # the kind of each argument, and its help text
    "job": ("text", "name of the job"),
    "argv": ("texts", ""),
    "cwd": ("path", "directory the job runs in; made if missing"),
    "env": ("env", ""),
    "env_unset": ("texts", "variable the job shall not inherit (repeatable)"),
    "artifacts": ("texts", "pattern of files that must be kept (repeatable)"),
    "discard": ("texts", "pattern of files that need not be kept (repeatable)"),
    "max_runtime_s": ("number", "stop the job after so many seconds"),
    "stalled_after_s": ("number", "stop the job once it has written nothing for so many seconds"),
    "grace_s": ("number", "seconds between the asking signal and SIGKILL (10)"),
    "stop_signal": ("signal", "the asking signal (TERM)"),
    "setup": (
        "flag",
        "it sets the box up, and is no work: the end of it is not the end of the work",
    ),
    "made_by": (
        "text",
        "job that set the box up: also tell what it wrote and nobody changed since",
    ),
    "logins": ("flag", "tell nothing that a job wrote if a person may have been at work meanwhile"),
    "signal": ("signal", "the asking signal (as given to start)"),
    "offset": ("whole", "first byte of the log to show; negative: from its end"),
    "limit": ("whole", "most bytes of the log to show (65536)"),
    "sample": ("flag", "also GPUs, load, memory and disk"),
    "work": ("path", "the work directory"),
    "key": ("secret", ""),
    "over": ("object", ""),
    "pushed": ("object", ""),
    "older": ("flag", "also what this box has on record as pushed"),
    "since_ns": ("whole", "account for what was written from then on, at the latest"),
    "ours": ("texts", "hash of a script of the tenant's (repeatable)"),
    "alone": ("flag", "nobody but this lease is at work on this box"),
    "elsewhere": ("flag", "also count what was written on the box's other local disks"),
    "late": ("flag", "there, also what changed after the jobs had ended"),
    "demanded": ("texts", "pattern that has to appear: if it does not, the same (repeatable)"),
    "outliving": ("paths", "directory that outlives the box, not looked at there (repeatable)"),
    "kept": (
        "paths",
        "directory that outlives a stop: tell what counts outside of it (repeatable)",
    ),
    "kept_disks": ("paths", "one of these that has to be a disk of its own (repeatable)"),
    "restarted": ("flag", "a stop has emptied the home: what a start writes there is quiet, too"),
    "begin": ("flag", "what is written from now on counts"),
    "roots": ("paths", "further directory to account for, such as ~ (repeatable)"),
    "default_discard": ("flag", "discard well-known caches (true)"),
    "exclude": ("paths", "directory not to account for (repeatable)"),
    "quiet_s": ("number", "only what was not changed for so many seconds (5)"),
    "limit_bytes": ("whole", "read no more than so many bytes, but always one file"),
    "limit_s": ("number", "begin to read no further file after so many seconds"),
    "share": ("number", "work and read at most this part of the time, of one core (0.25)"),
    "done": (
        "texts",
        "name of what a job writes last, beside or in a checkpoint: *.done (repeatable)",
    ),
    "checkpoints": ("objects", ""),
    "hash": ("text", "`recalled`: only hashes that are known from before"),
    "running": ("text", "`listed`: what jobs that still run have written so far is listed, too"),
    "named": ("whole", "name so many of the files that nobody has claimed (20)"),
    "bring_bytes": (
        "whole",
        "list what nobody has claimed as files to fetch, the smallest first, up to so many bytes",
    ),
    "ever": ("flag", "account for what was there before any launch, too"),
    "rented_ns": ("whole", "account for what was written from then on, too (ns since 1970)"),
    "quiet": (
        "texts",
        "~/path of the image's own, not accounted for before the first launch (repeatable)",
    ),
    "paths": ("texts", "path below the work directory (repeatable)"),
    "files": ("objects", ""),
    "stale": ("texts", "name of an incoming file to be taken away (repeatable)"),
    "deadline": (
        "number",
        "when to stop every job, in seconds since 1970; without it, tell how the guard stands",
    ),
    "left_s": ("number", "seconds until then, where the clocks differ"),
    "idle_s": ("number", "stop so long after the last job ended and the tenant looked"),
    "when_done": (
        "object",
        "after_s, failed_s, not_before_s: stop so long after the last job, once the store has a copy",
    ),
    "end": ("object", ""),
    "store": ("object", ""),
    "seal": ("object", ""),
    "copy_s": ("number", "most seconds for the copy to the store (1800)"),
    "scripts": ("object", ""),
    "notice": ("object", ""),
    "rehearsed": ("flag", "the tenant's ledger is a rehearsal's, and time may leap with it"),
    "disarm": ("flag", "let go of the deadline"),
    "tenant": ("flag", "the tenant is looking: touch the heartbeat"),
    "back_in_s": ("number", "who asks looks after the lease, and is back in so many seconds"),
    "tells_s": ("number", "of what takes long, say so often how much is done, a line each"),
}


def checked_arguments(verb: str, arguments: object) -> dict:
    """Return the arguments in the types that the verb needs: paths as real paths in bytes, signals as numbers.

    Raises:
        Refusal: BAD_REQUEST: an argument is unknown, missing, or of the wrong type.
    """
    names = {name.rstrip("!"): name for name in (TAKES[verb] + " tenant back_in_s tells_s").split()}
    if not isinstance(arguments, dict) or not set(arguments) <= set(names):
        raise Refusal(
            "BAD_REQUEST", "%s takes one JSON object of: %s" % (verb, " ".join(names.values()))
        )
    given = {name: value for name, value in arguments.items() if value is not None}
    missing = [name for name, marked in names.items() if marked.endswith("!") and name not in given]
    if missing:
        raise Refusal("BAD_REQUEST", "%s needs %s" % (verb, ", ".join(missing)))
    checked = {}
    for name, value in given.items():
        try:
            checked[name] = parse_value(FIELDS[name][0], value)
        except (ValueError, KeyError) as error:
            # these values are not repeated in the message, because they may be secret
            detail = "" if name in ("env", "key") else ": %s" % error
            raise Refusal(
                "BAD_REQUEST", "%s is not a proper %s%s" % (name, FIELDS[name][0], detail)
            ) from None
    return checked


def parse_value(kind: str, value: object) -> object:
    if kind in ("texts", "paths") and isinstance(value, list):
        return [parse_value(kind[:-1], item) for item in value]
    if kind == "env" and isinstance(value, dict):
        if any(not name or "=" in name for name in value):
            raise ValueError
        return {
            parse_value("text", name): parse_value("text", text) for name, text in value.items()
        }
    if kind == "secret" and isinstance(value, str) and value:
        return value
    if kind in ("text", "path", "signal") and isinstance(value, str) and "\0" not in value:
        if kind == "text":
            return value
        if kind == "path" and value and b"\0" not in unescape_path(value):
            return os.path.realpath(os.path.expanduser(unescape_path(value)))
        if kind == "signal":
            import signal

            return int(signal.Signals["SIG" + value.upper().replace("SIG", "", 1)])
    if kind == "flag" and isinstance(value, bool):
        return value
    if kind == "object" and isinstance(value, dict):
        return value
    if kind == "objects" and isinstance(value, list):
        return [parse_value("object", item) for item in value]
    if kind == "whole" and type(value) is int:
        return value
    if kind == "number" and type(value) in NUMBER and 0 <= value < 1e12:  # type: ignore[operator]
        return value
    raise ValueError("it is %s" % ascii(value)[:80])
