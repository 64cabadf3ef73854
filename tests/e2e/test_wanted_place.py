"""What was asked to come to a directory comes there, whoever collects it, and over however many boxes the work went."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from e2e.renting import Tenant, tenant_at
from e2e.test_errand_elsewhere import RESUMES, Outbid
from errands import MODEL, Asker, a_tree, an_errand, goes_on
from waited import over

from gpu_tenant.artifacts.collect import Collected
from gpu_tenant.domain.errand import ErrandRequest
from gpu_tenant.domain.errors import BoxUnreachable, LocalTrouble
from gpu_tenant.domain.model import Lease, LeaseState
from gpu_tenant.domain.terms import GRACE_S
from gpu_tenant.errands.answers import in_few_words
from gpu_tenant.errands.drive import Drive, begin
from gpu_tenant.jobs.monitor import Watched
from gpu_tenant.watchdog.loop import Watchdog


@pytest.fixture
async def tenant(tmp_path: Path) -> AsyncIterator[Tenant]:
    async with tenant_at("vastai", tmp_path, time="runs") as made:
        yield made


class Leaves(Asker):
    """Somebody who goes away as soon as the job runs."""

    async def follow(self, lease: str, job: str) -> Watched:
        raise KeyboardInterrupt


class OutbidAfterACollect(Outbid):
    """Somebody whose first box was collected into the directory that was named, and is outbid then."""

    async def _takes(self, lease: Lease) -> None:
        self._tenant.fault("outbid", box=lease.box_id)
        raise BoxUnreachable("a box that was outbid answers nobody", remedy="look again")


async def left_to_a_watchdog(tenant: Tenant, errand: ErrandRequest) -> None:
    """The errand, whose job is over and whose box a watchdog has ended."""
    tenancy = tenant.tenancy
    asker = Leaves()
    asker.tenancy = tenancy
    with pytest.raises(KeyboardInterrupt):
        await Drive(tenancy, begin(tenancy, errand), asker).go_on()
    (lease,) = tenancy.ledger.leases()
    watchdog = Watchdog(tenancy, tell=lambda _: None)
    for _ in range(20):
        await watchdog.once()
        if tenant.lease(lease.id).state is LeaseState.GONE:
            return
        tenant.wait(GRACE_S)
    raise AssertionError("the watchdog has not ended it")


async def test_what_a_watchdog_collects_comes_where_the_run_has_asked_for_it(
    tenant: Tenant, tmp_path: Path
) -> None:
    to = tmp_path / "results"
    errand = an_errand(tenant.tenancy, a_tree(tmp_path / "tree"), to=str(to), max_price_usd_h="2")

    await left_to_a_watchdog(tenant, errand)
    standing = await goes_on(tenant.tenancy, errand)

    assert (to / "work/out/model.json").read_text().strip() == MODEL
    assert standing.outcome == "done"
    assert "copies it there" not in standing.words
    assert standing.lease is not None


def older_place(told: Collected) -> Path:
    """Where the answer says that the one file lies that was replaced."""
    assert told.superseded is not None
    place = told.superseded.removeprefix("older versions of what came are kept in ")
    assert place.endswith(" (1 file)")
    return Path(place.removesuffix(" (1 file)"))


async def ended(tenant: Tenant, tmp_path: Path) -> str:
    """A lease that a watchdog has ended, whose file is kept."""
    tree = a_tree(tmp_path / "tree")
    errand = an_errand(tenant.tenancy, tree, max_price_usd_h="2")
    await left_to_a_watchdog(tenant, errand)
    (lease,) = tenant.tenancy.ledger.leases()
    return lease.id


async def test_a_collect_after_the_end_brings_a_proved_copy_where_somebody_wants_it(
    tenant: Tenant, tmp_path: Path
) -> None:
    lease, to = await ended(tenant, tmp_path), tmp_path / "other"
    kept_in = Path(tenant.lease(lease).kept_in or "")

    told = await tenant.tenancy.collect(lease, str(to))
    again = await tenant.tenancy.collect(lease, str(to))

    assert (to / "work/out/model.json").read_text().strip() == MODEL
    assert (told.directory, told.fetched_files) == (str(to), told.files)
    assert again.fetched_files == 0
    assert told.next == f"`gpu-tenant report {lease}`"
    assert (kept_in / "work/out/model.json").read_text().strip() == MODEL, "it stays where it was"
    assert tenant.lease(lease).kept_in == str(kept_in)


async def test_what_is_in_the_way_of_a_later_collect_is_kept_and_the_answer_says_where(
    tenant: Tenant, tmp_path: Path
) -> None:
    lease, to = await ended(tenant, tmp_path), tmp_path / "other"
    await tenant.tenancy.collect(lease, str(to))
    (to / "work/out/model.json").write_text("what another lease wrote", encoding="utf-8")

    told = await tenant.tenancy.collect(lease, str(to))

    older = older_place(told)
    assert older.is_relative_to(to / ".superseded")
    assert (older / "work/out/model.json").read_text() == "what another lease wrote"


async def test_a_kept_file_that_is_not_as_it_was_sealed_is_not_given_out_as_proved(
    tenant: Tenant, tmp_path: Path
) -> None:
    lease, to = await ended(tenant, tmp_path), tmp_path / "other"
    kept = Path(tenant.lease(lease).kept_in or "") / "work/out/model.json"
    kept.write_text("changed since", encoding="utf-8")

    with pytest.raises(LocalTrouble, match=r"as it was sealed: work/out/model.json \(1 file\)"):
        await tenant.tenancy.collect(lease, str(to))

    assert not (to / "work/out/model.json").exists()


async def test_a_collect_that_replaces_what_an_earlier_lease_brought_says_where_that_lies(
    tenant: Tenant, tmp_path: Path
) -> None:
    to = tmp_path / "results"
    for turn in ("first", "second"):
        card = await tenant.rented()
        await tenant.tenancy.launch_detached(
            card.lease, f"mkdir -p out; echo {turn} > out/notes.txt", ["out/"], name="job"
        )
        await over(tenant.tenancy, card.lease)
        told = await tenant.tenancy.collect(card.lease, str(to))

    older = older_place(told)
    assert (older / "work/out/notes.txt").read_text().strip() == "first"
    assert (to / "work/out/notes.txt").read_text().strip() == "second"


async def test_where_nobody_may_write_the_answer_has_the_line_that_brings_it_there(
    tenant: Tenant, tmp_path: Path
) -> None:
    to = tmp_path / "results"
    to.mkdir()
    (to / "mine").write_text("a file that no collect brought", encoding="utf-8")
    errand = an_errand(tenant.tenancy, a_tree(tmp_path / "tree"), to=str(to), max_price_usd_h="2")

    await left_to_a_watchdog(tenant, errand)
    standing = await goes_on(tenant.tenancy, errand)

    assert standing.ended is not None
    kept_in = standing.ended.receipt.kept_in
    assert f"`mkdir -p {to} && cp -a {kept_in}/. {to}/` copies it there" in standing.words
    assert [x.name for x in to.iterdir()] == ["mine"]


async def test_what_was_left_on_the_first_box_does_not_take_the_place_of_what_came_after_it(
    tenant: Tenant, tmp_path: Path
) -> None:
    tree, to = a_tree(tmp_path / "tree"), tmp_path / "results"
    (tree / "train.sh").write_text(
        RESUMES.replace("mkdir -p out", "mkdir -p out; date +%N > out/metrics"), encoding="utf-8"
    )
    errand = an_errand(
        tenant.tenancy,
        tree,
        recover=("same",),
        interruptible="yes",
        max_price_usd_h="2",
        max_usd="5",
        to=str(to),
    )

    standing = await goes_on(tenant.tenancy, errand, OutbidAfterACollect(tenant))

    old, new = tenant.tenancy.ledger.leases()
    assert standing.outcome == "done", standing
    assert standing.ended is not None
    assert (to / "work/out/done.json").read_text().strip() == '{"resumed": true}'
    assert new.kept_in == str(to)
    assert old.kept_in == str(tenant.tenancy.home.artifacts_of(old.id))
    own = Path(str(old.kept_in)) / "work/out/metrics"
    assert own.read_text() != (to / "work/out/metrics").read_text()
    told = in_few_words(standing).words
    assert f"files from {old.id} are in {old.kept_in}" in told
    assert "on 2 boxes in all: " in told
    for lease in (old, new):
        receipt = tenant.tenancy.ledger.receipt(lease.id)
        assert receipt is not None
        assert f"{lease.id} {receipt.cost_usd:.4f} USD" in told
