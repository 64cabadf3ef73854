"""Before a job runs, anybody declares what is not wanted. Afterwards a person gives up what exists nowhere else."""

from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import CallToolResult
from signed import signs

from gpu_tenant.app import open_tenancy
from gpu_tenant.faces.mcp.server import make_server

JOB = "mkdir -p out/big && echo weights > out/model.bin && echo huge > out/big/cache.bin && echo notes > extra.txt"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path / "state"))


async def told(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    assert result.structured_content is not None
    return dict(result.structured_content)


def words(result: CallToolResult) -> str:
    assert result.is_error, result.structured_content
    return "".join(getattr(part, "text", "") for part in result.content)


async def a_done_job(client: Client, tree: Path, **declared: Any) -> str:
    """A local lease whose job has ended."""
    tree.mkdir(exist_ok=True)
    (tree / "data.csv").write_text("1,2\n")
    lease = str((await told(client, "provision", provider="local", smoke="none"))["lease"])
    await told(client, "push", lease=lease, directory=str(tree))
    await ran(client, lease, JOB, **{"artifacts": ["out/"], **declared})
    return lease


async def ran(client: Client, lease: str, command: str, **declared: Any) -> None:
    await told(client, "launch_detached", lease=lease, command=command, **declared)
    seen = await told(client, "monitor", lease=lease, wait_s=45)
    assert seen["state"] == "finished", seen


async def sign(refusal: str) -> tuple[str, ...]:
    """A person signs for what that refusal asks for. Returns what they were shown."""
    code = refusal.split("by the code ")[1].split(":")[0]
    tenancy = open_tenancy()
    try:
        shown = tenancy.ledger.request_of(code).words
        signs(tenancy, code)
    finally:
        await tenancy.aclose()
    return shown


async def test_an_agent_gives_up_no_only_copy_and_a_person_signs_for_the_names(
    tmp_path: Path,
) -> None:
    async with Client(make_server()) as client:
        lease = await a_done_job(client, tmp_path / "tree")
        asked = {"lease": lease, "discard": ["out/model.bin", "extra.txt"]}

        refusal = words(await client.call_tool("collect", asked))

        assert "SIGNATURE_WANTED" in refusal
        shown = await sign(refusal)
        assert [line.partition(" (")[0] for line in sorted(shown)] == ["extra.txt", "out/model.bin"]
        collected = await told(client, "collect", **asked)
        assert {"extra.txt", "out/model.bin"} <= {*collected["discarded_by"]}
        ended = await told(client, "verify_and_teardown", lease=lease)
        assert ended["receipt"]["ground"] == "verified"


async def test_a_broad_pattern_is_signed_for_by_the_names_that_it_covers(tmp_path: Path) -> None:
    async with Client(make_server()) as client:
        lease = await a_done_job(client, tmp_path / "tree")
        asked = {"lease": lease, "discard": ["out/*/*e*"]}

        shown = await sign(words(await client.call_tool("collect", asked)))
        collected = await told(client, "collect", **asked)

        assert len(shown) == 1
        assert "out/big/cache.bin" in shown[0]
        assert "out/big/cache.bin" in collected["discarded_by"]
        assert "out/*/*e*" not in collected["discarded_by"], "it would give up what comes later"


async def test_what_is_written_after_the_signature_is_signed_for_anew(tmp_path: Path) -> None:
    async with Client(make_server()) as client:
        lease = await a_done_job(client, tmp_path / "tree")
        asked = {"lease": lease, "discard": ["out/big/"]}
        await sign(words(await client.call_tool("collect", asked)))
        await ran(client, lease, "echo new > out/big/later.bin", artifacts=["out/"])

        refusal = words(await client.call_tool("collect", asked))

        assert "SIGNATURE_WANTED" in refusal
        assert "later.bin" in refusal


async def test_a_later_job_s_declaration_gives_up_nothing_that_is_there(tmp_path: Path) -> None:
    async with Client(make_server()) as client:
        lease = await a_done_job(client, tmp_path / "tree")
        launch = {
            "lease": lease,
            "command": "true",
            "artifacts": ["log.txt"],
            "discard": ["extra.txt"],
        }

        refusal = words(await client.call_tool("launch_detached", launch))

        assert "SIGNATURE_WANTED" in refusal
        assert "extra.txt" in refusal


async def test_what_was_declared_before_the_job_ran_needs_nobody(tmp_path: Path) -> None:
    async with Client(make_server()) as client:
        lease = await a_done_job(client, tmp_path / "tree", discard=["extra.txt", "out/big/"])

        collected = await told(client, "collect", lease=lease)
        again = await told(client, "collect", lease=lease, discard=["extra.txt"])
        ended = await told(client, "verify_and_teardown", lease=lease)

        assert collected["files"] == again["files"]
        assert ended["receipt"]["ground"] == "verified"


async def test_what_is_here_byte_for_byte_is_given_up_on_the_box_without_a_person(
    tmp_path: Path,
) -> None:
    async with Client(make_server()) as client:
        lease = await a_done_job(client, tmp_path / "tree", discard=["extra.txt"])
        kept = Path((await told(client, "collect", lease=lease))["directory"])

        collected = await told(client, "collect", lease=lease, discard=["out/model.bin"])

        assert "out/model.bin" in collected["discarded_by"]
        assert (kept / "work/out/model.bin").read_text() == "weights\n"


async def test_a_copy_here_that_was_changed_is_no_copy(tmp_path: Path) -> None:
    async with Client(make_server()) as client:
        lease = await a_done_job(client, tmp_path / "tree", discard=["extra.txt"])
        kept = Path((await told(client, "collect", lease=lease))["directory"])
        (kept / "work/out/model.bin").write_text("changed\n")

        refusal = words(
            await client.call_tool("collect", {"lease": lease, "discard": ["out/model.bin"]})
        )

        assert "SIGNATURE_WANTED" in refusal
