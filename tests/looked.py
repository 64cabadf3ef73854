"""What a look at a job has seen, without a box."""

from arranged import LEASE

from gpu_tenant.jobs.monitor import Gpu, Watched


def gpu(index: int = 0, *, util: float | None = 50, mem: float | None = 1000) -> Gpu:
    return Gpu(
        index=index,
        name="Tiny GPU",
        util_pct=util,
        mem_used_mib=mem,
        mem_total_mib=24_000,
        temp_c=60,
    )


def seen(*gpus: Gpu, **more: object) -> Watched:
    plain: dict[str, object] = {
        "lease": LEASE,
        "job": "train",
        "state": "running",
        "exit_code": None,
        "why": None,
        "progress": None,
        "log": "",
        "cursor": 0,
        "log_skipped_bytes": 0,
        "log_size_bytes": 0,
        "gpus": gpus,
        "memory_used_bytes": 5,
        "memory_limit_bytes": 10,
        "disk_free_bytes": 99,
        "running_s": 1.0,
        "cost_usd": None,
        "deadline_in_s": 1,
        "alarm": None,
        "next": "",
    }
    return Watched.model_validate({**plain, **more})
