"""Carries out one operation on one lease or on many, and prints the results. The exit status is the worst of all."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

import click

from gpu_tenant.domain.errors import BadRequest, BoxUnreachable, TenantError
from gpu_tenant.faces.cli import output
from gpu_tenant.faces.cli.command import Chosen

if TYPE_CHECKING:
    from gpu_tenant.domain.record import Record
    from gpu_tenant.service import Tenancy

R = TypeVar("R", bound="Record")


async def on_each(
    chosen: Chosen,
    tenancy: Tenancy,
    do: Callable[[str], Awaitable[R]],
    *,
    as_json: bool,
    words: Callable[[R], None],
    brief: Callable[[R], str],
    wrong: Callable[[R], str | None] = lambda answer: None,
    status: Callable[[R], int] = lambda answer: 0,
    begun: Literal["is cut", "goes on"] = "is cut",
    moves: str | None = None,
    waits: str | None = None,
) -> None:
    """Call `do` on every chosen lease. The process exits with the worst status.

    If only one lease was chosen, its answer is printed (by `words`, or as JSON), or its error is raised. If there are
    several, each has one line (by `brief`), in order, and below these lines are the problems (by `wrong`). As JSON they
    are an array, in which a lease that failed has its error. After Ctrl-C, no further lease is begun, and the results
    so far are shown. For a single lease, `moves` is the title of a progress bar for bytes, and `waits` is the title of
    a display of what is waited for.
    """
    do = _naming_leases(do, verb=waits or "")
    leases = chosen.leases(tenancy)
    if not chosen.are_several(leases):
        if moves is None and waits is None:
            answer = await do(leases[0])
        elif moves is None:
            from gpu_tenant.faces.cli import bars

            with bars.waits(str(waits)):
                answer = await do(leases[0])
        else:
            from gpu_tenant.faces.cli import bars

            with bars.bytes_bar(moves, tenancy.ledger.lease(leases[0]).price_usd_h):
                answer = await do(leases[0])
        output.answer(answer, as_json, words)
        if status(answer):
            sys.exit(status(answer))
        return
    came: dict[str, R | Exception] = {}
    try:
        from gpu_tenant.concurrency import each

        await each(leases, do, begun=begun, heard=lambda lease, what: came.update({lease: what}))
    finally:
        _tell(leases, came, as_json, brief, wrong)
    surprise = next((x for x in came.values() if _is_surprise(x)), None)
    if isinstance(surprise, Exception):
        raise surprise
    sys.exit(max((_status(what, status) for what in came.values()), default=0))


def must_be_one(chosen: Chosen, tenancy: Tenancy, why: str) -> str:
    """Return the one lease that was chosen.

    Raises:
        BadRequest: several were chosen; `why` says why that is not possible.
    """
    leases = chosen.leases(tenancy)
    if len(leases) > 1:
        raise BadRequest(f"{why}, and {len(leases)} leases are named", remedy="name one")
    return leases[0]


def _naming_leases(
    do: Callable[[str], Awaitable[R]], *, verb: str
) -> Callable[[str], Awaitable[R]]:
    """Return the same operation. If a box does not answer, its error names the lease."""

    async def named(lease: str) -> R:
        try:
            return await do(lease)
        except BoxUnreachable as silent:
            silent.name_lease(lease, verb=verb)
            raise

    return named


def _tell(
    leases: Sequence[str],
    came: dict[str, R | Exception],
    as_json: bool,
    brief: Callable[[R], str],
    wrong: Callable[[R], str | None],
) -> None:
    told = [(lease, came[lease]) for lease in leases if lease in came]
    if as_json:
        click.echo(json.dumps([_plain(*each) for each in told], indent=2, ensure_ascii=False))
    else:
        width = max(map(len, leases), default=0)
        for lease, what in told:
            line = _error(what) if isinstance(what, Exception) else brief(what)
            click.echo(f"{lease:<{width}}  {line}")
        for lease, what in told:
            if isinstance(what, TenantError):
                click.echo(
                    f"error: {lease}: {what.code}: {what.message}\nhint: {what.remedy}", err=True
                )
            elif not isinstance(what, Exception) and (detail := wrong(what)):
                click.echo(f"{lease}: {detail}", err=True)
    if not leases:
        click.echo("no lease is live", err=True)
    if len(told) < len(leases):
        left = ", ".join(lease for lease in leases if lease not in came)
        click.echo(f"interrupted before it ended, or not begun: {left}", err=True)


def _plain(lease: str, what: Record | Exception) -> object:
    if not isinstance(what, Exception):
        return what.model_dump(mode="json")
    if isinstance(what, TenantError):
        error: dict[str, object] = {
            "code": what.code,
            "message": what.message,
            "remedy": what.remedy,
            "exit_status": what.exit_status,
        }
    else:
        error = {"code": "INTERNAL", "message": repr(what), "exit_status": 1}
    return {"lease": lease, "error": error}


def _error(what: Exception) -> str:
    return what.code if isinstance(what, TenantError) else f"INTERNAL {type(what).__name__}"


def _is_surprise(what: Record | Exception) -> bool:
    return isinstance(what, Exception) and not isinstance(what, TenantError)


def _status(what: R | Exception, status: Callable[[R], int]) -> int:
    if isinstance(what, Exception):
        return what.exit_status if isinstance(what, TenantError) else 1
    return status(what)
