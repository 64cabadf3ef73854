"""What the probe saw on a box: read (readings), and judged (gpus, judgement) into findings."""

from gpu_tenant.box.audit.checks import Audit, audit, judge, no_python
from gpu_tenant.box.audit.findings import Finding, Needs

__all__ = ["Audit", "Finding", "Needs", "audit", "judge", "no_python"]
