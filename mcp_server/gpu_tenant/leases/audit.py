"""Audits the box of a lease, and records the findings."""

from gpu_tenant.box.audit import Needs
from gpu_tenant.box.audit.run import Audited, audit
from gpu_tenant.domain import timeline
from gpu_tenant.domain.clock import WallClock
from gpu_tenant.domain.model import Lease
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.host_memory import remember_audit


async def audit_box(
    context: Context,
    lease: Lease,
    *,
    gpus: int | None = None,
    vram_gib: float | None = None,
    disk_gib: float | None = None,
    burn_s: int = 0,
) -> Audited:
    """Audit the box. Record the findings, and those that are the fault of its host. Return the audit.

    Raises:
        BoxTrouble: the box could not be looked at.
    """
    ordered = lease.terms.order
    needs = Needs(
        gpu_count=gpus,
        vram_gib=vram_gib,
        disk_gib=disk_gib,
        python=ordered.python,
        cuda=ordered.cuda,
    )
    audited = await audit(
        context.session(lease),
        needs,
        # The box's clock is compared with real time, even in a rehearsal, where our own clock jumps.
        clock=WallClock(),
        burn_s=burn_s,
        lease_is="rehearsed" if context.ledger.is_rehearsed else "real",
    )
    remember_audit(lease, audited, ledger=context.ledger)
    seen = timeline.Audited(
        gpus=tuple(gpu.name for gpu in audited.gpus),
        driver=audited.driver,
        cuda=audited.cuda,
        blockers=audited.blockers,
        warnings=audited.warnings,
    )
    context.ledger.note(lease.id, seen, at=context.clock.now())
    return audited
