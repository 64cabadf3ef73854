"""The verbs `status` and `tail`."""

from __future__ import annotations

import os
import re
import time

from box_scripts.caretaker.cgroups import cgroup_files
from box_scripts.caretaker.disk_room import room_at
from box_scripts.caretaker.job_state import end_reason, observe
from box_scripts.caretaker.jobs import LIVE, Job, all_jobs
from box_scripts.caretaker.notice import heard_notice
from box_scripts.caretaker.paths import unescape_path
from box_scripts.caretaker.processes import boot_id, output_of, text_of
from box_scripts.caretaker.refusal import Refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from box_scripts.caretaker.job_state import Observed


def _log_part(job: Job, request: dict) -> dict:
    import binascii

    offset, limit = (
        request.get("offset", -65536),
        max(0, min(request.get("limit", 65536), 16 << 20)),
    )
    part: dict = {}
    with open(job.path("log") if os.path.exists(job.path("log")) else os.devnull, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if offset > size:
            offset, part["truncated"] = 0, True
        offset = max(0, size + offset) if offset < 0 else offset
        file.seek(offset)
        content = file.read(limit)
    text = binascii.b2a_base64(content, newline=False).decode()
    return dict(part, offset=offset, next_offset=offset + len(content), base64=text)


def _sample(job: Job, seen: Observed) -> dict:
    names = ("index", "name", "util_pct", "mem_used_mib", "mem_total_mib", "temp_c")
    query = "--query-gpu=index,name,utilization.gpu,memory.used,memory.total,temperature.gpu"
    gpus = []
    for line in output_of("nvidia-smi", query, "--format=csv,noheader,nounits").splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        gpu: dict = {n: int(c) if c.isdigit() else None for n, c in zip(names, cells)}  # noqa: B905  not in 3.7
        gpus.append(
            dict(gpu, name=cells[1]) if len(cells) == len(names) else {"unread": line[:200]}
        )
    total = re.search(r"MemTotal:\s+(\d+) kB", text_of("/proc/meminfo"))
    limits = [int(total.group(1)) * 1024] if total else []
    limits += [
        int(v)
        for v in map(text_of, cgroup_files("memory.max", "memory.limit_in_bytes"))
        if v.strip().isdigit()
    ]
    used = None
    for path in cgroup_files("memory.current", "memory.usage_in_bytes")[:1]:
        detail = text_of(os.path.join(os.path.dirname(path), "memory.stat"))
        cache = re.search(
            r"^total_inactive_file (\d+)$|^inactive_file (\d+)$", detail, re.MULTILINE
        )
        used = int(text_of(path) or 0) - int((cache.group(1) or cache.group(2)) if cache else 0)
    place = unescape_path(job.spec()["cwd"]) if seen.started else os.fsencode(job.home)
    return dict(
        room_at(place),
        gpus=gpus,
        cpu_load1=round(os.getloadavg()[0], 2),
        mem_used_bytes=used,
        mem_limit_bytes=min(limits) if limits else None,
        procs=len(job.members()) if seen.state in LIVE else 0,
    )


def _brief(job: Job, seen: Observed) -> dict:
    try:
        log = os.stat(job.path("log"))
        size, mtime = log.st_size, log.st_mtime
    except FileNotFoundError:
        size, mtime = 0, None
    end = seen.end or {}
    return {
        "job": job.name,
        "state": seen.state,
        "exit_code": end.get("exit_code"),
        "signal": end.get("signal"),
        "started_at": seen.started["started_at"] if seen.started else None,
        "ended_at": None if seen.state in LIVE else end.get("ended_at"),
        "supervised": seen.held,
        "log_bytes": size,
        "log_mtime": mtime,
    }


def full_status(job: Job, seen: Observed) -> dict:
    return dict(_brief(job, seen), reason=end_reason(job, seen), now=time.time(), boot_id=boot_id())


def status(home: str, request: dict) -> dict:
    """Return the state of one job, or of every job in brief. This is called often, so it reads little."""
    if "job" not in request:
        return {
            "jobs": [_brief(job, observe(job)) for job in all_jobs(home)],
            "notice": heard_notice(home),
            "now": time.time(),
            "boot_id": boot_id(),
        }
    job = Job(home, request["job"])
    seen = observe(job)
    reply = full_status(job, seen)
    if "offset" in request:
        reply["log"] = _log_part(job, request)
    if request.get("sample"):
        reply["sample"] = _sample(job, seen)
    return reply


def tail(home: str, request: dict) -> dict:
    """Return a part of the job's log. A negative offset counts from its end."""
    job = Job(home, request["job"])
    if not os.path.isdir(job.directory):
        raise Refusal("NO_SUCH_JOB", "no job of that name was started here")
    return dict(_log_part(job, request), job=job.name)
