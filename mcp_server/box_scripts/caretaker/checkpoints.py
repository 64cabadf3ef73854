"""Decides whether a checkpoint is complete, from the names and times of files alone."""

from __future__ import annotations

import os
import re

from box_scripts.caretaker.paths import escape_path, is_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

PATIENCE_NS = 600 * 10**9
UNDER_WAY = re.compile(  # names that Orbax, transformers and curl use until a file is complete
    rb"(?i)tmp-.+|\.tmp.*|.+\.part|.+[._-](?:tmp|partial|incomplete|inprogress)(?:[-_.]?\d+)?"
    rb"|.+\.tmp\.[\w-]{1,16}"
).fullmatch
STEP = re.compile(
    rb"(?i)(?<![a-z])(checkpoint|ckpt|step|iter|iteration|epoch)s?([-_.=]?)(\d+)(?![0-9a-z])"
)
GROWS = re.compile(rb"(?i).*\.(?:log|txt|csv|jsonl|out|err)|events\.out\..*").fullmatch
SHARD = re.compile(rb"(.+?)-(\d{5})-of-(\d{5})(\.(?:safetensors|bin|pth?)|)").fullmatch
DONE = re.compile(
    rb"(?i)[._]?(?:done|success|completed?|finished|commit_success)(?:\.txt)?"
).fullmatch
WRITTEN_LAST = (  # how to recognise such a checkpoint; where its last file is written; the name of the last file
    (
        re.compile(rb"checkpoint-\d+/.*"),
        "in",
        re.compile(rb"trainer_state\.json|random_states_\d+\.pkl"),
    ),
    (re.compile(rb"[^/]*/.+\.distcp"), "in", re.compile(rb"\.metadata")),
    (re.compile(rb"global_step\d+/.*"), "beside", re.compile(rb"latest")),
    (re.compile(rb"iter_\d{7}/.*"), "beside", re.compile(rb"latest_checkpointed_iteration\.txt")),
)
if TYPE_CHECKING:
    Dates = dict[bytes, tuple[int, int]]  # name: its mtime_ns and ctime_ns
    Dated = dict[bytes, Dates]  # by directory


def _unit(path: bytes, work: bytes) -> bytes | None:
    """Return the directory of the file's checkpoint: the outermost one with the step's number in its name.

    The work directory itself, and what it lies in, is no checkpoint, whatever its name is.
    """
    found, number, directory = None, None, os.path.dirname(path)
    while directory not in (b"/", b"", work.rstrip(b"/")):
        named = STEP.findall(os.path.basename(directory))
        if named and number in (None, int(named[-1][2])):
            found, number = directory, int(named[-1][2])
        elif named:
            break
        directory = os.path.dirname(directory)
    return found


def checkpoint_listing(files: Iterable[bytes], work: bytes) -> Dated:
    """Return the files next to those files, and all files in their checkpoints, with their times."""
    found: Dated = {}
    tops = {os.path.dirname(path) for path in files}
    units = {unit for unit in (_unit(path, work) for path in files) if unit is not None}
    for unit in units:
        tops |= {os.path.dirname(unit), *(folder for folder, _, _ in os.walk(unit))}
    for top in tops:
        found[top] = {}
        try:
            for entry in os.scandir(top):
                seen = entry.stat(follow_symlinks=False)
                found[top][entry.name] = (seen.st_mtime_ns, seen.st_ctime_ns)
        except OSError:
            continue
    return found


def find_unfinished(
    files: Iterable[bytes],
    busy: set[bytes],
    listing: Dated,
    work: bytes,
    now_ns: int,
    quiet_ns: int,
    done: Sequence[Callable[[str], object]],
) -> set[bytes]:
    """Return the files that are still being written, or belong to a checkpoint that is. Only names and times decide.

    A checkpoint in which nothing has changed for PATIENCE_NS counts as complete, because no rule fits every job.
    """
    found: set[bytes] = set()
    whole: dict[bytes, bool] = {}
    for path in files:
        parts = (path[len(work) :] if is_below(path, work) else path).split(b"/")
        if path in busy or any(UNDER_WAY(part) for part in parts if part):
            found.add(path)
            continue
        what = _unit(path, work) or path
        if what not in whole:
            whole[what] = _is_whole(what, busy, listing, now_ns, quiet_ns, done)
        if not whole[what]:
            found.add(path)
    return found


def _is_whole(
    what: bytes,
    busy: set[bytes],
    listing: Dated,
    now_ns: int,
    quiet_ns: int,
    done: Sequence[Callable[[str], object]],
) -> bool:
    """Whether the checkpoint `what`, a directory or a file, is complete."""
    parent, name = os.path.split(what)
    beside = listing.get(parent, {})
    inside = {  # by path below `what`; empty if `what` is a file
        os.path.join(folder, inner)[len(what) + 1 :]: dated
        for folder, names in listing.items()
        if is_below(folder, what)
        for inner, dated in names.items()
        if os.path.join(folder, inner) not in listing
    }
    of_it = inside or {b"": beside.get(name, (0, 0))}
    # A checkpoint can be complete although a log in it still grows.
    lasting = {at: d for at, d in of_it.items() if not GROWS(os.path.basename(at))} or of_it
    if max(max(dated) for dated in lasting.values()) < now_ns - PATIENCE_NS:
        return True
    if inside and any(
        os.path.join(what, at) in busy or now_ns - quiet_ns < max(dated) <= now_ns
        for at, dated in lasting.items()
    ):
        return False
    stem = name[: -len(b".ckpt")] if name.endswith(b".ckpt") else name
    # NeMo puts such a file beside an unfinished checkpoint.
    if {stem + b"-unfinished", name + b".unfinished"} & set(beside):
        return False
    if not _has_all_shards(inside or beside, None if inside else name):
        return False
    written_ns = max(mtime_ns for mtime_ns, _ in lasting.values())
    last = _last_of(name, inside, beside)
    if last == [] and _is_followed(name, beside, written_ns):
        last = None
    is_mark = any(matches(escape_path(name)) for matches in done)
    if last is None and STEP.search(name) and not is_mark:
        last = _done_of(what, listing, done)
        alike = [n for n in beside if name_group(n) == name_group(name)]
        if not last and not done:
            # If similar checkpoints have a marker, this one will get one, too.
            is_usual = any(_done_of(os.path.join(parent, n), listing, done) for n in alike)
            last = [] if is_usual else None
    # Old versions of transformers write their random states just after the file that is taken as the last one here.
    return last is None or any(at + max(quiet_ns, 2 * 10**9) >= written_ns for at in last)


def _is_followed(name: bytes, beside: Dates, written_ns: int) -> bool:
    """Whether the job has begun a checkpoint of a higher step since: then it has ended this one, with other files."""
    step = [int(number) for _, _, number in STEP.findall(name)]
    return any(
        mtime_ns > written_ns and [int(number) for _, _, number in STEP.findall(other)] > step
        for other, (mtime_ns, _) in beside.items()
        if name_group(other) == name_group(name)
    )


def _last_of(name: bytes, inside: Dates, beside: Dates) -> list[int] | None:
    """Return the times of the file that is written last in such a checkpoint. None if its kind is not known."""
    for shape, where, last in WRITTEN_LAST:
        if any(shape.fullmatch(name + b"/" + at) for at in inside):
            names = inside if where == "in" else beside
            return [d[0] for at, d in names.items() if last.fullmatch(os.path.basename(at))]
    return None


def _done_of(what: bytes, listing: Dated, done: Sequence[Callable[[str], object]]) -> list[int]:
    """Return the times of the marker files, in the checkpoint or next to it, that say that it is complete."""
    parent, name = os.path.split(what)
    stem = os.path.splitext(name)[0]

    def says(marker: bytes) -> bool:
        return bool(DONE(marker)) or any(matches(escape_path(marker)) for matches in done)

    found = [dated[0] for at, dated in listing.get(what, {}).items() if says(at)]
    for at, dated in listing.get(parent, {}).items():
        for head in (name, stem):
            rest = at[len(head) :]
            if (
                at != name
                and at.startswith(head)
                and rest[:1] in (b".", b"-", b"_")
                and (DONE(rest[1:]) or any(matches(escape_path(at)) for matches in done))
            ):
                found.append(dated[0])
    return found


def name_group(name: bytes) -> bytes:
    return re.sub(rb"\d+", b"#", name)


def _has_all_shards(names: Iterable[bytes], one: bytes | None) -> bool:
    """Whether each set of shards like `x-00001-of-00004` is complete. With `one`, check only the set of that file."""
    there: dict[tuple, set[bytes]] = {}
    for match in filter(None, map(SHARD, names)):
        there.setdefault((match[1], match[3], match[4]), set()).add(match[2])
    if one is not None:
        shard = SHARD(one)
        there = {shard.group(1, 3, 4): there.get(shard.group(1, 3, 4), set())} if shard else {}
    return all(len(found) >= int(of[1]) for of, found in there.items())
