"""Makes a report of a lease as one file: what ran, what it cost, what was proved, and how it ended."""

from gpu_tenant.faces.report.expenses import Expenses, expenses_of
from gpu_tenant.faces.report.gather import report_of
from gpu_tenant.faces.report.records import Report
from gpu_tenant.faces.report.render import (
    as_html,
    as_markdown,
    expenses_html,
    expenses_markdown,
    mark_of,
)

__all__ = [
    "Expenses",
    "Report",
    "as_html",
    "as_markdown",
    "expenses_html",
    "expenses_markdown",
    "expenses_of",
    "mark_of",
    "report_of",
]
