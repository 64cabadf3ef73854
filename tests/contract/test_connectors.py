"""What every connector promises, and what the local and the own one promise besides."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from arranged import eventually, lease, never_used, setting
from contract.staged import CLUSTERS, RENTED

from gpu_tenant.domain.errors import BadRequest, BoxTaken, PermitForged, ProviderTrouble
from gpu_tenant.domain.model import (
    Address,
    Box,
    BoxId,
    BoxState,
    Lease,
    LeaseId,
    LeaseState,
    SshAddress,
)
from gpu_tenant.domain.permit import NeverUsed, TeardownPermit
from gpu_tenant.domain.ports import Connector, Setting
from gpu_tenant.providers.local import connector as local
from gpu_tenant.providers.own import connector as own
from gpu_tenant.transports.local import LocalTransport


@dataclass(frozen=True)
class Provider:
    """One connector under the contract, and how a lease at its provider looks."""

    slug: str
    made: Callable[[Setting], Connector]
    address: Callable[[str], Address | None]

    def connect(self, state: Path) -> Connector:
        return self.made(setting(state, self.slug))

    def intent(self, name: str) -> Lease:
        return lease(
            LeaseState.INTENDED,
            lease_id=LeaseId(f"{self.slug}-{name}"),
            provider=self.slug,
            address=self.address(name),
        )


PROVIDERS = [
    Provider("local", local.connect, lambda name: None),
    Provider("own", own.connect, lambda name: SshAddress(target=f"me@{name}:2222")),
]


@pytest.fixture(params=PROVIDERS, ids=lambda provider: provider.slug)
def provider(request: pytest.FixtureRequest) -> Provider:
    chosen: Provider = request.param
    return chosen


@pytest.fixture
def connector(provider: Provider, tmp_path: Path) -> Connector:
    return provider.connect(tmp_path)


def permit_for(box: Box, standing: Lease) -> TeardownPermit:
    return never_used(standing.model_copy(update={"box_id": box.id, "state": LeaseState.ACTIVE}))


# The contract


def test_every_connector_of_the_package_is_under_contract() -> None:
    files = {p.parent.name for p in Path(local.__file__).parents[1].glob("*/connector.py")} - {
        "console"
    }

    here = {provider.slug for provider in PROVIDERS}

    assert files == here | set(RENTED) | CLUSTERS, "add the new one to PROVIDERS above"
    assert not here & set(RENTED), "what takes a key is under contract on its stage"


async def test_there_are_no_boxes_where_none_was_made(connector: Connector) -> None:
    assert list(await connector.list_boxes()) == []


async def test_a_made_box_is_listed_under_its_lease_s_mark(
    provider: Provider, connector: Connector
) -> None:
    intent = provider.intent("a")

    box = await connector.create(intent)

    assert list(await connector.list_boxes()) == [box]
    assert (box.provider, box.mark, box.state) == (provider.slug, intent.mark, BoxState.READY)
    assert box.address is not None
    assert box.price_usd_h is None, "unknown, which is not zero"


async def test_one_lease_has_one_box_however_often_it_is_made(
    provider: Provider, connector: Connector
) -> None:
    first = await connector.create(provider.intent("a"))

    again = await connector.create(provider.intent("a"))

    assert again == first
    assert list(await connector.list_boxes()) == [first]


async def test_two_leases_have_two_boxes(provider: Provider, connector: Connector) -> None:
    made = [await connector.create(provider.intent(name)) for name in ("a", "b")]

    listed = await connector.list_boxes()

    assert made[0].id != made[1].id
    assert sorted(box.id for box in listed) == sorted(box.id for box in made)


async def test_a_box_outlives_the_connector_that_made_it(
    provider: Provider, tmp_path: Path
) -> None:
    box = await provider.connect(tmp_path).create(provider.intent("a"))

    assert list(await provider.connect(tmp_path).list_boxes()) == [box]


async def test_the_permitted_box_is_gone_and_no_other(
    provider: Provider, connector: Connector
) -> None:
    intents = {name: provider.intent(name) for name in ("a", "b")}
    boxes = {name: await connector.create(intent) for name, intent in intents.items()}

    await connector.destroy(permit_for(boxes["a"], intents["a"]))

    assert list(await connector.list_boxes()) == [boxes["b"]]


async def test_to_destroy_what_is_not_there_is_no_trouble(
    provider: Provider, connector: Connector
) -> None:
    intent = provider.intent("a")
    permit = permit_for(await connector.create(intent), intent)

    await connector.destroy(permit)
    await connector.destroy(permit)

    assert list(await connector.list_boxes()) == []


async def test_a_destroyed_box_can_be_made_again(provider: Provider, connector: Connector) -> None:
    intent = provider.intent("a")
    await connector.destroy(permit_for(await connector.create(intent), intent))

    again = await connector.create(intent)

    assert list(await connector.list_boxes()) == [again]


async def test_nothing_but_a_genuine_permit_destroys(
    provider: Provider, connector: Connector
) -> None:
    intent = provider.intent("a")
    box = await connector.create(intent)
    for_another = permit_for(box, intent.model_copy(update={"provider": "elsewhere"}))
    look_alike = object.__new__(TeardownPermit)
    for field, value in {
        "lease_id": intent.id,
        "provider": provider.slug,
        "box_id": box.id,
        "ground": NeverUsed(),
    }.items():
        object.__setattr__(look_alike, field, value)
    changed = permit_for(box.model_copy(update={"id": BoxId("another")}), intent)
    object.__setattr__(changed, "box_id", box.id)

    for shown in (box.id, box, intent, None, NeverUsed(), for_another, look_alike, changed):
        with pytest.raises(PermitForged):
            await connector.destroy(shown)  # type: ignore[arg-type]

    assert list(await connector.list_boxes()) == [box]


async def test_a_list_that_cannot_be_read_is_trouble_and_not_an_empty_list(
    provider: Provider, connector: Connector, tmp_path: Path
) -> None:
    await connector.create(provider.intent("a"))
    (kept,) = tmp_path.iterdir()
    kept.rename(tmp_path / "elsewhere")
    kept.write_text("this is not the directory that was here", encoding="utf-8")

    with pytest.raises(ProviderTrouble):
        await connector.list_boxes()


# Boxes on this computer


DAEMON = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
{ignore}
null = os.open(os.devnull, os.O_RDWR)
open("pid.new", "w").write(str(os.getpid()))
os.rename("pid.new", "pid")
for stream in range(3): os.dup2(null, stream)
time.sleep(600)
"""
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"


async def daemon(box: Box, *, ignore: str = "") -> int:
    """The number of a process that has cut every tie to whoever started it in `box`."""
    assert box.address is not None
    assert box.address.kind == "local"
    home = Path(box.address.directory)
    code = DAEMON.format(ignore=ignore)
    await LocalTransport(home).run([sys.executable, "-c", code], timeout_s=20)
    assert eventually((home / "pid").exists)
    return int((home / "pid").read_text(encoding="utf-8"))


def runs(pid: int) -> bool:
    try:
        return (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
            not in "ZX"
        )
    except OSError:
        return False


@pytest.fixture
def here(tmp_path: Path) -> local.LocalConnector:
    return local.connect(setting(tmp_path))


@pytest.mark.parametrize("ignore", ["", STUBBORN], ids=["polite", "stubborn"])
async def test_a_local_box_takes_its_daemons_with_it(
    here: local.LocalConnector, ignore: str
) -> None:
    intent = PROVIDERS[0].intent("a")
    box = await here.create(intent)
    pid = await daemon(box, ignore=ignore)
    assert runs(pid)

    await here.destroy(permit_for(box, intent))

    assert not runs(pid)


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A process of this computer that belongs to no box."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


async def test_a_local_box_leaves_everybody_else_alone(
    here: local.LocalConnector, stranger: subprocess.Popen[bytes]
) -> None:
    intents = {name: PROVIDERS[0].intent(name) for name in ("a", "ab")}
    boxes = {name: await here.create(intent) for name, intent in intents.items()}
    neighbour = await daemon(boxes["ab"])

    await here.destroy(permit_for(boxes["a"], intents["a"]))

    assert runs(neighbour)
    assert runs(stranger.pid)
    await here.destroy(permit_for(boxes["ab"], intents["ab"]))
    assert not runs(neighbour)


async def test_the_processes_of_a_box_are_found_also_when_its_place_was_named_relatively(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = local.connect(setting(Path("state")))
    intent = PROVIDERS[0].intent("a")
    box = await here.create(intent)
    pid = await daemon(box)

    await here.destroy(permit_for(box, intent))

    assert not runs(pid)


async def test_a_box_half_destroyed_before_a_crash_is_not_listed_and_can_be_finished(
    here: local.LocalConnector, tmp_path: Path
) -> None:
    intent = PROVIDERS[0].intent("a")
    box = await here.create(intent)
    boxes = tmp_path / "boxes"
    (boxes / box.id).rename(boxes / f".dying-{box.id}")

    assert await here.list_boxes() == []
    await here.destroy(permit_for(box, intent))

    assert list(boxes.iterdir()) == []


async def test_a_box_half_made_before_a_crash_is_not_listed_and_is_made_anew(
    here: local.LocalConnector, tmp_path: Path
) -> None:
    intent = PROVIDERS[0].intent("a")
    half = tmp_path / "boxes" / f".new-{intent.id}"
    (half / "home").mkdir(parents=True)
    (half / "home" / "rubbish").touch()

    assert await here.list_boxes() == []
    box = await here.create(intent)

    assert box.address is not None
    assert box.address.kind == "local"
    assert list(Path(box.address.directory).iterdir()) == []


async def test_a_local_box_is_its_owner_s_alone(here: local.LocalConnector) -> None:
    box = await here.create(PROVIDERS[0].intent("a"))

    assert box.address is not None
    assert box.address.kind == "local"
    assert Path(box.address.directory).stat().st_mode & 0o777 == 0o700


async def test_a_box_without_its_card_is_listed_as_broken_and_not_left_out(
    here: local.LocalConnector, tmp_path: Path
) -> None:
    box = await here.create(PROVIDERS[0].intent("a"))
    (tmp_path / "boxes" / box.id / "box.json").write_text("{", encoding="utf-8")

    (listed,) = await here.list_boxes()

    assert (listed.id, listed.state, listed.mark) == (box.id, BoxState.BROKEN, None)


# Machines of the owner's


@pytest.fixture
def lent(tmp_path: Path) -> own.OwnConnector:
    return own.connect(setting(tmp_path, "own"))


async def test_a_machine_is_lent_to_one_lease_at_a_time(lent: own.OwnConnector) -> None:
    first = PROVIDERS[1].intent("a")
    second = PROVIDERS[1].intent("z").model_copy(update={"address": first.address})
    box = await lent.create(first)

    with pytest.raises(BoxTaken, match=f"is lent to {first.mark}"):
        await lent.create(second)
    assert await lent.list_boxes() == [box]

    await lent.destroy(permit_for(box, first))
    assert (await lent.create(second)).mark == second.mark


async def test_a_machine_must_be_named(lent: own.OwnConnector) -> None:
    unnamed = lease(LeaseState.INTENDED, lease_id=LeaseId("own-a"), provider="own")

    with pytest.raises(BadRequest, match="no machine was named") as told:
        await lent.create(unnamed)

    assert "gpu-tenant adopt" in told.value.remedy


@pytest.mark.parametrize("content", ["", "{", json.dumps({"provider": "own"})])
async def test_a_card_that_cannot_be_read_is_trouble_and_not_absence(
    lent: own.OwnConnector, tmp_path: Path, content: str
) -> None:
    await lent.create(PROVIDERS[1].intent("a"))
    (card,) = (tmp_path / "lent").iterdir()
    card.write_text(content, encoding="utf-8")

    with pytest.raises(ProviderTrouble, match="does not say which machine is lent"):
        await lent.list_boxes()


async def test_a_name_of_any_kind_is_one_card(lent: own.OwnConnector, tmp_path: Path) -> None:
    odd = "../../me@[fe80::1%25eth0]:22"
    intent = PROVIDERS[1].intent("a").model_copy(update={"address": SshAddress(target=odd)})

    box = await lent.create(intent)

    assert await lent.list_boxes() == [box]
    assert [path.parent for path in tmp_path.rglob("*.json")] == [tmp_path / "lent"]
