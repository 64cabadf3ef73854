"""Reads the pipes of a shell command: the exit status of `a | b` is that of `b`, and a failure of `a` is not seen."""

import re
import shlex
from collections.abc import Iterator
from posixpath import basename

_BETWEEN = re.compile(r"[;&()\n]+|\|\|+")
_PASSES_ALL_ON = ("tee", "ts")
"""Programs that read all their input, so that the program before them is never ended by its pipe."""
_STATUS_IS_AN_ANSWER = ("grep", "egrep", "fgrep", "zgrep", "rg", "diff", "cmp", "test", "[", "yes")
"""Programs whose status may not be 0 although all is well."""
_OTHER_SHELL = ""
_RUNS = (["-c"], ["-lc"], ["-ec"])
_SHELLS = ("sh", "bash", "dash", "zsh")


def only_copied_by_pipes(command: str) -> bool:
    """Whether each pipe of the command leads to a program that only copies what it reads, such as `tee`.

    Then nothing changes under `pipefail`, except that the status of the first program counts.
    """
    pipelines = [stages for stages in _pipelines(command) if len(stages) > 1]
    return bool(pipelines) and all(
        stages[0] not in (*_STATUS_IS_AN_ANSWER, _OTHER_SHELL)
        and all(x in _PASSES_ALL_ON for x in stages[1:])
        for stages in pipelines
    )


def hidden_status(command: str) -> str | None:
    """Return the program whose exit status hides that of another one before a pipe. None if nothing is hidden."""
    if only_copied_by_pipes(command):
        return None
    hiding = [stages[-1] for stages in _pipelines(command) if len(stages) > 1 and stages[-1]]
    return hiding[-1] if hiding else None


def _pipelines(command: str) -> Iterator[list[str]]:
    """Yield the programs of each pipeline, without those of a command that sets `pipefail` or cannot be read."""
    if "pipefail" in command or "PIPESTATUS" in command:
        return
    try:
        words = shlex.shlex(command.replace("\n", " ; "), posix=True, punctuation_chars="|&;()")
        words.whitespace_split = True
        parts = list(words)
    except ValueError:
        return
    stages, words_of_stage = list[str](), list[str]()
    for word in [*parts, ";"]:
        if word in ("|", "|&"):
            stages, words_of_stage = [*stages, _program(words_of_stage)], []
        elif _BETWEEN.fullmatch(word):
            yield [*stages, _program(words_of_stage)]
            if _program(words_of_stage) in _SHELLS and words_of_stage[-2:-1] in _RUNS:
                # The other shell has options of its own.
                yield from ([_OTHER_SHELL, *x] for x in _pipelines(words_of_stage[-1]) if x[1:])
            stages, words_of_stage = [], []
        else:
            words_of_stage.append(word)


def _program(words: list[str]) -> str:
    """Return the program of a simple command. Variables and redirections before it do not count."""
    for word in words:
        if not re.match(r"\w+=|\d*[<>]", word):
            return basename(word)
    return ""
