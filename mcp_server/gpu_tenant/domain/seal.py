"""A seal: what was on the box when no job was running, by path, size and hash."""

from typing import Literal

from pydantic import ConfigDict, Field

from gpu_tenant.domain.record import MOST_BYTES, Numerous, Record


class SealedFile(Numerous):
    """One thing to be kept, as it was on the box when no job was running.

    `name` is its path under the kept directory. `at` is its path on the box. In both, control characters, `%` and
    bytes that are not UTF-8 are written as `%XX` (see `files/paths.py`).
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True
    )

    name: str
    at: str
    kind: Literal["file", "link"]
    role: Literal["artifact", "log", "unasked"] = Field(alias="class")
    """`unasked`: nobody declared the file, and it comes home because it is small beside what the end may cost."""
    size_bytes: int = Field(alias="size", ge=0, le=MOST_BYTES)
    sha256: str | None
    mtime_ns: int
    ctime_ns: int | None = None
    """When it was last changed, which nobody on the box can set back. None if the box did not say it."""
    target: str | None = None


class Heap(Record):
    """How many files there are of one kind, and their total size."""

    count: int = Field(ge=0, le=10**12)
    size_bytes: int = Field(alias="bytes", ge=0, le=MOST_BYTES)


class Discarded(Heap):
    """What may be lost, because the job said so or because it is a well-known cache."""

    class Pattern(Heap):
        """One pattern in force, and how many files it covers."""

        pattern: str

    patterns: tuple[Pattern, ...] = ()


class Unclaimed(Heap):
    """What was written since launch, and is neither claimed nor discarded nor small enough to come home unasked."""

    class Path(Record):
        """One of the largest unclaimed paths."""

        at: str
        size_bytes: int = Field(alias="size", ge=0, le=MOST_BYTES)
        ctime_ns: int | None = None

    largest: tuple[Path, ...] = ()


class Empty(Record):
    """Empty files that nobody has claimed. Only their names would be lost."""

    count: int = 0
    first: tuple[str, ...] = ()


class Elsewhere(Unclaimed):
    """What was written since launch in other places of the box, and is not taken for the work of a job.

    It changed after the jobs had ended, is still open for writing, or cannot be read.
    """

    whole: bool
    """Whether these are all such files. Older seals stopped looking after two seconds."""


WITHOUT_BYTES = frozenset({"special", "dangling", "escapes", "link_target_not_kept"})
"""Problems with things that hold no bytes: pipes, sockets and devices, and links that lead to nothing kept.

A link that leads to nothing is kept as it is. What a link leads to elsewhere on the box is listed by itself.
"""


class Problem(Record):
    """Something that is not sealed as a plain file."""

    at: str
    why: str
    detail: str

    @property
    def may_hold_bytes(self) -> bool:
        """Whether a file may be lost there. If not, this is only told."""
        return self.why not in WITHOUT_BYTES


class Manifest(Record):
    """Everything on the box that matters, sealed there after the last job ended."""

    sealed_at: float = Field(
        ge=0, lt=253402300800, description="seconds since the epoch, by the box's clock"
    )
    boot_id: str
    since_ns: int | None = Field(description="bytes written from here on are accounted for")
    digest: str = Field(description="sha256 over the sorted entries")
    entries: tuple[SealedFile, ...]
    unclaimed: Unclaimed
    discarded: Discarded
    pushed: Heap
    problems: tuple[Problem, ...]
    """See `unsealed` and `not_files`."""
    unmatched: tuple[str, ...] = Field(description="declared artifacts that match nothing")
    empty: Empty = Empty.model_construct()
    lost_by_stop: Unclaimed | None = Field(
        default=None,
        description="the accounted files that would not outlive a stop; None: nobody asked",
    )
    bring_bytes: int | None = Field(
        default=None,
        description="of what nobody claimed, so much at most is among the entries; None: nothing",
    )
    elsewhere: Elsewhere | None = Field(
        default=None,
        description="the files in other places that are not accounted for; None: nobody looked",
    )

    @property
    def unsealed(self) -> tuple[Problem, ...]:
        """The places where a file could not be sealed, so that it would be lost."""
        return tuple(problem for problem in self.problems if problem.may_hold_bytes)

    @property
    def not_files(self) -> tuple[Problem, ...]:
        """The pipes, sockets, devices and links that hold no bytes."""
        return tuple(problem for problem in self.problems if not problem.may_hold_bytes)
