"""Who waits for bytes sees how far they are, how fast they come, and how long that takes."""

import asyncio
import io
import sys
from pathlib import Path

import pytest
from mcp import Client
from mcp.server import MCPServer
from rich.console import Console

from gpu_tenant.faces.cli import bars, main
from gpu_tenant.faces.mcp.server import TOOLS, StrictTool
from gpu_tenant.leases.context import call_bytes_s, progress_to

MB = 10**6


def test_at_a_terminal_there_is_a_bar_with_the_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = io.StringIO()
    terminal = Console(file=seen, force_terminal=True, width=100, highlight=False)
    monkeypatch.setattr(bars, "errors", terminal)

    with bars.bytes_bar("collect"):
        progress_to.get()(5 * MB, 10 * MB)

    assert "5.0 MB of 10.0 MB" in seen.getvalue()


async def test_in_a_log_there_is_a_line_now_and_then_and_none_for_what_is_soon_done(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with bars.bytes_bar("push"):
        progress_to.get()(0, 10 * MB)
    short = capsys.readouterr()
    monkeypatch.setattr(bars, "_TOLD_EVERY_S", 0)
    with bars.bytes_bar("push"):
        progress_to.get()(5 * MB, 10 * MB)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    long = capsys.readouterr()

    assert (short.out, short.err) == ("", "")
    assert (long.out, set(long.err.splitlines())) == ("", {"push: 5.0 MB of 10.0 MB"})


@pytest.mark.parametrize("verb", [["push", "."], ["collect"]])
def test_a_limit_that_is_no_rate_is_refused_with_one_that_is(
    verb: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["gpu-tenant", *verb, "nobody", "--limit", "20Mbit"])

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == 2
    assert "`--limit 20M`" in capsys.readouterr().err
    assert call_bytes_s.get() is None


async def test_an_agents_host_is_told_the_bytes_and_the_words() -> None:
    heard: list[tuple[float, float | None, str | None]] = []
    arrived = asyncio.Event()

    async def moves_bytes() -> str:
        progress_to.get()(5 * MB, 10 * MB)
        await asyncio.wait_for(arrived.wait(), timeout=120)
        return "done"

    async def hear(done: float, total: float | None, message: str | None) -> None:
        heard.append((done, total, message))
        arrived.set()

    server = MCPServer("bytes", tools=[StrictTool.of(moves_bytes, TOOLS["collect"])])
    async with Client(server) as client:
        await client.call_tool("moves_bytes", {}, progress_callback=hear)

    assert heard == [(5 * MB, 10 * MB, "5.0 MB of 10.0 MB")]
