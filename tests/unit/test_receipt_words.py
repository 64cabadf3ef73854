"""A receipt names what it does not prove."""

import pytest
from arranged import NOON, lease, profile, seal

from gpu_tenant.domain.evidence import Evidence, Verdict
from gpu_tenant.domain.seal import Manifest
from gpu_tenant.leases.teardown import not_looked_at, unproved_words


def opaque(name: str) -> Evidence:
    verdict = Verdict(format="unknown", outcome="opaque", not_proved=("its format",))
    return Evidence(name=name, size_bytes=1, sha256="0", verdict=verdict)


def test_files_of_no_format_are_named() -> None:
    (few,) = unproved_words([opaque(f"out/{n}") for n in range(3)])
    (many,) = unproved_words([opaque(f"out/{n}") for n in range(10)])

    assert few.startswith("3 files of no format we read (out/0, out/1, out/2): the bytes")
    assert "out/2 and 7 more)" in many


def test_one_sentence_is_said_of_all_files_that_are_alike() -> None:
    verdict = Verdict(format="pickle", outcome="loads", not_proved=("that it can be unpickled",))
    alike = [
        Evidence(name=f"out/{n}.pkl", size_bytes=1, sha256="0", verdict=verdict) for n in range(5)
    ]

    assert unproved_words(alike) == (
        "each of 5 pickle files (out/0.pkl, out/1.pkl, out/2.pkl and 2 more): that it can be unpickled",
    )
    assert unproved_words(alike[:1]) == ("out/0.pkl: that it can be unpickled",)


@pytest.mark.parametrize(
    ("elsewhere", "words"),
    [
        (None, "nobody looked there"),
        (
            {"count": 0, "bytes": 0, "largest": [], "whole": True},
            "all that was found on its disks is kept",
        ),
        (
            {"count": 2, "bytes": 9, "largest": [{"at": "/data/m.pt", "size": 8}], "whole": False},
            "at least 2 files, 9 bytes, which nobody kept: /data/m.pt (8 bytes)",
        ),
    ],
)
def test_what_was_written_where_nobody_accounts_for_it_is_named(
    elsewhere: object, words: str
) -> None:
    used = lease().model_copy(update={"touched_at": NOON})
    sealed = Manifest.model_validate({**seal().model_dump(by_alias=True), "elsewhere": elsewhere})

    (told,) = not_looked_at(used, profile("local"), sealed)

    assert words in told
