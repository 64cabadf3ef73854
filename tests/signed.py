"""What a person signs, for tests that are about what comes of it."""

from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from gpu_tenant.domain.errors import SignatureWanted
from gpu_tenant.domain.signature import Signature
from gpu_tenant.ledger import Ledger
from gpu_tenant.service import Tenancy

T = TypeVar("T")


def signs(tenancy: Tenancy, code: str, *, by: str = "the owner") -> Signature:
    """A person has signed, at a terminal, for what is asked under that code."""
    asked = tenancy.ledger.request_of(code)
    return tenancy.ledger.sign(asked, by=by, form="terminal", at=tenancy.clock.now())


async def with_signature(tenancy: Tenancy, act: Callable[[], Awaitable[T]]) -> T:
    """What `act` does once a person has signed for what it wants signed."""
    try:
        return await act()
    except SignatureWanted as wanted:
        signs(tenancy, wanted.asked)
    return await act()


def signs_as_told(refusal: str, state: Path) -> None:
    """A person has signed for what that refusal asks for, in the ledger of that state directory."""
    code = refusal.split("by the code ")[1].split(":")[0]
    with closing(Ledger(state / "ledger.sqlite3")) as ledger:
        asked = ledger.request_of(code)
        ledger.sign(asked, by="the owner", form="terminal", at=ledger.now())
