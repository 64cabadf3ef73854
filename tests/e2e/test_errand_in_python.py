"""The whole errand from a Python program: synchronous, asynchronous, and where a loop runs already."""

from pathlib import Path

import pytest
from errands import COMMAND, MODEL, a_tree

from gpu_tenant import (
    Answers,
    ErrandStatus,
    Order,
    TenantError,
    Unanswered,
    open_tenancy,
    run,
    run_async,
)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path / "state"))


def test_a_program_runs_a_command_in_one_call(tmp_path: Path) -> None:
    tree = a_tree(tmp_path / "tree")

    standing = run(
        COMMAND,
        artifacts=["out/"],
        directory=tree,
        smoke="none",
        on="local",
        to=tmp_path / "home",
        order=Order(),
    )

    assert standing.outcome == "done"
    assert standing.ended is not None
    assert standing.ended.receipt.ground == "verified"
    assert (tmp_path / "home/work/out/model.json").read_text(encoding="utf-8").strip() == MODEL


async def test_in_a_notebook_where_a_loop_runs_the_same_call_works(tmp_path: Path) -> None:
    tree = a_tree(tmp_path / "tree", "echo odd > notes.txt")
    (tree / "gpu-tenant.toml").write_text("[run]\nunasked_gib = 0\n", encoding="utf-8")
    asked: list[Unanswered] = []

    def give_up(asks: Unanswered) -> Answers:
        asked.append(asks)
        return Answers(discard=asks.unclaimed)

    def as_a_cell() -> ErrandStatus:
        return run(
            COMMAND,
            artifacts=["out/"],
            directory=tree,
            smoke="none",
            on="local",
            answer=give_up,
        )

    standing = as_a_cell()

    assert standing.outcome == "done"
    assert [asks.unclaimed for asks in asked] == [("notes.txt",)]


async def test_the_tenancy_that_is_open_is_used_and_an_error_has_its_remedy(tmp_path: Path) -> None:
    async with open_tenancy() as tenancy:
        with pytest.raises(TenantError) as told:
            await run_async(COMMAND, directory=a_tree(tmp_path / "tree"), tenancy=tenancy)
        assert tenancy.ledger.open_errands() == []

    assert told.value.code == "BAD_REQUEST"
    assert "artifact" in told.value.remedy
