"""What a request that was not carried out is answered with."""

from __future__ import annotations


class Refusal(Exception):
    """What was asked was not done; `code` says why to a program and the message to a person."""

    def __init__(self, code: str, message: str, **more: object) -> None:
        super().__init__(message)
        self.reply = dict(more, ok=False, code=code, message=message)
