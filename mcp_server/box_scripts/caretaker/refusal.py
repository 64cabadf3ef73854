"""The error for a request that was not carried out."""

from __future__ import annotations


class Refusal(Exception):
    """The request was not carried out. The code says why to a program, and the message to a person."""

    def __init__(self, code: str, message: str, **more: object) -> None:
        super().__init__(message)
        self.reply = dict(more, ok=False, code=code, message=message)
