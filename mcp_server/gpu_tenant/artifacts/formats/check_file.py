"""Hashes and judges one file in the present process. If the file takes too much, another process may kill this one."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Literal

from gpu_tenant.artifacts.formats import resource_limits
from gpu_tenant.artifacts.formats.bounded_file import Broken, Findings, Source, Unread
from gpu_tenant.artifacts.formats.registry import claimed_format, not_as_named
from gpu_tenant.artifacts.formats.resource_limits import NO_MEMORY
from gpu_tenant.artifacts.formats.single_pass import Passage
from gpu_tenant.domain.evidence import Verdict
from gpu_tenant.files.direct_io import Stored

_LONGEST_TEXT = 500
_MOST_TEXTS = 60
_UNCLAIMED = "no format that can be read here is claimed: only the hash covers it"


@dataclass(frozen=True, slots=True)
class Proof:
    """The size and hash of a file that was read back, and the verdict whether it loads."""

    size_bytes: int
    sha256: str
    verdict: Verdict


def prove(
    path: Path,
    *,
    name: str,
    sha256: str | None,
    stop: Event | None = None,
    flushed: Literal["flushed", "not flushed"] = "not flushed",
) -> Proof | None:
    """Read the regular file at `path` once, from the disk and not from a cache, and hash and inspect it.

    None if there is no such file. The verdict counts only if the hash equals `sha256`. Memory is bounded as in
    `inspect`. Once `stop` is set, reading ends at the next block. With `flushed="flushed"`, the caller has just
    flushed the file, so it is not flushed again.

    Raises:
        OSError: the disk could not be read.
        Stopped: `stop` was set.
    """
    stored = Stored.at(path)
    if stored is None:
        return None
    passage = Passage(stored, sha256, stop or Event(), flushed=flushed)
    with stored, closing(passage):
        with Source(path, name, stored.opened, passage) as source:
            verdict = _judge(source)
        size_bytes, digest = passage.finish()
    return Proof(size_bytes, digest, verdict)


def inspect(path: Path, *, name: str) -> Verdict:
    """Inspect the file at `path` as the format that its kept `name` claims.

    Nothing in the file is executed, and memory is bounded, however large or hostile the file is.

    Raises:
        OSError: the disk could not be read. The content never raises an error: a bad file is `broken`, with a
            reason.
    """
    with Source(path, name) as source:
        return _judge(source)


def _judge(source: Source) -> Verdict:
    findings = Findings()
    problem = unread = None
    claim = claimed_format(source)
    is_empty = source.size_bytes == 0 and (claim is None or claim.may_be_empty)
    if is_empty:
        claim = None
    try:
        if wrong := not_as_named(source, claim):
            problem = wrong
        elif claim is None:
            unread = _UNCLAIMED
            if is_empty:
                findings.warn("empty")
        elif source.size_bytes == 0:
            problem = "the file is empty"
        else:
            if claim.read_again and source.passage is not None:
                source.passage.keep()
            claim.check(source, findings)
    except Broken as fault:
        problem = str(fault)
    except Unread as reason:
        unread = str(reason)
    except MemoryError:
        unread = NO_MEMORY
    except Exception as surprise:  # noqa: BLE001  an unforeseen error of a parser is a finding about the file
        problem = f"{type(surprise).__name__}: {surprise}"
    if source.failure:
        raise source.failure
    if problem and resource_limits.is_strained():
        # Libraries report missing memory in many ways. No such report is evidence against the file.
        unread, problem = f"{NO_MEMORY} (it ended with: {problem[:100]})", None
    reasons = [*findings.not_proved, *([unread] if unread else [])]
    return Verdict(
        format=claim.name if claim else "unknown",
        outcome="broken" if problem else "opaque" if unread else "loads",
        proved=tuple(map(_printable, findings.proved[:_MOST_TEXTS])),
        not_proved=tuple(map(_printable, reasons[-_MOST_TEXTS:])),
        warnings=tuple(map(_printable, findings.warnings[:_MOST_TEXTS])),
        problem=_printable(problem) if problem else None,
    )


def _printable(text: str) -> str:
    """Shorten the text, and replace every character with which a file could control a terminal."""
    return "".join(letter if letter.isprintable() else "�" for letter in text[:_LONGEST_TEXT])
