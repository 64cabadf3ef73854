"""Looks at a box before it is trusted: the probe observes on the box, and the findings are judged on this computer."""

import json

from gpu_tenant.box.audit import Audit, Needs, no_python
from gpu_tenant.box.audit import audit as judged
from gpu_tenant.box.audit.findings import Rented
from gpu_tenant.box.session import Session
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BoxTrouble
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.ports import Clock
from gpu_tenant.domain.waiting import wait_for
from gpu_tenant.files.skill_files import script

_PROBE_WITHIN_S = 60

REACHED_FOR = ("package-index", "huggingface.co")
"""The package index and the model hub: the sites that jobs most often need."""


class Audited(Audit):
    """The result of an audit of one lease's box."""

    lease: str
    next: str


async def audit(session: Session, needs: Needs, *, clock: Clock) -> Audited:
    """Audit the box for a job with those needs. Nothing on the box is changed.

    Raises:
        BoxUnreachable: the box did not answer.
        BoxTrouble: the probe ran, but gave no observation.
    """
    lease = session.lease
    asked_at = clock.now()
    argv = ["python3", "-E", "-"]
    argv += ["--reach", *REACHED_FOR]
    caps = {place.path: place.inode_cap for place in session.profile.places if place.path != "/"}
    argv += ["--place", *caps] if caps else []
    argv += ["--count", *(path for path, cap in caps.items() if cap)]
    wait_for(
        f"the box of {lease.id} looks at itself",
        ends=f"{_PROBE_WITHIN_S:g} s",
        usd_h=lease.price_usd_h,
    )
    finished = await session.transport.run(
        argv, stdin=script("probe.py").read_bytes(), timeout_s=_PROBE_WITHIN_S
    )
    answered_at = clock.now()
    if finished.exit_status == 127:
        blind = {"gpus": (), "driver": None, "cuda": None, "cpus": None, "ram_gib": None}
        return _answer(
            lease,
            Audit.model_validate(
                {
                    **blind,
                    "disk_free_gib": None,
                    "findings": (no_python(),),
                    "blockers": 1,
                    "warnings": 0,
                }
            ),
        )
    try:
        # The observation is the last line. Output of a login script comes before it.
        observed = json.loads(finished.stdout.splitlines()[-1])
    except (IndexError, ValueError, RecursionError):
        observed = None
    if not isinstance(observed, dict):
        raise BoxTrouble(
            f"the probe ended with status {finished.exit_status} and no observation",
            remedy=f"look at the box yourself, then {Command('audit', lease.id)} again",
        )
    rented = _rented(lease)
    return _answer(
        lease,
        judged(
            observed,
            needs=needs,
            caps=caps,
            rented=rented,
            asked_at=asked_at,
            answered_at=answered_at,
        ),
    )


def _rented(lease: Lease) -> Rented | None:
    """What was paid for. None if the box was not rented by a quote, or has no GPU."""
    if lease.quote is None or lease.quote.offer.gpu_count < 1:
        return None
    offer = lease.quote.offer
    return Rented(gpu=offer.gpu, count=offer.gpu_count, vram_gib=offer.vram_gib)


def _next_step(lease: Lease, audit: Audit) -> str:
    if not audit.blockers:
        return str(Command("push", "DIR", lease.id))
    if lease.quote is None:
        return "remove the blockers before anything is launched on this box, or take another box"
    back = Command("teardown", lease.id)
    if lease.touched_at is None:
        return f"remove the blockers, or give the box back unused: {back}, then {Command('offers')}"
    return f"remove the blockers, or keep what is on the box and give it back: {Command('collect', lease.id)}, then {back}"


def _answer(lease: Lease, audit: Audit) -> Audited:
    step = _next_step(lease, audit)
    return Audited.model_validate({**dict(audit), "lease": lease.id, "next": step})
