"""The answer to a request that was not carried out."""

from __future__ import annotations


class Refusal(Exception):
    """What was asked was not done. `code` tells a program why, and the message tells a person."""

    def __init__(self, code: str, message: str, **more: object) -> None:
        super().__init__(message)
        self.reply = dict(more, ok=False, code=code, message=message)
