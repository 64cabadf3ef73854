"""Work whose box was taken goes on elsewhere from its newest checkpoint, once, inside of its caps."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from contract.staged import PROFILES
from crash.mortal import Fate, MortalTransport
from crash.rented import Scene
from e2e.renting import QuickClock, Tenant, tenant_at
from e2e.taken import checkpointed
from signed import with_signature
from waited import over

from gpu_tenant.app import connect
from gpu_tenant.domain import timeline
from gpu_tenant.domain.interruption import recorded_fate
from gpu_tenant.domain.model import Lease, LeaseState, LocalAddress
from gpu_tenant.emulators.rehearsal_client import really_at
from gpu_tenant.emulators.server import Stage
from gpu_tenant.files.state_dir import Home
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.recover import may_recover, recover
from gpu_tenant.service import Tenancy
from gpu_tenant.transports.local import LocalTransport

JOB = """\
import json, os, pathlib, time
out = pathlib.Path("out")
out.mkdir(exist_ok=True)
with open("out/runs.txt", "a") as runs:
    runs.write("run\\n")
if (out / "state.json").exists():
    step = json.loads((out / "state.json").read_text())["step"]
    (out / "done.json").write_text(json.dumps({"resumed_at": step, "word": os.environ["WORD"]}))
else:
    (out / ".new").write_text(json.dumps({"step": 7}))
    (out / ".new").replace(out / "state.json")
    time.sleep(600)
"""
COMMAND = "python3 train.py"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    made = tmp_path / "tree"
    made.mkdir()
    (made / "train.py").write_text(JOB, encoding="utf-8")
    return made


async def began(tenancy: Tenancy, tree: Path, word: str, **asked: Any) -> str:
    """A lease whose job has saved its first checkpoint, which is here."""
    order = tree.parent / "gpu-tenant.toml"
    order.write_text('setup = ["cp train.py made-by-the-setup"]\n', encoding="utf-8")
    found = await tenancy.find_offers(
        hours=2, provider="vastai", interruptible="yes", order=str(order)
    )
    quotes = [offer.quote for offer in found.offers if offer.quote][-1:]
    card = await tenancy.provision(
        smoke="none", quotes=quotes, wait_s=3600, budget_usd=Decimal(5), **asked
    )
    await tenancy.push(card.lease, str(tree))
    # Its owner is asked about the variable once, and by no recovery.
    await with_signature(
        tenancy,
        lambda: tenancy.launch_detached(
            card.lease,
            COMMAND,
            ["out/state.json", "out/done.json", "out/runs.txt"],
            env=[word],
            name="train",
        ),
    )
    lease = tenancy.ledger.lease(card.lease)
    assert await there(tenancy, lease, "out/state.json")
    looked = await checkpointed(tenancy, lease)
    assert "work/out/state.json" in looked.names
    return lease.id


async def there(tenancy: Tenancy, lease: Lease, name: str) -> str:
    """What the job has written under that name, as soon as it has."""
    for _ in range(400):
        seen = await tenancy.context.transport(lease).run(
            ["cat", f"{lease.work_directory}/{name}"], timeout_s=10
        )
        if seen.exit_status == 0:
            return seen.stdout.decode()
        await asyncio.sleep(0.05)
    raise AssertionError(name)


async def ends_well(tenancy: Tenancy, lease: str) -> dict[str, Any]:
    """The job ends, its outputs are kept and its box is given back; what it wrote at last."""
    assert await there(tenancy, tenancy.ledger.lease(lease), "made-by-the-setup") == JOB
    assert (await over(tenancy, lease)).state == "finished"
    await tenancy.collect(lease)
    assert (await tenancy.verify_and_teardown(lease)).receipt.ground == "verified"
    kept = tenancy.home.artifacts_of(lease) / "work" / "out"
    assert (kept / "runs.txt").read_text("utf-8").count("run") == 2
    done: dict[str, Any] = json.loads((kept / "done.json").read_text("utf-8"))
    return done


def told(tenancy: Tenancy, lease: str) -> dict[str, Any]:
    """The one line about its recovery."""
    (line,) = [d for _, d in tenancy.ledger.events(lease) if isinstance(d, timeline.Recovered)]
    return line.as_stored()


class Everywhere(QuickClock):
    """The clock of one rehearsal, whose waiting passes at another, too."""

    def __init__(self, url: str, other: str) -> None:
        super().__init__(url)
        self._other = QuickClock(other)

    async def sleep(self, seconds: float) -> None:
        await self._other.sleep(seconds)
        await super().sleep(seconds)


@pytest.fixture
async def tenant(tmp_path: Path) -> AsyncIterator[Tenant]:
    async with tenant_at("vastai", tmp_path, time="runs") as made:
        yield made


async def test_outbid_work_goes_on_at_another_provider_and_both_leases_say_what_it_cost(
    tenant: Tenant, tmp_path: Path, tree: Path
) -> None:
    with Stage("runpod", tmp_path / "other", way="local", time="runs") as other:
        tenancy = at_both(tenant, other)
        lost = await began(
            tenancy, tree, "WORD=env:WORD_HERE", recover=["runpod"], max_price_usd_h=Decimal(2)
        )
        old = tenant.lease(lost)
        tenant.wait(1800)
        tenant.fault("outbid", box=old.box_id)
        shown = await tenancy.list_leases()
        assert recorded_fate(tenancy.ledger.events(lost)) == "outbid"
        assert may_recover(tenancy.context, tenant.lease(lost))

        card = await recover(tenancy.context, lost, wait_s=3600)
        again = await recover(tenancy.context, lost, wait_s=3600)

        assert (card.provider, again.lease) == ("runpod", card.lease)
        assert len(other.world.things()) == 1
        new, line = tenant.lease(card.lease), told(tenancy, lost)
        assert (new.recovers, new.terms.deadline_at) == (lost, old.terms.deadline_at)
        assert new.terms.budget_usd is not None
        assert Decimal(4) < new.terms.budget_usd < 5
        assert (line["fate"], line["to"], line["restored_files"]) == ("outbid", card.lease, 2)
        assert 1800 <= line["lost_s"] < 2000
        assert Decimal(line["lost_usd"]) > 0
        assert told(tenancy, card.lease)["from"] == lost
        assert await ends_well(tenancy, card.lease) == {"resumed_at": 7, "word": "a secret"}

        # It is stopped, billed for its disk, and may wake: it stays live until a person ends it.
        assert any("its provider has stopped it" in alarm for alarm in shown.alarms)
        assert tenant.lease(lost).state is LeaseState.ACTIVE
        assert tenant.alive == [old.box_id]
        assert not may_recover(tenancy.context, tenant.lease(lost))
        assert b"a secret" not in tenant.home.ledger.read_bytes()


def at_both(tenant: Tenant, other: Stage) -> Tenancy:
    """A tenancy with keys for two providers."""
    tenancy = tenant.tenancy
    clock = tenancy.ledger.clock = Everywhere(tenant.stage.url, other.url)
    profiles = {**tenancy.profiles, "runpod": PROFILES["runpod"]}
    made = connect(profiles["runpod"], Home(other.directory / "tenant"), other.environment, clock)
    assert made is not None

    def way_to(lease: Lease) -> LocalTransport:
        assert lease.address is not None
        url = other.url if lease.provider == "runpod" else tenant.stage.url
        at = really_at(url, lease.address.target)  # type: ignore[union-attr]
        assert isinstance(at, LocalAddress)
        return LocalTransport(Path(at.directory))

    return Tenancy(
        Context(
            home=tenant.home,
            ledger=tenancy.ledger,
            profiles=profiles,
            connectors={**tenancy.context.connectors, "runpod": made},
            open_transport=way_to,
            introduce=tenancy.context.introduce,
            public_key=tenancy.context.public_key,
            environ={"WORD_HERE": "a secret"},
        )
    )


# Killed on its way


class Named(Fate):
    """Ends the process at the first moment of that name, after so many others of it."""

    def __init__(self, name: str, after: int, told: Path) -> None:
        super().__init__(None, told)
        self._name, self._after = name, after

    def moment(self, name: str) -> None:
        if name == self._name:
            if self._after == 0:
                os.kill(os.getpid(), 9)
            self._after -= 1
        super().moment(name)


def lives_through(
    scene: Scene, fate: Fate, what: Callable[[Tenancy], Any], told: Path
) -> tuple[int, str]:
    """How a process of its own ended that did this, and what it said."""
    child = os.fork()
    if child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return status, told.read_text("utf-8") if told.exists() else ""
    try:

        async def once() -> None:
            tenancy = scene.tenancy("one", fate)
            way_to = tenancy.context._open_transport
            tenancy.context._open_transport = lambda lease: MortalTransport(way_to(lease), fate)  # type: ignore[arg-type, assignment]
            try:
                told.write_text(str(await what(tenancy)), encoding="utf-8")
            finally:
                await tenancy.aclose()

        asyncio.run(once())
    except BaseException as error:  # noqa: BLE001 - told to the parent, whatever it is
        told.write_text(repr(error), encoding="utf-8")
        os._exit(1)
    os._exit(0)


def test_a_recovery_that_is_killed_again_and_again_goes_on_and_rents_one_box(
    tmp_path: Path, tree: Path
) -> None:
    scene = Scene("vastai", tmp_path / "scene")
    log, said = tmp_path / "moments", tmp_path / "said"

    word = tmp_path / "word"
    word.write_text("w", encoding="utf-8")

    async def first(tenancy: Tenancy) -> str:
        lost = await began(
            tenancy, tree, f"WORD=file:{word}", recover=["same"], max_price_usd_h=Decimal(2)
        )
        box = tenancy.ledger.lease(lost).box_id
        scene.ask("faults", [{"do": "host_lost", "box": box}])
        await tenancy.list_leases()
        return lost

    try:
        status, lost = lives_through(scene, Fate(None, log), first, said)
        assert status == 0, lost

        async def goes_on(tenancy: Tenancy) -> str:
            return (await recover(tenancy.context, lost, wait_s=3600)).lease

        deaths = [
            Named("after create", 0, log),  # it exists, and no ledger line says so
            Named("after run receive", 1, log),  # pushed and restored, and nothing declared
            Named("after run start", 0, log),  # it runs, and is not known to have been launched
        ]
        ends = [lives_through(scene, death, goes_on, said)[0] for death in deaths]
        assert ends == [-9] * 3, said.read_text("utf-8")
        status, new = lives_through(scene, Fate(None, log), goes_on, said)
        assert status == 0, new

        async def last(tenancy: Tenancy) -> str:
            lease = tenancy.ledger.lease(new)
            done = await there(tenancy, lease, "out/done.json")
            runs = await there(tenancy, lease, "out/runs.txt")
            assert runs.count("run") == 2, "once on each box"
            return json.dumps([json.loads(done), told(tenancy, lost), len(tenancy.ledger.leases())])

        status, text = lives_through(scene, Fate(None, log), last, said)
        assert status == 0, text
        done, line, leases = json.loads(text)
        assert (done["resumed_at"], line["fate"], line["to"], leases) == (7, "host_lost", new, 2)
        creates = [
            r for r in scene.ask("requests") if r["method"] == "PUT" and "/asks/" in r["path"]
        ]
        assert len(creates) == 2, "one for each lease"
    finally:
        scene.close()
        end(tmp_path)


def end(root: Path) -> None:
    """Nothing runs any more that was begun below that directory."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"HOME={root}".encode() in (entry / "environ").read_bytes():
                os.kill(int(entry.name), 9)
        except OSError:
            continue
