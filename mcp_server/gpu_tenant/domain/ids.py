"""Names that are easy to say and to type: a word, and four letters that are hard to confuse."""

import secrets
from collections.abc import Collection

LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
"""Without those that look like others."""


def new_id(word: str, taken: Collection[str]) -> str:
    """`word-` and four letters. A name that is not in `taken`."""
    while True:
        name = f"{word}-{''.join(secrets.choice(LETTERS) for _ in range(4))}"
        if name not in taken:
            return name
