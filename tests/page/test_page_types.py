"""The types that the page's scripts are checked by are those of the records that the server sends."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from page.typescript import declarations
from pydantic import Field

from gpu_tenant.artifacts.collect import Collected
from gpu_tenant.artifacts.preview import Preview
from gpu_tenant.artifacts.snapshot import Snapshot
from gpu_tenant.doctor import Checkup
from gpu_tenant.domain.record import Record
from gpu_tenant.faces import dashboard, mcp
from gpu_tenant.faces.dashboard import (
    actions,
    background_tasks,
    credentials,
    lease_rows,
    lease_view,
    poller,
    queries,
    signatures,
    spend_history,
    sse,
)
from gpu_tenant.jobs.logs.window import Hits, LogWindow
from gpu_tenant.jobs.monitor import Watched
from gpu_tenant.leases.cards import Card, Leases, TornDown
from gpu_tenant.leases.offers import Found
from gpu_tenant.sweeps.status import Reckoning

RESULTS = (Card, Collected, TornDown, Watched, Snapshot)
PAGE = (
    *RESULTS,
    *(lease_rows.Overview, poller.ChangedRows, lease_view.Detail),
    *(sse.JobMoment, sse.Sight, queries.MetricsView, LogWindow, Hits),
    *(queries.Losses, queries.PassedSmoke, Preview, Found, spend_history.History, Reckoning),
    *(credentials.Platform, credentials.Tested, credentials.CredentialResult, Checkup),
    *(signatures.OpenSignatures, signatures.ToSign, signatures.Options, signatures.NextSignature),
    *(actions.Begun, background_tasks.Trouble),
)
CARD = (*RESULTS, Leases)
HEAD = """\
What the server sends: written from its records by `make docs`. Not edited by hand.
Money is a string of a decimal number; null is unknown, and not zero."""

FILES = {
    "page": (Path(dashboard.__file__).parent / "page" / "types.d.ts", PAGE),
    "card": (Path(mcp.__file__).parent / "chat_card" / "types.d.ts", CARD),
}


@pytest.mark.parametrize("which", FILES)
def test_the_generated_types_are_those_of_the_server(which: str) -> None:
    path, records = FILES[which]
    generated = declarations(records, HEAD)
    if os.environ.get("GPU_TENANT_SNAPSHOTS") == "write":
        path.write_text(generated, encoding="utf-8")

    assert path.read_text(encoding="utf-8") == generated, "`make docs` writes it"


class Inner(Record):
    """What is within."""

    a_b: tuple[str, ...] | None


class Outer(Record):
    """What is around."""

    inner: Inner | None
    pairs: tuple[int, str] = Field(description="two of them")
    counts: dict[str, float]
    kind: Sequence[str | int] = ()


def test_a_record_becomes_an_interface_with_all_that_is_within() -> None:
    assert declarations([Outer], "Head") == (
        "// Head\n\nexport interface Inner {\n  a_b: string[] | null;\n}\n\n"
        "export interface Outer {\n  inner: Inner | null;\n"
        "  /** two of them */\n  pairs: [number, string];\n  counts: Record<string, number>;\n"
        "  kind: (string | number)[];\n}\n"
    )
