"""The audit of a box: `probe` reads what our script saw there, and `checks` and `gpu_checks` judge it as `findings`."""

from gpu_tenant.box.audit.checks import Audit, audit, judge, no_python
from gpu_tenant.box.audit.findings import Finding, Needs

__all__ = ["Audit", "Finding", "Needs", "audit", "judge", "no_python"]
