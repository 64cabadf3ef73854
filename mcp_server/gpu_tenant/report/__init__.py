"""A lease as one file to keep: what ran, what it cost, what was proved, and how it ended."""

from gpu_tenant.report.gathered import report_of
from gpu_tenant.report.pages import as_html, as_markdown, mark_of
from gpu_tenant.report.told import Report

__all__ = ["Report", "as_html", "as_markdown", "mark_of", "report_of"]
