"""Whoever may ask for a teardown, and how each of them is told that it was refused."""

import asyncio
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from e2e.leased import Leased, command
from mcp import Client
from mcp.types import ElicitRequestParams, ElicitResult

from gpu_tenant.errors import TenantError
from gpu_tenant.server import make_server
from gpu_tenant.service import Tenancy

EXIT_REFUSED = 3


@dataclass(frozen=True)
class Told:
    """A refusal, as whoever asked was told it."""

    code: str
    message: str
    remedy: str


Entry = Callable[[Leased], Told]


def told_by(error: TenantError) -> Told:
    return Told(error.code, error.message, error.remedy)


def the_verb(lease: Leased) -> Told:
    with pytest.raises(TenantError) as refused:
        lease.ask(lambda tenancy: tenancy.verify_and_teardown(lease.id))
    return told_by(refused.value)


def the_command(lease: Leased) -> Told:
    status, out, err = command("teardown", lease.id)
    assert (status, out) == (EXIT_REFUSED, "")
    error, hint = err.splitlines()
    code, _, message = error.removeprefix("error: ").partition(": ")
    return Told(code, message, hint.removeprefix("hint: "))


def over_the_wire(lease: Leased, **options: Any) -> Told:
    async def once() -> str:
        spoken = {"on_refusal": "ask_owner"} if options else {}
        async with Client(make_server(), **options) as client:
            answer = await client.call_tool("verify_and_teardown", {"lease": lease.id, **spoken})
        assert answer.is_error
        return "".join(getattr(part, "text", "") for part in answer.content)

    code, _, rest = asyncio.run(once()).partition(": ")
    message, _, remedy = rest.rpartition("; ")
    return Told(code, message, remedy)


def the_tool(lease: Leased) -> Told:
    return over_the_wire(lease)


def the_tool_wrongly_signed(lease: Leased) -> Told:
    async def answer(_: Any, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"lease_id": "yes"})

    return over_the_wire(lease, elicitation_callback=answer)


def the_tool_signed_too_late(era: str) -> Entry:
    """A person signs for what was shown, and by then there is more to lose.

    A host of the older era hears a refusal; one of the newer era puts the question again.
    """

    def ask(lease: Leased) -> Told:
        asked: list[str] = []

        async def answer(_: Any, params: ElicitRequestParams) -> ElicitResult:
            asked.append(params.message)
            (lease.work / "meanwhile.bin").write_bytes(b"new")
            if len(asked) == 1:
                return ElicitResult(action="accept", content={"lease_id": lease.id})
            assert "meanwhile.bin" in params.message
            return ElicitResult(action="decline")

        return over_the_wire(lease, mode=era, elicitation_callback=answer)

    return ask


def a_waiver_typed(typed: str) -> Entry:
    def sign(lease: Leased) -> Told:
        async def waive(tenancy: Tenancy) -> object:
            report = await tenancy.assess_loss(lease.id)
            return await tenancy.waive(
                lease.id, shown_digest=report.digest, typed=typed, signed_by="somebody"
            )

        with pytest.raises(TenantError) as refused:
            lease.ask(waive)
        return told_by(refused.value)

    return sign


def a_waiver_of_another_loss(lease: Leased) -> Told:
    async def waive(tenancy: Tenancy) -> object:
        return await tenancy.waive(
            lease.id, shown_digest="0" * 16, typed=lease.id, signed_by="somebody"
        )

    with pytest.raises(TenantError) as refused:
        lease.ask(waive)
    return told_by(refused.value)


def the_verb_after_a_look(lease: Leased) -> Told:
    """Listing leases settles them, and settling never destroys."""
    for _ in range(3):
        lease.ask(lambda tenancy: tenancy.list_leases("all"))
    return the_verb(lease)


def the_verb_after_a_forged_permit(lease: Leased) -> Told:
    """Somebody writes a permit into the file; it is proved anew, and never believed."""
    with sqlite3.connect(lease.state / "ledger.sqlite3") as db:
        db.execute(
            "INSERT INTO permits(lease_id, box_id, ground, detail, at)"
            " VALUES (?1, ?1, 'verified', '{}', '2026-11-20T12:00:00+00:00')",
            (lease.id,),
        )
    db.close()
    return the_verb_after_a_look(lease)
