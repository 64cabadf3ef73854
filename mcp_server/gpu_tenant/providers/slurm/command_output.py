"""Parses what Slurm's own commands say about jobs and partitions. All functions are pure."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import NoCapacity, NoQuota, ProviderSilent, ProviderTrouble
from gpu_tenant.domain.model import MARK_PREFIX, Fate
from gpu_tenant.domain.ports import Finished
from gpu_tenant.domain.untrusted_text import cite, plain
from gpu_tenant.providers.list_rows import Subject, try_read

SEPARATOR = "\x1f"
"""The end of each field. It is a control character, because a job's name may contain any printable character."""

JOB_FIELDS = (
    "JobID",
    "ArrayJobID",
    "ArrayTaskID",
    "State",
    "Reason",
    "RestartCnt",
    "PreemptTime",
    "EndTime",
    "SubmitTime",
    "Partition",
    "tres-per-node",
    "NumNodes",
    "Comment",
)
ENDED_FIELDS = ("JobID", "JobIDRaw", "State", "Partition", "JobName", "Comment", "End")
PARTITION_FIELDS = (
    "Partition",
    "PreemptMode",
    "PriorityTier",
    "Time",
    "Available",
    "StateCompact",
    "Nodes",
    "Gres",
    "GresUsed",
)

_FATES: dict[str, Fate] = {
    "TIMEOUT": "walltime",
    "DEADLINE": "walltime",
    "PREEMPTED": "preempted",
    "NODE_FAIL": "host_lost",
    "BOOT_FAIL": "host_lost",
}
OVER = frozenset(
    {*_FATES, "COMPLETED", "FAILED", "CANCELLED", "OUT_OF_MEMORY", "REVOKED", "SPECIAL_EXIT"}
)
"""The states that a job does not leave by itself."""

_QUOTA = re.compile(r"QOS|Assoc|limit|account|violates", re.IGNORECASE)
_FULL = re.compile(
    r"Requested node configuration is not available|Invalid generic resource|partition",
    re.IGNORECASE,
)
_SILENT = re.compile(
    r"Unable to contact|Socket timed out|Communication|timed out|Zero Bytes", re.IGNORECASE
)
_NO_ACCOUNTS = re.compile(
    r"accounting (?:storage )?(?:is |was )?(?:disabled|not configured|not enabled)", re.IGNORECASE
)
_MARK = re.compile(rf"{MARK_PREFIX}(?:[0-9a-f]{{6}}:)?[a-z][a-z0-9_]*-[a-z0-9]+")
_CLUSTER = re.compile(r"ClusterName\s*=\s*([\w.-]+)\s*")
NOT_THERE = re.compile(r"Invalid job id|already completing or completed", re.IGNORECASE)
_GPU = re.compile(r"gpu(?::(?P<kind>[^:(),]+))?:(?P<count>\d+)")
_NONE = frozenset({"", "N/A", "(null)", "Unknown", "None", "NONE"})


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job, or one task of an array, as Slurm shows it."""

    id: str
    """The id for scancel: `123`, or `123_4` for a task of an array."""
    job: str
    """The id for srun."""
    state: str
    partition: str
    reason: str
    restarts: int
    submitted_at: datetime | None
    is_being_preempted: bool
    ends_at: datetime | None
    gpus: int
    mark: str | None
    comment: str

    @property
    def array(self) -> str:
        """The id of the array that the task belongs to. For a job that is not a task, the job's own id."""
        return self.id.partition("_")[0]

    @property
    def is_over(self) -> bool:
        """Whether the job has ended for good."""
        return self.state in OVER

    @property
    def is_held(self) -> bool:
        """Whether the job waits until its owner releases it."""
        return self.state == "PENDING" and self.reason == "JobHeldUser"

    @property
    def taken(self) -> Fate | None:
        """What took the allocation away. None if Slurm does not say so."""
        if self.is_being_preempted or (self.state == "PENDING" and self.restarts):
            return "preempted"
        if self.state == "SUSPENDED":
            return "preempted"
        return _FATES.get(self.state)


@dataclass(frozen=True, slots=True)
class Pool:
    """The GPUs of one kind in one partition."""

    partition: str
    kind: str | None
    """The GPU type that the GRES names. None if the GRES names no type."""
    most_on_a_node: int
    total: int
    free: int
    max_hours: float | None
    interruptible: bool


@dataclass(frozen=True, slots=True)
class SlurmAnswer:
    """All that Slurm knows about a user's jobs, from a complete answer."""

    cluster: str
    """The cluster's name."""
    rows: Sequence[SlurmJob]
    odd: Sequence[Subject] = ()
    """The subjects of the rows that cannot be read."""

    def must_show(self, job: str) -> None:
        """Require that every row that may be about that job was readable.

        Raises:
            ProviderSilent: an unreadable row may be about it.
        """
        if any(odd.id in (None, job) for odd in self.odd):
            raise odd_row()

    def must_show_mark(self, mark: str) -> None:
        """Require that every row that may carry that mark was readable.

        Raises:
            ProviderSilent: an unreadable row may carry it.
        """
        if any(not odd.mark_is_told or odd.mark == mark for odd in self.odd):
            raise odd_row()


QUEUE = """\
SLURM_TIME_FORMAT=%s
export SLURM_TIME_FORMAT
nonce=$1 fields=$2 ended=$3 since=$4
shift 4
printf '\\n%s queue\\n' "$nonce"
"$@" squeue --noheader --array --states=all --user="$(id -un)" --Format="$fields" || exit
printf '%s cluster\\n' "$nonce"
"$@" scontrol show config || exit
printf '%s ended\\n' "$nonce"
"$@" sacct --noheader --allocations --parsable2 --delimiter="$(printf '\\037')" --user="$(id -un)" \\
  --starttime="$since" --format="$ended" \\
  --state=TIMEOUT,PREEMPTED,NODE_FAIL,BOOT_FAIL,DEADLINE,OUT_OF_MEMORY,FAILED,COMPLETED
printf '%s end %s\\n' "$nonce" "$?"
"""
"""A script that lists jobs and the cluster's name.

The jobs are those that the controller remembers and, if the site keeps accounts, those that it has forgotten.

Each part begins with a line that nobody could predict. So neither a login's greeting nor a truncated answer can
be mistaken for a part.
"""


def parse_queue(answer: Finished, nonce: str) -> SlurmAnswer:
    """Parse the answer to `QUEUE`.

    Raises:
        ProviderSilent: the answer is not complete, so what runs is unknown.
        ProviderTrouble: one of the commands was refused.
    """
    lines = answer.stdout.decode(errors="replace").split("\n")
    marks = [
        (at, line.removeprefix(f"{nonce} ").split(" "))
        for at, line in enumerate(lines)
        if line.startswith(f"{nonce} ")
    ]
    if answer.exit_status:
        raise refusal(
            "scontrol" if ["cluster"] in [words for _, words in marks] else "squeue", answer
        )
    if [words[0] for _, words in marks] != ["queue", "cluster", "ended", "end"]:
        raise _odd("the answer is not complete")
    queue, config, over, end = (at for at, _ in marks)
    status = marks[3][1][-1]
    if status != "0" and not _NO_ACCOUNTS.search(words_of(answer)):
        raise refusal("sacct", Finished(int(status), b"", answer.stderr))
    named = [found[1] for line in lines[config:over] if (found := _CLUSTER.fullmatch(line))]
    if len(named) != 1:
        raise _odd("the answer does not say which cluster it is from")
    known_now, forgotten = "\n".join(lines[queue + 1 : config]), "\n".join(lines[over + 1 : end])
    over_now, odd_over = parse_ended(forgotten) if status == "0" else ([], [])
    listed, odd_now = jobs(known_now)
    rows = {row.id: row for row in (*over_now, *listed)}
    shown = {row.id for row in listed}
    # A job that the controller shows is fully known from there, so an unreadable sacct row about it
    # does not count. Other unreadable sacct rows name no box, and may carry any mark.
    nobody = Subject(None, None, mark_is_told=False)
    odd = [*odd_now, *(nobody for each in odd_over if each.id not in shown)]
    for each in odd_now:
        rows.pop(each.id or "", None)
    return SlurmAnswer(named[0], list(rows.values()), odd)


def parse_submitted(answer: Finished) -> str:
    """Return the id of the job that `sbatch --parsable` made.

    Raises:
        ProviderSilent: the answer names no job, and one may have been made.
    """
    found = re.findall(rb"^(\d+)(?:;\S*)?\r?$", answer.stdout, re.MULTILINE)
    if not found:
        raise ProviderSilent(
            "sbatch succeeded, but named no job: a job may have been made",
            remedy=f"{Command('leases')} looks for it by its mark",
        )
    return str(found[-1].decode())


def jobs(text: str) -> tuple[list[SlurmJob], list[Subject]]:
    """Parse the rows of squeue, with `JOB_FIELDS`. Also return the subjects of those that cannot be read."""
    return _each(text, JOB_FIELDS, _parse_job, _id)


def parse_ended(text: str) -> tuple[list[SlurmJob], list[Subject]]:
    """Do the same as `jobs` for the rows of sacct, with `ENDED_FIELDS`. These leave out runs that were requeued."""
    return _each(text, ENDED_FIELDS, _seen_ended, lambda said: said["JobID"])


def _each(
    text: str,
    fields: Sequence[str],
    read: Callable[[dict[str, str]], SlurmJob],
    identity: Callable[[dict[str, str]], str],
) -> tuple[list[SlurmJob], list[Subject]]:
    seen: list[SlurmJob] = []
    odd: list[Subject] = []
    for row in _split(text):
        said = dict(zip(fields, row, strict=False))
        is_whole = len(row) >= len(fields) and row[len(fields) :] in ([], [""])
        one = try_read(read, said) if is_whole else None
        if isinstance(one, SlurmJob):
            seen.append(one)
            continue
        named = try_read(identity, said)
        # Accept a number and nothing else, because a row that was cut wrongly may contain anything.
        found = isinstance(named, str) and re.fullmatch(r"[0-9]{1,18}(?:_[0-9]{1,18})?", named)
        odd.append(
            Subject(
                str(named) if found else None,
                _mark(said["Comment"]) if is_whole else None,
                mark_is_told=is_whole,
            )
        )
    return seen, odd


def _seen_ended(said: dict[str, str]) -> SlurmJob:
    array, _, task = said["JobID"].partition("_")
    return _parse_job(
        {
            **dict.fromkeys(JOB_FIELDS, "N/A"),
            "JobID": said["JobIDRaw"],
            "ArrayJobID": array,
            "ArrayTaskID": task or "N/A",
            "State": said["State"].split(" ")[0],
            "EndTime": said["End"],
            "Partition": said["Partition"],
            # Few sites keep comments, so the job's name carries the mark, too.
            "Comment": said["Comment"] or said["JobName"],
        }
    )


def pools(text: str, *, preemption: Literal["on", "off"]) -> list[Pool]:
    """Return the GPUs of each partition that takes jobs, from the rows of sinfo with `PARTITION_FIELDS`."""
    # A login may print a greeting before the rows.
    text = "\n".join(line for line in text.split("\n") if SEPARATOR in line)
    rows = [
        dict(zip(PARTITION_FIELDS, row, strict=True)) for row in _rows(text, len(PARTITION_FIELDS))
    ]
    rows = [row for row in rows if row["Available"] == "up"]
    highest = max((_number(row["PriorityTier"]) for row in rows), default=0)
    found: dict[tuple[str, str | None], Pool] = {}
    for row in rows:
        name, nodes = row["Partition"].rstrip("*"), _number(row["Nodes"])
        works = row["StateCompact"].rstrip("*~#!%$@^-+") in (
            "idle",
            "mix",
            "alloc",
            "comp",
            "resv",
            "plnd",
        )
        used = dict(_gpus(row["GresUsed"]))
        for kind, count in _gpus(row["Gres"]):
            if not works:
                continue
            before = found.get((name, kind))
            found[name, kind] = Pool(
                partition=name,
                kind=kind,
                most_on_a_node=max(count, before.most_on_a_node if before else 0),
                total=nodes * count + (before.total if before else 0),
                free=nodes * max(0, count - used.get(kind, 0)) + (before.free if before else 0),
                max_hours=_hours(row["Time"]),
                interruptible=preemption == "on"
                and row["PreemptMode"] not in ("OFF", *_NONE)
                and _number(row["PriorityTier"]) < highest,
            )
    return list(found.values())


def _rows(text: str, width: int) -> Iterator[list[str]]:
    for fields in _split(text):
        if fields[width:] not in ([], [""]) or len(fields) < width:
            raise _odd(f"a row has {len(fields)} fields")
        yield fields[:width]


def _split(text: str) -> Iterator[list[str]]:
    # Not splitlines: a name may contain other characters that end a line.
    for line in filter(None, text.split("\n")):
        yield [field.strip() for field in line.split(SEPARATOR)]


def odd_row() -> ProviderSilent:
    """Return the error for a row of Slurm's output that says nothing reliable."""
    return _odd("a row has another form than expected")


def _odd(words: str) -> ProviderSilent:
    return ProviderSilent(
        f"the output of Slurm's commands cannot be understood: {words}",
        remedy="see `squeue --me` on the login node; rename a job whose name has a line break",
    )


def _parse_job(told: dict[str, str]) -> SlurmJob:
    return SlurmJob(
        id=_id(told),
        job=told["JobID"],
        state=told["State"],
        partition=told["Partition"],
        reason="" if told["Reason"] in _NONE else told["Reason"],
        restarts=_number(told["RestartCnt"]),
        submitted_at=_time(told["SubmitTime"]),
        is_being_preempted=told["State"] == "RUNNING" and told["PreemptTime"] not in _NONE,
        ends_at=_time(told["EndTime"]),
        gpus=sum(count for _, count in _gpus(told["tres-per-node"]))
        * max(1, _number(told["NumNodes"])),
        # The mark is not read from the name, because an srun inside an allocation inherits the name.
        mark=_mark(told["Comment"]),
        comment=told["Comment"],
    )


def _id(told: dict[str, str]) -> str:
    task = told["ArrayTaskID"]
    return f"{told['ArrayJobID']}_{task}" if task.isdigit() else told["JobID"]


def _mark(words: str) -> str | None:
    return words if _MARK.fullmatch(words) else None


def _gpus(gres: str) -> Iterator[tuple[str | None, int]]:
    for found in _GPU.finditer(gres):
        yield found["kind"], int(found["count"])


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0


def _time(text: str) -> datetime | None:
    """Parse a time in seconds since the epoch, which is the form that SLURM_TIME_FORMAT=%s asks for."""
    try:
        return datetime.fromtimestamp(int(text), UTC) if text.isdigit() and int(text) else None
    except (ValueError, OverflowError, OSError):
        return None  # a time outside any calendar


def _hours(limit: str) -> float | None:
    """Convert `2-12:00:00`, `1:00:00` or `30:00` to hours. None if there is no limit."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)", limit)
    if found is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return days * 24 + hours + minutes / 60 + seconds / 3600


def words_of(told: Finished) -> str:
    """Return the end of the command's error output."""
    return plain(told.stderr.decode(errors="replace").strip())[-400:]


def refusal(command: str, told: Finished) -> ProviderTrouble:
    """Return the error for a Slurm command that failed."""
    words = f"{command}: {cite(words_of(told), most=400) or f'it ended with {told.exit_status}'}"
    if told.exit_status == 127:
        return ProviderTrouble(
            f"the login node has no {command}",
            remedy="name the login node under [slurm], and where the commands are: "
            'before = ["env", "PATH=/opt/slurm/bin:/usr/bin:/bin"]',
        )
    if _SILENT.search(words):
        return ProviderSilent(
            words, remedy=f"try again in a minute; {Command('leases')} looks again"
        )
    if command == "sbatch" and _QUOTA.search(words):
        return NoQuota(
            words, remedy="check account, qos and constraint under [slurm]; ask the site"
        )
    if command == "sbatch" and _FULL.search(words):
        return NoCapacity(words, remedy=f"{Command('offers', on='slurm')} has others")
    return ProviderTrouble(words, remedy=f"{Command('profiles', 'slurm')}; ask the site")
