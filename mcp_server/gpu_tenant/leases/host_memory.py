"""Records failures of the host of a lease's box, if the host is known."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpu_tenant.domain import timeline
from gpu_tenant.domain.host_reports import Misdeed
from gpu_tenant.domain.interruption import Taken
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.order import AtProvider
from gpu_tenant.ledger import Ledger

if TYPE_CHECKING:
    from gpu_tenant.box.audit import Audit

_OWN_FAULT = re.compile(
    r"gpu \d+ (?:ecc|card|size|xid \d+)|rented gpus|burn (?:gpu|link) .*|clock|writing in .*"
)
"""The subjects of audit findings that are the host's fault: no order and no image can cause them."""
_IMAGES_FAULT = re.compile(
    r"manifest unknown|failed to resolve reference|pull access denied|repository does not exist|unauthorized:"
    r"|toomanyrequests",
    re.IGNORECASE,
)
"""What a provider says if the image cannot be pulled: no other host could pull it either."""
_SLOW = re.compile(r"gpu \d+ (?:throttle|temperature)")


def remember(lease: Lease, what: Misdeed, words: str, *, ledger: Ledger) -> None:
    """Record a failure of the host of the lease's box. If the offer named no machine, record nothing."""
    offer = lease.quote.offer if lease.quote else None
    if offer is not None and offer.host is not None:
        ledger.report_host(
            lease.id, what, words, provider=offer.provider, host=offer.host, at=ledger.now()
        )


def remember_not_ready(lease: Lease, words: str, *, ledger: Ledger) -> None:
    """Record that the box never let us in.

    In three cases this may not be the host's fault, and nothing is recorded: if the box was started again after a stop,
    if it was started from the tenant's own image, and if its image cannot be pulled.
    """
    if _IMAGES_FAULT.search(words):
        return
    if lease.terms.order.image_at(lease.provider) != AtProvider():
        return
    if not any(isinstance(event, timeline.Resumed) for _, event in ledger.events(lease.id)):
        remember(lease, "never ready", words, ledger=ledger)


def remember_fate(lease: Lease, met: Taken, *, ledger: Ledger) -> None:
    """Record how the box was taken, if this is the host's fault.

    A lost bid, an empty balance and an agreed end are not its fault.
    """
    match met.fate:
        case "host_lost":
            remember(lease, "host lost", met.words, ledger=ledger)
        case "stopped_by_provider":
            remember(lease, "stopped", met.words, ledger=ledger)
        case _:
            pass


def hosts_faults(audit: Audit) -> list[str]:
    """Return, in words, the blockers of an audit that are the host's fault. Another host may not have them."""
    return [
        f"{finding.subject}: {finding.seen}"
        for finding in audit.findings
        if finding.level == "blocker" and _OWN_FAULT.fullmatch(finding.subject)
    ]


def remember_audit(lease: Lease, audit: Audit, *, ledger: Ledger) -> None:
    """Record those findings of an audit that are the host's fault."""
    for words in hosts_faults(audit):
        remember(lease, "failed audit", words, ledger=ledger)
    for finding in audit.findings:
        words = f"{finding.subject}: {finding.seen}"
        if finding.level == "warning" and _SLOW.fullmatch(finding.subject):
            remember(lease, "throttled", words, ledger=ledger)
