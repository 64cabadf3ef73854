"""The smoke test's command is tried on the rented GPU before the job starts, in a copy of the work directory."""

from pathlib import Path

import pytest
from e2e.renting import tenant_at
from errands import Asker, a_tree, an_errand, goes_on

from gpu_tenant.domain.errand import Gated
from gpu_tenant.domain.errors import BadRequest

ON_THE_BOX = '[ -n "$GPU_TENANT_CARETAKER" ]'


async def test_what_fails_on_the_box_alone_ends_the_box_before_the_job(tmp_path: Path) -> None:
    tree = a_tree(tmp_path / "tree")
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        smoke = f"if {ON_THE_BOX}; then echo 'RuntimeError: CUDA error: no kernel image' >&2; exit 1; fi"
        standing = await goes_on(
            tenant.tenancy, an_errand(tenant.tenancy, tree, smoke=smoke, max_usd="5")
        )

        assert standing.outcome == "failed", standing
        assert "no job was started" in standing.words
        assert "CUDA error: no kernel image" in standing.words
        assert "no kernel image" in standing.log
        assert not (tmp_path / "ran").exists()
        tenant.assert_nothing_bills()


async def test_a_try_that_passes_leaves_nothing_and_is_not_repeated(tmp_path: Path) -> None:
    tree = a_tree(tmp_path / "tree", job="ls out > out/seen.txt")
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        smoke = "mkdir -p out; echo half > out/half.pt"
        asker = Asker()
        standing = await goes_on(
            tenant.tenancy, an_errand(tenant.tenancy, tree, smoke=smoke, max_usd="5"), asker
        )

        assert standing.outcome == "done", standing
        assert sum("it ended well on the box" in words for words in asker.heard) == 1
        (seen,) = (tmp_path).rglob("seen.txt")
        assert "half.pt" not in seen.read_text(encoding="utf-8"), "the job begins with a clean tree"
        tried = [
            x.event
            for x in tenant.tenancy.ledger.errand_events(standing.run)
            if isinstance(x.event, Gated)
        ]
        assert len(tried) == 1


async def test_a_try_that_is_not_wanted_or_named_wrongly(tmp_path: Path) -> None:
    tree = a_tree(tmp_path / "tree")
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        assert an_errand(tenant.tenancy, tree).gate_s == 60
        assert an_errand(tenant.tenancy, tree, gate="none").gate_s == 0
        assert an_errand(tenant.tenancy, tree, smoke=None).gate_s == 0
        with pytest.raises(BadRequest, match="gate"):
            an_errand(tenant.tenancy, tree, gate="soon")
