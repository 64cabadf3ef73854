"""The parts of `scripts/caretaker.py`, in the order in which they are joined: each imports only from earlier ones."""

PARTS = (
    # what all other parts use
    "refusal",
    "progress",
    "paths",
    "patterns",
    "pattern_bounds",
    "records",
    "processes",
    # a job: its records, its state, and why it ended
    "jobs",
    "cgroups",
    "disk_room",
    "failure_cause",
    "job_state",
    "listening",
    "notice",
    "status",
    # how a job is started and stopped
    "mounts",
    "since",
    "detached",
    "stop",
    "stall",
    "launch",
    # the seal: every byte is accounted for
    "hashing",
    "open_files",
    "survey",
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
    # the requests, and the guard
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
