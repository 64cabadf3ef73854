"""Writes the file or line that each service manager needs to keep a program running."""

import plistlib
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

_AGAIN_AFTER_S = 15

_UNIT = """\
# Written by `gpu-tenant install watchdog`; the same with --remove takes it back.
[Unit]
Description=Every GPU lease is held to its terms (gpu-tenant watchdog)
# However often it ends, it is started again: nobody else looks.
StartLimitIntervalSec=0

[Service]
Type=exec
{lines}
Restart=always
RestartSec={again_s}
# What a job on this computer does is not the watchdog's end, and its end is not the job's.
KillMode=process
OOMPolicy=continue
# The file system is not closed: kept artifacts, ssh keys and keys of accounts lie where you put them.
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


def unit(command: Sequence[str], variables: Mapping[str, str]) -> str:
    """Return the systemd unit that keeps `command` running while the user's service manager runs."""
    program, *arguments = command
    lines = [f"ExecStart={_quote(program)} {' '.join(_argument(word) for word in arguments)}"]
    lines += [f"Environment={_quote(f'{name}={value}')}" for name, value in variables.items()]
    return _UNIT.format(lines="\n".join(lines), again_s=_AGAIN_AFTER_S)


def plist(label: str, command: Sequence[str], variables: Mapping[str, str], log: Path) -> bytes:
    """Return the launchd agent that keeps `command` running while the user is logged in."""
    return plistlib.dumps(
        {
            "Label": label,
            "ProgramArguments": [*command],
            **({"EnvironmentVariables": {**variables}} if variables else {}),
            "RunAtLoad": True,
            "KeepAlive": True,
            "ThrottleInterval": _AGAIN_AFTER_S,
            # If the watchdog ends, launchd must not end jobs that run on this computer.
            "AbandonProcessGroup": True,
            "StandardOutPath": str(log),
            "StandardErrorPath": str(log),
        },
        sort_keys=False,
    )


def cron_line(
    command: Sequence[str], variables: Mapping[str, str], log: Path, *, every_min: int
) -> str:
    """Return the crontab line that runs `command` every `every_min` minutes."""
    when = "* * * * *" if every_min == 1 else f"*/{every_min} * * * *"
    given = shlex.join([*(f"{name}={value}" for name, value in variables.items()), *command])
    if variables:
        given = f"env {given}"
    # The shell opens the log before the program starts, so the line must make the log's directory.
    made = f"mkdir -p -m 700 {shlex.quote(str(log.parent))}"
    # For cron, an unescaped % is the end of the command.
    words = f"{made} && {given} >>{shlex.quote(str(log))} 2>&1".replace("%", r"\%")
    return f"{when} {words}"


def _quote(word: str) -> str:
    """Return the word quoted for systemd, with quotes, backslashes and % escaped."""
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{plain}"'


def _argument(word: str) -> str:
    plain = _quote(word).replace("$", "$$")
    return plain[1:-1] if plain[1:-1].replace("-", "").replace("_", "").isalnum() else plain
