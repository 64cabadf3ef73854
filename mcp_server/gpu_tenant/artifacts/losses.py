"""Lists what would be lost, file by file. A person must sign for named files, and not for a number of files."""

from gpu_tenant.artifacts.local_evidence import Loss
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.seal import Manifest, SealedFile
from gpu_tenant.domain.untrusted_text import quote_text
from gpu_tenant.domain.wording import in_words, some


def vanished_names(now: Manifest, collected: Manifest | None) -> tuple[str, ...]:
    """The files of the last collect that are no longer on the box. The copies here are the only ones."""
    names = {entry.name for entry in now.entries}
    return tuple(e.name for e in collected.entries if e.name not in names) if collected else ()


def differs(now: Manifest, collected: Manifest | None) -> bool:
    """Whether the seal `now` differs from what was collected. In a draft, unknown hashes are not compared."""
    if collected is None:
        return bool(now.entries)
    if now.digest:
        return collected.digest != now.digest
    return bool(vanished_names(now, collected)) or bool(_uncollected(now, collected))


def _uncollected(now: Manifest, collected: Manifest | None) -> list[SealedFile]:
    """The entries that were not collected with this name, size, link target and, if it is known, hash."""
    entries = collected.entries if collected else ()
    hashes = {(e.name, e.sha256, e.target) for e in entries}
    sizes = {(e.name, e.size_bytes, e.target) for e in entries}
    return [
        e
        for e in now.entries
        if (e.name, e.size_bytes, e.target) not in sizes
        or (e.sha256 is not None and (e.name, e.sha256, e.target) not in hashes)
    ]


def uncollected_loss(now: Manifest, collected: Manifest | None, lease: Lease) -> Loss:
    """Describe what is on the box and was not collected in its present form, as far as is known.

    A file that was not read again is named as well: it may have changed, and a person signs for names.
    """
    new, left = _uncollected(now, collected), vanished_names(now, collected)
    said = []
    if new:
        bytes_new, differ = sum(e.size_bytes for e in new), "differs" if len(new) == 1 else "differ"
        names = in_words([quote_text(e.name) for e in new])
        if collected is None:
            said.append(
                f"{some(len(new), 'file')} ({some(bytes_new, 'byte')}) on the box, and nothing was collected: {names}"
            )
        else:
            said.append(
                f"{some(len(new), 'file')} ({some(bytes_new, 'byte')}) on the box {differ} from what was collected: {names}"
            )
    named = {e.name for e in new}
    unread = [e for e in now.entries if e.sha256 is None and e.name not in named]
    if unread:
        names = in_words([quote_text(e.name) for e in unread])
        said.append(
            f"{some(len(unread), 'file')} on the box may differ and must be read again: {names}"
        )
    if left:
        gone = in_words([quote_text(name) for name in left])
        said.append(f"gone from the box: {some(len(left), 'file')} of the last collect: {gone}")
    return Loss(
        what="; ".join(said) or "some files were removed or renamed on the box",
        names=(
            *(f"{quote_text(e.name)} ({some(e.size_bytes, 'byte')})" for e in new),
            *(
                f"{quote_text(e.name)} ({some(e.size_bytes, 'byte')}, not read again)"
                for e in unread
            ),
            *(f"{quote_text(name)} (gone from the box)" for name in left),
        ),
        versions=tuple(map(_version, (*new, *unread))),
        remedy=f"{Command('collect', lease.id)}, then teardown again",
    )


def _version(entry: SealedFile) -> str:
    # The change time comes first: it is known at every look, and the hash only after the file was read.
    return f"{entry.ctime_ns or entry.sha256 or entry.mtime_ns} {entry.name}"


def unclaimed_versions(seal: Manifest) -> tuple[str, ...]:
    """Return what tells the content of the unclaimed files from any other content."""
    return tuple(f"{x.ctime_ns} {x.at}" for x in seal.unclaimed.largest if x.ctime_ns is not None)


def so_far(draft: Manifest, collected: Manifest | None, lease: Lease) -> tuple[str, ...]:
    """List everything on the box while jobs run, except what was collected in its present form."""
    known = {(e.name, e.sha256) for e in collected.entries} if collected else set()
    files = [
        f"{quote_text(entry.name)} ({some(entry.size_bytes, 'byte')} so far)"
        for entry in draft.entries
        if entry.sha256 is None or (entry.name, entry.sha256) not in known
    ]
    problems = [
        f"{quote_text(lease.from_work(problem.at))} ({problem.why})"
        for problem in draft.unsealed
        # A running job writes all the time, and the files that it writes are listed above anyway.
        if problem.why not in ("open_for_writing", "changing")
    ]
    return (*files, *unclaimed_by_name(draft, lease), *problems)


def unclaimed_by_name(seal: Manifest, lease: Lease) -> tuple[str, ...]:
    """Name the files that nobody has claimed, the largest first. Those that the box did not name are only counted."""
    named = seal.unclaimed.largest
    more = seal.unclaimed.count - len(named)
    return (
        *(
            f"{quote_text(lease.from_work(x.at))} ({some(x.size_bytes, 'byte')}, which nobody has claimed)"
            for x in named
        ),
        *([f"and {some(more, 'smaller file')}"] if more > 0 else []),
    )
