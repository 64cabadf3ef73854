"""Whether a file loads as what it claims to be, and what reading it has proved and has not."""

from pathlib import Path

from gpu_tenant.loads.formats import FORMATS, SUFFIXES, TEXT, claimed
from gpu_tenant.loads.source import Broken, Findings, Source, Unread
from gpu_tenant.model import Verdict

__all__ = ["FORMATS", "SUFFIXES", "inspect"]

_LONGEST_TEXT = 500
_UNCLAIMED = "no format that can be read here is claimed: only the hash covers it"


def inspect(path: Path, *, name: str) -> Verdict:
    """What reading the file at `path` proves, as what its logical `name` claims it is.

    Nothing from the file is executed, and memory stays bounded however large or hostile it is.

    Raises:
        OSError: the disk could not be read. Content never raises; it is broken, with a reason.
    """
    findings = Findings()
    problem = unread = None
    with Source(path, name) as source:
        claim = claimed(source)
        if source.size_bytes == 0 and claim in (None, TEXT):
            findings.warn("empty")
            claim = None
        try:
            if claim is None:
                unread = _UNCLAIMED
            elif source.size_bytes == 0:
                problem = "the file is empty"
            else:
                claim.check(source, findings)
        except Broken as fault:
            problem = str(fault)
        except Unread as reason:
            unread = str(reason)
        except MemoryError:
            unread = "reading it takes more memory than there is here"
        except Exception as surprise:  # noqa: BLE001  a parser's surprise is a finding about the file
            problem = f"{type(surprise).__name__}: {surprise}"
        if source.failure:
            raise source.failure
    reasons = [*findings.not_proved, *([unread] if unread else [])]
    return Verdict(
        format=claim.name if claim else "unknown",
        outcome="broken" if problem else "opaque" if unread else "loads",
        proved=tuple(map(_printable, findings.proved)),
        not_proved=tuple(map(_printable, reasons)),
        warnings=tuple(map(_printable, findings.warnings)),
        problem=_printable(problem) if problem else None,
    )


def _printable(text: str) -> str:
    """The text, short, and without what a file may have put there to move a terminal."""
    return "".join(letter if letter.isprintable() else "�" for letter in text[:_LONGEST_TEXT])
