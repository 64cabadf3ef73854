"""A signature typed on the page, with a code that only the dashboard's terminal shows.

Every program of this user can read the dashboard's token, so the token alone signs nothing. The person who signs
must see the terminal at which the dashboard was started. If a passkey is set up, this code is not enough: see
`passkeys`.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from hmac import compare_digest

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import Refused
from gpu_tenant.domain.signature import SignatureRequest

_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
_LENGTH = 6


@dataclass(slots=True)
class Signing:
    """The codes that were shown. `tell` is None if no person started the dashboard at a terminal."""

    tell: Callable[[str], None] | None
    _out: dict[str, str] = field(default_factory=dict)

    def ask(self, asked: SignatureRequest) -> None:
        """Show on the terminal a code that signs exactly this request. Without a terminal, do nothing."""
        if self.tell is None:
            return
        code = self._out.get(asked.shown) or "".join(
            secrets.choice(_LETTERS) for _ in range(_LENGTH)
        )
        self._out = {asked.shown: code}  # Only one code is valid at a time.
        self.tell(f"to sign on the page ({asked.would}), type there: {code}")

    def must_fit(self, asked: SignatureRequest, code: str) -> None:
        """Check that the code is the one that was shown for this request. It cannot be used again.

        Raises:
            Refused: it is another code, or no code was shown because there is no terminal.
        """
        if self.tell is None:
            raise Refused(
                "a person has to sign at a terminal, but this dashboard was not started at one",
                remedy=f"{Command('sign', asked.code)} at a terminal",
            )
        shown = self._out.pop(asked.shown, None)
        if shown is None or not compare_digest(shown.encode(), code.strip().lower().encode()):
            raise Refused(
                "that is not the code that the dashboard's terminal shows for this list; nothing was signed",
                remedy="look at the list once more, and type the code that is shown then",
            )
