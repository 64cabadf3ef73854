"""A person's signature: what it is requested for, under which code, and what was signed.

A request is a list of words, and a digest of exactly that list. A signature is for that digest and is used once. A
person signs at a terminal, on the dashboard's page, or with a passkey. No tool can sign.
"""

import secrets
from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Literal

from pydantic import AwareDatetime, Field

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.untrusted_text import plain

Form = Literal["terminal", "page", "passkey"]
"""How a person signed."""

FORMS: dict[Form, str] = {
    "terminal": "typed at a terminal",
    "page": "on the dashboard's page, with the code of its terminal",
    "passkey": "with a passkey",
}

STANDS = timedelta(hours=24)
"""How long a request waits for its signature, and how long a signature may be used."""

_LETTERS = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""Letters and digits, without those that look like one another."""
_LENGTH = 6


class SignatureRequest(Record):
    """Something that a person is asked to sign."""

    code: str
    kind: str
    subject: str = Field(description="the lease, or what else it is about; typed to sign")
    digest: str = Field(description="names exactly what is signed for")
    would: str = Field(description="what would happen, in one line")
    words: tuple[str, ...] = Field(description="all of it, as it was last shown")
    asked_at: AwareDatetime
    as_of: AwareDatetime = Field(description="when the words were last updated")
    expires_at: AwareDatetime

    @property
    def shown(self) -> str:
        """A digest of the words exactly as they are now."""
        return digest_of((self.would, *self.words))


class Signature(Record):
    """What a person has signed."""

    code: str
    kind: str
    subject: str
    digest: str
    by: str
    form: Form
    at: AwareDatetime

    @property
    def signed_by(self) -> str:
        """Who signed, and in which form."""
        return f"{self.by}, {FORMS[self.form]}"


class Passkey(Record):
    """A key that only its owner's device holds. Nobody else can have made its signatures."""

    id: str
    public_key: str
    by: str = Field(description="who has signed that it may be set up, and how")
    at: AwareDatetime
    ends_at: AwareDatetime | None = Field(
        description="from when on it is not accepted, if its end was requested"
    )


PASSKEY = "passkey"
"""The subject of every signature about passkeys."""


def digest_of(words: Sequence[str]) -> str:
    """Return a digest of exactly these words. Their order does not matter."""
    return sha256("\0".join(sorted(words)).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def new_code() -> str:
    """Return six letters and digits, all of them hard to confuse."""
    return "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))


def typed_code(said: str) -> str:
    """Return a typed code in its usual form: in capitals, without blanks and hyphens."""
    return said.strip().upper().replace("-", "").replace(" ", "")


def as_one_line(words: str) -> str:
    """Return somebody else's words as one line for a terminal.

    Nothing in the line can control the terminal or stay unseen.
    """
    return " ".join(plain(words, max_line=4000).split())


def way_to_sign(code: str) -> str:
    """Return how a person signs, as a next step."""
    return (
        f"a person runs {Command('sign', code)} at a terminal, or signs on the page of "
        f"{Command('dashboard')}, and then the same call continues"
    )
