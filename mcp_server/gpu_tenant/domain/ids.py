"""Names that are easy to say and to type: a word, and four characters that are hard to confuse."""

import secrets
from collections.abc import Collection

LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
"""Letters and digits, without those that look like others."""


def new_id(word: str, taken: Collection[str]) -> str:
    """Return `word-` and four characters, as a name that is not in `taken`."""
    while True:
        name = f"{word}-{''.join(secrets.choice(LETTERS) for _ in range(4))}"
        if name not in taken:
            return name
