"""A receipt names what it does not prove."""

from gpu_tenant.domain.model import Evidence, Verdict
from gpu_tenant.leases.teardown import unproved_words


def opaque(name: str) -> Evidence:
    verdict = Verdict(format="unknown", outcome="opaque", not_proved=("its format",))
    return Evidence(name=name, size_bytes=1, sha256="0", verdict=verdict)


def test_files_of_no_format_are_named() -> None:
    (few,) = unproved_words([opaque(f"out/{n}") for n in range(3)])
    (many,) = unproved_words([opaque(f"out/{n}") for n in range(10)])

    assert few.startswith("3 files of no format we read (out/0, out/1, out/2): the bytes")
    assert "out/7 and 2 more)" in many
