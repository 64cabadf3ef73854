"""Who calls a tool, or types at a terminal, is there, and a failed job's box waits for them; a script is nobody."""

import io
import os
import sys
from pathlib import Path

import pytest
from mcp import Client

from gpu_tenant.faces.cli import output
from gpu_tenant.faces.mcp.server import make_server
from gpu_tenant.files.state_dir import Home
from gpu_tenant.leases.presence import last_there


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return Home(tmp_path / "state")


async def test_an_agent_that_calls_a_tool_is_there(home: Home) -> None:
    async with Client(make_server(), mode="auto") as client:
        assert last_there(home) is None, "a host that only starts the server shows nobody"
        await client.call_tool("list_leases", {})

    assert last_there(home) is not None


async def test_a_person_at_a_terminal_is_there_and_a_script_is_not(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with output.tenancy(purpose="look"):
        assert last_there(home) is None

    mine, its = os.openpty()
    with os.fdopen(its, "r+b", buffering=0) as raw:
        terminal = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
        with monkeypatch.context() as at_a_terminal:
            for stream in ("stdin", "stderr"):
                at_a_terminal.setattr(sys, stream, terminal)
            async with output.tenancy(purpose="look") as tenancy:
                now = tenancy.clock.now()
    os.close(mine)

    seen_at = last_there(home)
    assert seen_at is not None
    assert abs((now - seen_at).total_seconds()) < 60
