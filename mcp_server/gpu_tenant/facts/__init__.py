"""What the probe saw on a box: read (readings), and judged (gpus, judgement) into findings."""

from gpu_tenant.facts.findings import Finding, Needs
from gpu_tenant.facts.judgement import Audit, audit, judge, no_python

__all__ = ["Audit", "Finding", "Needs", "audit", "judge", "no_python"]
