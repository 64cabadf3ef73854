"""Whoever may ask for a teardown, and how each of them is told that it was refused."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from e2e.leased import Leased, command
from mcp import Client
from mcp.types import ElicitRequestParams, ElicitResult
from signed import signs

from gpu_tenant.domain.errors import TenantError
from gpu_tenant.faces.mcp.server import make_server
from gpu_tenant.leases.end import asked_to_waive, assess_loss
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


def the_tool_that_signs_for_itself(lease: Leased) -> Told:
    """Whoever is the client answers the host's question with all that a person would type."""

    async def answer(_: Any, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"lease_id": lease.id})

    return over_the_wire(lease, elicitation_callback=answer)


def the_tool_signed_too_late(lease: Leased) -> Told:
    """A person signs for what was shown, and by then there is more to lose."""
    wanted = over_the_wire(lease, elicitation_callback=_nothing)
    assert wanted.code == "SIGNATURE_WANTED"
    lease.ask(_signed(wanted.remedy.split("`")[1].split()[-1]))
    (lease.work / "meanwhile.bin").write_bytes(b"new")
    late = over_the_wire(lease, elicitation_callback=_nothing)
    assert "this is not what was signed for" in late.message
    assert "meanwhile.bin" in late.message
    return late


def a_waiver_of_another_loss(lease: Leased) -> Told:
    """A person has signed for a list that names something else."""

    async def waive(tenancy: Tenancy) -> object:
        report = await assess_loss(tenancy.context, lease.id)
        asked = asked_to_waive(tenancy.context, report.model_copy(update={"digest": "0" * 16}))
        signs(tenancy, asked.code)
        return await tenancy.waive(lease.id)

    with pytest.raises(TenantError) as refused:
        lease.ask(waive)
    return told_by(refused.value)


async def _nothing(_: Any, params: ElicitRequestParams) -> ElicitResult:
    return ElicitResult(action="cancel")


def _signed(code: str) -> Callable[[Tenancy], Awaitable[object]]:
    async def sign(tenancy: Tenancy) -> object:
        return signs(tenancy, code)

    return sign


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
