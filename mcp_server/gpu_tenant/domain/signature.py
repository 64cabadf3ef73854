"""A person's signature: what it is asked for, under which code, and what was signed.

A request is a list of words, and a name for exactly that list. A signature is for that name and is used once.
A person gives it at a terminal, on the dashboard's page, or with a passkey. No tool can give one.
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
"""How long a request waits for its signature, and a signature for its use."""

_LETTERS = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""Without those that look like one another."""
_LENGTH = 6


class Asked(Record):
    """Something that a person is asked to sign."""

    code: str
    kind: str
    subject: str = Field(description="the lease, or what else it is about; typed to sign")
    digest: str = Field(description="names exactly what is signed for")
    would: str = Field(description="what would happen, in one line")
    words: tuple[str, ...] = Field(description="all of it, as it was shown last")
    asked_at: AwareDatetime
    as_of: AwareDatetime = Field(description="when the words were last looked at anew")
    expires_at: AwareDatetime

    @property
    def shown(self) -> str:
        """A name for the words exactly as they stand."""
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
    by: str = Field(description="who has signed for it to be set up, and how")
    at: AwareDatetime
    ends_at: AwareDatetime | None = Field(description="when it signs no more, where that was asked")


PASSKEY = "passkey"
"""The subject of every signature about passkeys."""


def digest_of(words: Sequence[str]) -> str:
    """A name for exactly these words, in any order."""
    return sha256("\0".join(sorted(words)).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def new_code() -> str:
    """Six letters and digits, all of them hard to confuse."""
    return "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))


def typed_code(said: str) -> str:
    """The code that a person meant, however they typed it."""
    return said.strip().upper().replace("-", "").replace(" ", "")


def shown(words: str) -> str:
    """Somebody else's words as one line for a terminal.

    Nothing in it can control the terminal or escape the eye.
    """
    return " ".join(plain(words, max_line=4000).split())


def way_to_sign(code: str) -> str:
    """How a person signs, to be told as the next step."""
    return (
        f"a person runs {Command('sign', code)} at a terminal, or signs on the page of "
        f"{Command('dashboard')}, and then the same call goes on"
    )
