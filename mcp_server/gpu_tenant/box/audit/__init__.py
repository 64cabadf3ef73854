"""The audit of a box: what the probe saw is read (`probe`) and judged (`checks`, `gpu_checks`) into `findings`."""

from gpu_tenant.box.audit.checks import Audit, audit, judge, no_python
from gpu_tenant.box.audit.findings import Finding, Needs

__all__ = ["Audit", "Finding", "Needs", "audit", "judge", "no_python"]
