"""Evidence: what was proved by reading the kept files again."""

from typing import Literal

from pydantic import Field

from gpu_tenant.domain.record import Numerous


class Verdict(Numerous):
    """What was proved by reading a file in the format that it claims, and what was not.

    `loads`: the structure of `format` was read to its end and is sound. `broken`: the structure is not sound.
    `opaque`: the file claims no format that we can read, so only its bytes can be proved, by hash.
    """

    format: str
    outcome: Literal["loads", "broken", "opaque"]
    proved: tuple[str, ...] = ()
    not_proved: tuple[str, ...] = ()
    warnings: tuple[str, ...] = Field(
        default=(), description="facts that do not stop a teardown, such as a NaN"
    )
    problem: str | None = Field(default=None, description="why it is broken, for a person")


class Evidence(Numerous):
    """What re-reading one kept file has proved."""

    name: str
    size_bytes: int
    sha256: str
    verdict: Verdict
    where: str = Field(default="here", description="here, or the durable store it was re-read from")
