"""A lease as one file to keep: what ran, what it cost, what was proved, and how it ended."""

from gpu_tenant.faces.report.gather import report_of
from gpu_tenant.faces.report.records import Report
from gpu_tenant.faces.report.render import as_html, as_markdown, mark_of

__all__ = ["Report", "as_html", "as_markdown", "mark_of", "report_of"]
