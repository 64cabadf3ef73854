"""What we ask of Slurm for a lease: the owner's settings and the batch script. The functions only read files."""

import base64
import math
import shlex
import tomllib
import zlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from hashlib import sha256
from pathlib import Path

from pydantic import Field, ValidationError

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import ProviderTrouble
from gpu_tenant.domain.model import MARK_PREFIX, Lease
from gpu_tenant.domain.record import Record
from gpu_tenant.files.skill_files import script

UNCLAIMED = "gpu-tenant/"
"""The prefix of a held task's name until a lease claims the task. Such a task is not yet a box, and bills nothing."""


class Site(Record):
    """`[slurm]` of the configuration: where the cluster is, and with which options its jobs are submitted."""

    login: str | None = Field(
        default=None, pattern=r"^[^-\s]\S*$", description="an ssh target; absent: this computer"
    )
    before: tuple[str, ...] = Field(
        default=(), description="put before each command there, such as `env SLURM_CONF=...`"
    )
    partition: str | None = Field(default=None, description="the only partition to offer")
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    cpus_per_gpu: int | None = Field(default=None, gt=0)
    mem_gb_per_gpu: int | None = Field(default=None, gt=0)
    rate_usd_h: Decimal | None = Field(
        default=None, ge=0, description="what an hour of one GPU is worth; absent: unknown"
    )
    max_running: int | None = Field(
        default=None, gt=0, description="how many tasks of one fleet may run at a time"
    )
    grace_s: int = Field(
        default=120, ge=5, le=3600, description="how long before the walltime jobs must save"
    )
    gpus: dict[str, str] = Field(
        default={},
        description="the GPU of each GRES type, such as `a100` = `A100 SXM 80GB`; `gpu`: without type",
    )


def is_named(configuration: Path) -> bool:
    """Whether the configuration names a cluster.

    Raises:
        ProviderTrouble: the configuration cannot be read.
    """
    return "slurm" in _read_settings(configuration)


def site(configuration: Path, environ: Mapping[str, str]) -> Site:
    """Return the owner's settings for the cluster. If they name no way to it, this computer's SLURM_CONF is used.

    Raises:
        ProviderTrouble: the settings cannot be understood.
    """
    try:
        found = Site.model_validate(_read_settings(configuration).get("slurm", {}))
    except ValidationError as error:
        raise _unclear(configuration, error) from error
    here = environ.get("SLURM_CONF")
    if found.login is None and not found.before and here:
        return found.model_copy(update={"before": ("env", f"SLURM_CONF={here}")})
    return found


def _read_settings(configuration: Path) -> dict[str, object]:
    try:
        return tomllib.loads(configuration.read_text(encoding="utf-8"), parse_float=Decimal)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise _unclear(configuration, error) from error


def _unclear(configuration: Path, error: Exception) -> ProviderTrouble:
    return ProviderTrouble(
        f"[slurm] in {configuration} cannot be understood: {error}",
        remedy=f"correct it; {Command('profiles', 'slurm')} lists its settings",
    )


def order(
    site: Site,
    lease: Lease,
    *,
    partition: str,
    gres: str,
    gpu_count: int,
    max_hours: float | None,
    now: datetime,
) -> Sequence[str]:
    """Return the options of sbatch for the lease. The walltime is what is left until the deadline.

    The signal to save goes only to the batch script, which passes it to the runner. If the lease's terms say where
    interrupted work continues (`recover`), Slurm is told not to start the job again.
    """
    left_h = (lease.terms.deadline_at - now).total_seconds() / 3600
    hours = left_h if max_hours is None else min(left_h, max_hours)
    stated = {
        "account": site.account,
        "qos": site.qos,
        "constraint": site.constraint,
        "cpus-per-gpu": site.cpus_per_gpu,
        "mem": site.mem_gb_per_gpu and f"{site.mem_gb_per_gpu * gpu_count}G",
    }
    return [
        f"--partition={partition}",
        f"--gres={gres}",
        "--nodes=1",
        "--ntasks=1",
        f"--time={max(1, math.ceil(round(hours * 60, 3)))}",
        f"--signal=B:TERM@{site.grace_s}",
        "--no-requeue" if lease.terms.recover else "--requeue",
        "--open-mode=append",
        "--output=/dev/null",
        *(f"--{name}={value}" for name, value in stated.items() if value is not None),
    ]


def batch(directory_of: str, *, grace_s: int) -> str:
    """Return the batch script: it records the job's id, unpacks the runner, and runs the runner to its end.

    `directory_of` is a shell word that gives the lease's directory. If its value does not have the form of such a
    path, nothing starts. If the runner was asked to leave, the script waits until Slurm ends the job as announced.
    If the script ended before a preemption, Slurm would not start the job again. If the script ended before the
    walltime, Slurm would not report a timeout.
    """
    brought = "\n".join(_script_text(name) for name in ("caretaker", "runner"))
    return f"""\
#!/bin/sh
umask 077
cd || exit 1
directory={directory_of}
case $directory in */ | *[!a-z0-9_/-]*) exit 1 ;; esac
mkdir -p "$directory/caretaker" || exit 1
echo "$SLURM_JOB_ID" >"$directory/allocation"
{brought}
python3 -I -S {_at("runner")} --home "$directory/caretaker" --caretaker {_at("caretaker")} stay --request - <<'END' &
{{"grace_s": {max(3, grace_s - 10)}, "signal": "TERM", "linger_s": 31536000}}
END
runner=$!
trap 'kill -TERM "$runner" 2>/dev/null' TERM USR1
while :; do
  wait "$runner"
  status=$?
  kill -0 "$runner" 2>/dev/null || break
done
[ "$status" = 75 ] || exit "$status"
trap '' TERM USR1
sleep 3600 & wait
"""


def of_lease(lease: Lease) -> str:
    """Return that lease's directory, as a shell word."""
    return shlex.quote(lease.directory)


def of_task(site: Site) -> str:
    """Return a shell word for the directory of the lease that claimed this task of an array, by the task's name."""
    # The task is named by array and index. The last task's plain job id would select the whole
    # array.
    task = "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
    name = f'{shlex.join([*site.before, "scontrol"])} show job -o "{task}"'
    return f"gpu-tenant/$({name} | sed -n 's/.* JobName=[^ ]*:\\([a-z0-9_-]*\\) .*/\\1/p')"


def array_name(lease: Lease) -> str:
    """Return the name of a fleet array's unclaimed tasks. It cannot be the mark of a lease."""
    return f"{lease.mark.rpartition(':')[0]}/{lease.fleet}".replace(MARK_PREFIX, UNCLAIMED)


def _at(name: str) -> str:
    digest = sha256(script(f"{name}.py").read_bytes()).hexdigest()[:16]
    return f"gpu-tenant/{name}-{digest}.py"


def _script_text(name: str) -> str:
    packed = base64.b64encode(zlib.compress(script(f"{name}.py").read_bytes(), 9)).decode()
    lines = "\n".join(packed[start : start + 76] for start in range(0, len(packed), 76))
    unpack = "import base64, sys, zlib; sys.stdout.buffer.write(zlib.decompress(base64.b64decode(sys.stdin.read())))"
    at = _at(name)
    return f"""\
[ -f {at} ] || {{ python3 -I -S -c '{unpack}' >{at}.$$ <<'END' && mv -f {at}.$$ {at} || exit 1
{lines}
END
}}"""
