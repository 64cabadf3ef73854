"""Reads from the ledger which environment was made last on a lease's box, and returns the variable that uses it."""

from pydantic import BaseModel, ConfigDict, JsonValue

from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import BadRequest, JobRunning, Refused
from gpu_tenant.domain.model import LeaseId
from gpu_tenant.ledger import Ledger


class Recorded(BaseModel):
    """`prepared.json`: the request and its result. This is enough to make the same environment on another box."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    key: str
    source: str
    asked: dict[str, JsonValue]
    replayed: str | None
    commit: str | None
    environment: str
    python: str
    python_version: str
    installer: str
    image: dict[str, str]
    held: tuple[str, ...]
    options: tuple[str, ...]
    freeze: tuple[str, ...]
    notes: tuple[str, ...]
    began_at: float
    ended_at: float


def newest_recorded(ledger: Ledger, lease_id: str) -> Recorded:
    """Return the record of the newest environment of that lease.

    Raises:
        BadRequest: no environment was made on the lease's box.
    """
    found = ledger.lease(lease_id)
    for _, event in reversed(ledger.events(found.id)):
        if isinstance(event, timeline.Prepared) and event.record:
            return Recorded.model_validate(event.record)
    raise BadRequest(
        f"no environment was ever made on {lease_id}",
        remedy=f"prepare from the tree's own requirements, without {Option('replay')}",
    )


def activation(ledger: Ledger, lease_id: LeaseId) -> dict[str, str]:
    """Return the variable that makes a job run in the lease's environment. Empty if no environment was requested.

    Raises:
        JobRunning: as far as the ledger knows, the environment is still being made.
        Refused: the last attempt to make the environment failed.
    """
    last = newest(ledger, lease_id)
    if last is None:
        return {}
    again = f"{Command('prepare', lease_id)}, with the same arguments"
    image = f"or launch with the image's own: {Option('python', 'image')}"
    match last:
        case timeline.Prepared(state="ready"):
            record = Recorded.model_validate(last.record)
            return {"VIRTUAL_ENV": record.environment}
        case timeline.Prepared(state="failed"):
            raise Refused("the environment could not be made", remedy=f"{again}; {image}")
        case _:
            raise JobRunning("the environment is still being made", remedy=f"{again}; {image}")


def newest(ledger: Ledger, lease_id: LeaseId) -> timeline.Preparing | timeline.Prepared | None:
    """Return the newest event about the lease's environment: its start, or its result. None if there is none."""
    for _, event in reversed(ledger.events(lease_id)):
        if isinstance(event, timeline.Preparing | timeline.Prepared):
            return event
    return None
