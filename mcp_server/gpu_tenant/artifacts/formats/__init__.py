"""Checks whether a file loads as the format that it claims, and reports what that proves and what it does not.

Each file is read in a separate process: see `artifacts/formats/worker_pool.py`.
"""

from collections.abc import Sequence
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from threading import Event

from gpu_tenant.artifacts.formats.bounded_file import Source
from gpu_tenant.artifacts.formats.check_file import Proof
from gpu_tenant.artifacts.formats.registry import FORMATS, SUFFIXES, claimed_format
from gpu_tenant.artifacts.formats.single_pass import Passage, Stopped
from gpu_tenant.artifacts.formats.worker_pool import SHARED, Answer, Ended, Readers, ReadRequest
from gpu_tenant.domain.evidence import Verdict
from gpu_tenant.files.direct_io import Stored

__all__ = [
    "FORMATS",
    "SUFFIXES",
    "Proof",
    "ReadRequest",
    "Stopped",
    "inspect",
    "prove",
    "prove_all",
]


def prove(
    path: Path,
    *,
    name: str,
    sha256: str | None,
    stop: Event | None = None,
    readers: Readers = SHARED,
) -> Proof | None:
    """Read the regular file at `path` once, from the disk and not from a cache, and hash and inspect it.

    None if there is no such file. The verdict counts only if the hash equals `sha256`. If the inspection takes
    too much memory or time, it is stopped. Then the file is only hashed, and the verdict is `opaque` and gives
    the reason. Once `stop` is set, the call ends soon.

    Raises:
        OSError: the disk could not be read.
        Stopped: `stop` was set.
    """
    file = ReadRequest(path, name, _size_bytes(path), sha256)
    return prove_all([file], stop=stop, readers=readers)[0]


def prove_all(
    files: Sequence[ReadRequest], *, stop: Event | None = None, readers: Readers = SHARED
) -> Sequence[Proof | None]:
    """Do the same as `prove` for each of the files. Several small files are read faster in one call."""
    stop = stop or Event()
    answers = readers.ask(files, "prove", stop)
    return [_proof_of(file, answer, stop) for file, answer in zip(files, answers, strict=True)]


def inspect(path: Path, *, name: str, readers: Readers = SHARED) -> Verdict:
    """Inspect the file at `path` as the format that its kept `name` claims.

    Nothing in the file is executed. Memory and computing time are bounded, however large or hostile the file
    is. If a file takes more, it is `opaque`, and the verdict gives the reason.

    Raises:
        OSError: the disk could not be read. The content never raises an error: a bad file is `broken`, with a
            reason.
    """
    answer = readers.ask([ReadRequest(path, name, _size_bytes(path))], "inspect", Event())[0]
    if why := _why_stopped(answer):
        with Source(path, name) as source:
            return _unread(source, why)
    assert not isinstance(answer, Ended)
    _raise_failure(answer, path)
    return Verdict.model_validate(answer["verdict"])


def _proof_of(file: ReadRequest, answer: Answer | Ended, stop: Event) -> Proof | None:
    if why := _why_stopped(answer):
        return _prove_by_hash(file, stop, why)
    assert not isinstance(answer, Ended)
    _raise_failure(answer, file.path)
    if "absent" in answer:
        return None
    return Proof(
        size_bytes=int(str(answer["size_bytes"])),
        sha256=str(answer["sha256"]),
        verdict=_share(Verdict.model_validate(answer["verdict"])),
    )


@lru_cache(maxsize=1024)
def _share(verdict: Verdict) -> Verdict:
    """Return an equal verdict, as one object for all files that have it. This saves memory."""
    return verdict


def _why_stopped(answer: Answer | Ended) -> str | None:
    if isinstance(answer, Ended):
        return str(answer)
    return str(answer["stopped"]) if "stopped" in answer else None


def _prove_by_hash(file: ReadRequest, stop: Event, why: str) -> Proof | None:
    """Do the same as `prove`, but only hash the file. `why` is the reason."""
    stored = Stored.at(file.path)
    if stored is None:
        return None
    with stored, closing(Passage(stored, file.sha256, stop)) as passage:
        with Source(file.path, file.name, stored.opened) as source:
            verdict = _unread(source, why)
        size_bytes, digest = passage.finish()
    return Proof(size_bytes, digest, verdict)


def _unread(source: Source, why: str) -> Verdict:
    claim = claimed_format(source)
    printable = "".join(letter if letter.isprintable() else "�" for letter in why)
    return Verdict(
        format=claim.name if claim else "unknown", outcome="opaque", not_proved=(printable,)
    )


def _raise_failure(answer: Answer, path: Path) -> None:
    if "words" in answer:
        errno = answer["errno"]
        words = str(answer["words"])
        raise OSError(errno, words, str(path)) if isinstance(errno, int) else OSError(words)


def _size_bytes(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
