"""What a job says of itself at the very end of its log, whatever its exit status says."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.jobs.failure_patterns import (
    HEADER,
    LINES,
    OF_LINES,
    RANK,
    SKIPPED,
    Raised,
    tracebacks,
)

_AFTER_TRACEBACK: Final = 6
_NEAR_THE_END: Final = 12
"""At most this many lines may follow a failure: those of a launcher, a shell script or a tracker."""
_LOSSES: Final = 200

_PLACE = re.compile(r'^\s+File "(?P<file>[^"\n]+)", line (?P<line>\d+)')
_LIBRARIES = re.compile(r"/(?:site|dist)-packages/|/lib/python\d|^<")
_BESIDE_THE_POINT = re.compile(
    r"^Exception ignored in|^--- Logging error ---|^Error in (?:atexit|sys\.excepthook)|^Traceback of"
)
"""The line before the traceback of an error that Python only reports."""

_STAMP = re.compile(
    r"^(?:\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[.,\d]*\w*\]?[\s:|-]*|\[?\d\d:\d\d:\d\d\]?\s+|[IWEF]\d{4} [\d:.]+ +\d+ \S+\] )"
)
_PROGRESS = re.compile(
    r"\d{1,3}%\||\b(?:step|epoch|iter|iteration|batch)s?\b\W{0,4}\d|\b\w*(?:loss|acc|accuracy|ppl|bleu|psnr|reward|lr)\b['\"]?\s*[:=]?\s*[-+]?\d"
    r"|\b(?:saved|saving|wrote|written|uploaded|exported)\b|\bsuccess(?:ful|fully)?\b|\d+/\d+ \[",
    re.IGNORECASE,
)
"""What shows that a job went on after a failure. A bare `done` does not: wrappers print it after every command."""
_BAR = re.compile(r"\d{1,3}%\|.*?(\d+/\d+)")
_HANDLED = re.compile(
    r"\b(?:caught|handled?|handling|ignor\w+|skipp\w+|retry\w*|retries|recover\w*|fall\w* back|fallback|reduc\w+|halv\w+|resum\w+"
    r"|continu\w+|if you|in case|avoid\w*|prevent\w*|tip|hint|note|warning|warn|test\w*|expected|simulat\w+)\b"
    r"|\b(?:no|not|without|0|zero|any)\s+(?:\w+\s+)?$",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"\b(?:retry|retrying|resum\w+|continu\w+|skipp\w+|fall\w* back|recover(?:ed|ing)|restart\w+)\b",
    re.IGNORECASE,
)
_WILL_GO_ON = re.compile(
    r"\b(?:will (?:retry|try again|be retried)|retrying|skipping|continuing|falling back)\b",
    re.IGNORECASE,
)
"""What counts wherever it stands in a line: an error may be about a `resume` or a `retry` that failed."""
_QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|(?<!\w)'[^'\n]*'(?!\w)")

_SURE = re.compile(
    r"(?:\S+: (?:line )?\d+: .*(?:not found|No such file or directory|Permission denied)"
    r"|\S+: (?:line )?\d+: +(?:\d+ )?(?:Killed|Segmentation fault|Aborted|Bus error|Illegal instruction|Floating point exception)\b.*"
    r"|(?:Killed|Segmentation fault|Aborted|Bus error|Illegal instruction|Floating point exception)(?:: \d+)?(?: \(core dumped\))?)$"
)
"""What a shell says of a command. A job that a shell has no more words for has not gone on."""

_FATAL = re.compile(
    "|".join(
        (
            # An exception without its traceback, as a launcher or a log handler prints it
            r"^(?:[\w]+\.)*(?:[A-Z]\w*(?:Error|Exception)|KeyboardInterrupt|SystemExit)(?::|: \S.*|\(['\"].*\),?)?$",
            r"^(?:[\w.]+: )*(?:CUDA|HIP|XPU) out of memory\b",
            r"\b(?:OutOfMemoryError|RuntimeError|XlaRuntimeError|AcceleratorError): ",
            r"^(?:CUDA|CUDA driver|cuDNN|NCCL|CUBLAS) error\b",
            r"\bRESOURCE_EXHAUSTED: |\bCUDA_ERROR_\w+|\bOOM when allocating tensor",
            r"Watchdog caught collective operation timeout|watchdog thread terminated with exception|^.*To avoid data inconsistency, we are taking the entire process down|NCCL WARN .*(?:abort|failed)",
            r"^Fatal Python error: |^terminate called|^libc\+\+abi: terminating|\(core dumped\)|^panic: |^thread '.*' panicked|Assertion .* failed",
            r"^(?:double free or corruption|free\(\): |malloc\(\): |\*\*\* stack smashing)",
            r"ChildFailedError|CalledProcessError|returned non-zero exit status [1-9]|exits? with return code = -?[1-9]",
            r"\b(?:exited|finished|failed) with (?:exit )?(?:code|status):? -?[1-9]|^exit status [1-9]|\bexitcode ?: -?[1-9]",
            r"^Primary job +terminated normally, but|^(?:\w+\.)+\w*Error\b|^\S*python\S*: can't open file",
            r"^srun: error: |^slurmstepd: error: |MPI_ABORT was invoked|^mpirun noticed that process|process(?:es)? returned\s+a non-zero exit code",
            r"^make(?:\[\d+\])?: \*\*\* |^Error executing job with overrides|^Execution halted$|^ERROR: LoadError: ",
            r"(?:^|[:\])] )\w*(?:Error|Exception): \S",
            r"^(?:\w+: )?(?i:(?:fatal )?error)(?: response from daemon)?: [A-Za-z]|^\w+ fatal +: |\berror while loading shared libraries",
            r"^\S*python\S*: No module named|^ninja: build stopped|\bexited with (?:a )?non-?zero|^curl: \(\d+\) ",
            r"^[\w./()-]+(?::\d+)*: (?:fatal )?error: |\berrors? detected in the compilation|^Command terminated by signal \d|: command not found$",
            r"\bOut of memory: Kill|\boom[-_]kill|\(OOM\)|killed due to memory|SIGKILL|\b[Kk]illed by signal",
            r"No space left on device|Disk quota exceeded|Input/output error",
            r"^Exception in thread \"|^Caused by: |^Unhandled exception|^fatal(?: error)?: ",
            r"^Fatal error:?$|\bCheck failed: |^\*\*\* Aborted at |^[✘✖] \S",
            r"^Critical error\b|^Error when executing\b|^CMake Error\b|^CUDA Setup failed\b|\]\s*\[(?:TRT\] \[E|ERROR)\] |^ERROR ~ ",
            r"Resource temporarily unavailable$|: version \S+ not found \(required by|^timeout: sending signal ",
            r"\bterminated with (?:the following|an?) (?:error|non-?zero)|^\S+: Error is not recoverable: ",
            r"^(?:Loss|loss) is (?:nan|NaN|inf)\b|NaN (?:loss|detected)|[Ll]oss (?:became|diverged|is not finite)|[Nn]on-finite loss",
        )
    )
)
_LAST_WORD = re.compile(
    r"(?:^|[\s\[|.])(?-i:ERROR|CRITICAL|FATAL)(?:\]|:| |\|| -)|\"?level\"?\s*[:=]\s*\"?(?:error|fatal|critical)\b"
    r"|^!+ Exception|^\w+ error: |OOM killer|^signal: killed"
    r"|(?<![\d(] )(?<!nothing )(?<!none )\b(?:failed|crashed|died)\b(?=[.!]?\s*$|\.\s|:\s+[A-Z]| (?:on|with|to|in|at|because|after)\b(?! \d))"
    r"|^sudo: |^Permission denied \(|^Host key verification failed|^[45]\d\d - \w+|^(?:\w+\.){2,}(?-i:[A-Z])\w+: \S"
    r"|: No such file or directory$|\b[Uu]nexpected (?:EOF|end of file)\b"
    r"|^\W*(?:\S+: )?(?:no solution found|\w+ could not find|cannot|could not|unable to|failed to)\b",
    re.IGNORECASE,
)
"""These count only as the last word: many programs go on after such a message."""
_HARMLESS = re.compile(
    r"pip's dependency resolver|dependency conflicts|Unable to register cu|computation_placer|TF-TRT Warning|fork\(\) was called"
    r"|\berrors?: (?:no|none|nothing)\W*$|\b(?:0|no|zero) (?:errors?|failures?|exceptions?)\b|(?<!returned )\berrors?\s*[:=]\s*[-+]?\d",
    re.IGNORECASE,
)
_LOSS = re.compile(
    r"(?<![A-Za-z])(?P<name>[\w/]*(?:loss|grad_norm)[\w/]*)['\"]?\s*(?:is|[:=]|\s)\s*(?:tensor\()?(?P<value>[-+]?(?:nan|inf(?:inity)?|\d[\d.]*(?:e[-+]?\d+)?))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Crash:
    """The failure that a log ends with, and where in the program it was raised, if the log says so."""

    line: str
    place: str = ""
    """As in `train.py:3`."""
    grade: Literal["failed", "suspect"] = "failed"
    """`suspect`: the line may also be the last word of work that is done."""

    @property
    def words(self) -> str:
        """The failure and its place, in one line."""
        return f"{self.line} at {self.place}" if self.place else self.line


def last_crash(log_tail: str) -> Crash | None:
    """Return the failure with which a log ends: an uncaught exception, a shell's own error, or a line that tells of one.

    None if it ends with neither. Only the very end counts, because a program may print a traceback and go on.
    """
    lines = [RANK.sub("", line) for line in plain(log_tail).split("\n")]
    lines = [line for line in lines if line.strip()][-LINES:]
    for one in [one for one in tracebacks(lines) if _is_only_reported(lines, one)]:
        begin = one.at - len(one.block) - 1
        lines[begin : one.at + 1] = [""] * (one.at + 1 - begin)
    for at, line in enumerate(lines[:-1]):
        if _BESIDE_THE_POINT.match(line):
            lines[at + 1] = ""
    raised = [one for one in tracebacks(lines) if _is_last(lines, one.at, _AFTER_TRACEBACK)]
    if raised:
        return Crash(raised[-1].line.strip(), _place_of(raised[-1].block))
    near = list(_telling(lines))[-_NEAR_THE_END:]
    if near and HEADER.search(near[-1][1]):
        return Crash(near[-1][1].strip(), grade="suspect")
    bare = [_STAMP.sub("", line).strip() for _, line in near]
    for at in reversed(range(len(near))):
        index, line = near[at]
        if _SURE.match(line) and _is_last(lines, index, _AFTER_TRACEBACK):
            return Crash(line.strip())
        if _tells_of_a_failure(bare[at], is_last=at == len(near) - 1) and _is_last(
            lines, index, _NEAR_THE_END
        ):
            return Crash(line.strip(), grade="suspect")
    return None


def last_loss(log_tail: str) -> str | None:
    """Return the last word of a log about a loss, if that loss is no number."""
    for line in reversed(plain(log_tail).split("\n")[-_LOSSES:]):
        told = list(_LOSS.finditer(line))
        bad = [x for x in told if not x["value"].lstrip("+-")[:1].isdigit()]
        if told:
            return f"{bad[0]['name']} is {bad[0]['value']}" if bad else None
    return None


def _is_only_reported(lines: Sequence[str], one: Raised) -> bool:
    """Whether Python itself reported the exception, and the program did not end of it."""
    at = one.at
    while at > 0 and not HEADER.search(lines[at]):
        at -= 1
    return any(_BESIDE_THE_POINT.match(line) for line in lines[max(0, at - 1) : at])


def _telling(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the lines that say something, with their places. What is indented belongs to the line before."""
    for index, line in enumerate(lines):
        if not SKIPPED.match(line) and not line.startswith((" ", "\t")):
            yield index, line


def _is_last(lines: Sequence[str], at: int, most: int) -> bool:
    """Whether the job did not go on after the line: few lines follow, and none of them shows that it did.

    A progress bar that is only drawn once more shows nothing.
    """
    told = [line for _, line in _telling(lines[at + 1 :])]
    bars = {bar for line in lines[:at] for bar in _BAR.findall(line)}
    return len(told) <= most and not any(
        (_GOES_ON.search(line) or _PROGRESS.search(line))
        and not bars.intersection(_BAR.findall(line))
        and not _tells_of_a_failure(line.strip())
        for line in told
    )


def _tells_of_a_failure(line: str, *, is_last: bool = False) -> bool:
    if _HARMLESS.search(line) or _WILL_GO_ON.search(line):
        return False
    unquoted = _QUOTED.sub("''", line)
    found = _FATAL.search(unquoted) or next(
        filter(None, (x.search(line) for _, x in OF_LINES)), None
    )
    if found is None and is_last:
        found = _LAST_WORD.search(unquoted)
    if found is None:
        return False
    return not _HANDLED.search(unquoted[: found.start()]) and not _GOES_ON.search(
        unquoted[found.end() :]
    )


def _place_of(block: Sequence[str]) -> str:
    """Return the last place of a traceback that is in the program itself, and not in a library."""
    places = [found for line in block if (found := _PLACE.match(line))]
    own = [found for found in places if not _LIBRARIES.search(found["file"])] or places
    if not own:
        return ""
    return f"{own[-1]['file'].rpartition('/')[2]}:{own[-1]['line']}"
