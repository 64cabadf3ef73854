"""A job that falls silent for many times its own period is told, and a slow one is not."""

import pytest

from gpu_tenant.domain.rhythm import silence_of

NOON = 1_800_000_000.0


@pytest.mark.parametrize(
    ("ran_s", "log_bytes", "silent_s", "every"),
    [
        (5, 400, 840, "1 s"),
        (3600, 288_000, 900, "1 s"),
        (3600, 288_000, 500, None),
        (36_000, 4800, 3600, None),
        (36_000, 4800, 6 * 3600, "10 min"),
        (0, 80, 700, "1 s"),
        (100, 0, 7200, None),
    ],
)
def test_silence_is_measured_by_the_own_rhythm_of_the_log(
    ran_s: float, log_bytes: int, silent_s: float, every: str | None
) -> None:
    seen = silence_of(
        started_at=NOON, log_mtime=NOON + ran_s, log_bytes=log_bytes, now=NOON + ran_s + silent_s
    )

    assert (seen is None) is (every is None)
    assert seen is None or seen.words.endswith(f"before that a line about every {every}")
    assert seen is None or seen.words.startswith("nothing new is in its log since 2027-01-15")
