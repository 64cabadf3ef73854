"""The parts of `scripts/caretaker.py`, in the order in which they are joined: each stands only on earlier ones."""

PARTS = (
    # what everything else stands on
    "refusal",
    "progress",
    "paths",
    "patterns",
    "pattern_bounds",
    "records",
    "processes",
    # a job, and what became of it
    "jobs",
    "cgroups",
    "disk_room",
    "failure_cause",
    "job_state",
    "listening",
    "notice",
    "status",
    # its beginning and its end
    "since",
    "detached",
    "stop",
    "launch",
    # the seal: every byte is accounted for
    "hashing",
    "open_files",
    "survey",
    "mounts",
    "caches",
    "pushed_files",
    "own_files",
    "unclaimed",
    "at_work",
    "elsewhere",
    "logins",
    "links",
    "seal",
    # while jobs run
    "pace",
    "checkpoints",
    "complete",
    "prune",
    # files from the tenant
    "push",
    # the call
    "requests",
    "verbs",
    "by_hand",
    "guard_clock",
    "next_look",
    "presence",
    "guarding",
    "guard",
    "for_runner",
    "__main__",
)
