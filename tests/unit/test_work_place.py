"""A lease's directory goes to the place that outlives the most, where the box really has it, and stays there."""

import json
import os
from datetime import UTC, datetime
from decimal import Decimal
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from arranged import LEASE, NOON, active, lease, quote
from contract.staged import PROFILES

from box_scripts.caretaker.mounts import Outliving
from box_scripts.caretaker.survey import Survey
from gpu_tenant.box.caretaker import Caretaker
from gpu_tenant.box.ownership import settle_place
from gpu_tenant.box.session import Session
from gpu_tenant.domain.model import Lease, SshAddress, WorkPlace
from gpu_tenant.domain.policy import rules_of
from gpu_tenant.domain.protection import way_out
from gpu_tenant.domain.survival import accounted_paths, kept_words, stop_keeps
from gpu_tenant.files.skill_files import script
from gpu_tenant.ledger import Ledger
from gpu_tenant.transports.local import LocalTransport

ORDER = ("no", "unknown", "yes")
WITH_A_PLACE = sorted(slug for slug, profile in PROFILES.items() if profile.work_places)
ON_THE_VOLUME = WorkPlace(path="/workspace", at="/workspace")
AT_HOME = WorkPlace(path="~", why="/workspace: no disk is mounted there")


def at(provider: str, place: WorkPlace | None = None) -> Lease:
    far = SshAddress(target="root@203.0.113.7:40022")
    return lease(provider=provider, address=far).model_copy(update={"place": place})


@pytest.fixture
def occupancy() -> ModuleType:
    """The script, as a module."""
    spec = spec_from_file_location("occupancy_on_a_box", script("occupancy.py"))
    assert spec is not None
    assert spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


# The facts


@pytest.mark.parametrize("provider", WITH_A_PLACE)
def test_a_better_place_is_the_boxs_own_and_loses_nothing_that_the_home_keeps(
    provider: str,
) -> None:
    profile = PROFILES[provider]
    places = {place.path: place.survives for place in profile.places}

    for path in profile.work_places:
        # What outlives the box is the account's, and other boxes may see it.
        assert places[path]["destroy"] == "no"
        for event in ("reboot", "park", "host_loss", "preempt"):
            if "n/a" not in (places[path][event], places["~"][event]):
                assert ORDER.index(places[path][event]) >= ORDER.index(places["~"][event]), event


# What the box has


MOUNTS = r"""
22 1 0:50 / / rw,relatime - overlay overlay rw
30 22 259:1 /pods/x /workspace rw,relatime - ext4 /dev/nvme0n1 rw
31 22 0:61 / /work\040shared rw,relatime - fuse.mfs mfs#eu-1 rw
32 22 0:62 / /twice rw - tmpfs tmpfs rw
33 22 259:2 / /twice rw - xfs /dev/nvme1n1 rw
"""


@pytest.mark.parametrize(
    ("place", "system"),
    [
        ("/workspace", "ext4"),
        ("/workspace/below", None),
        ("/root", None),
        ("/work shared", "fuse.mfs"),
        ("/twice", "xfs"),
    ],
)
def test_only_what_is_mounted_at_that_very_place_counts(
    occupancy: ModuleType, place: str, system: str | None
) -> None:
    assert occupancy.mounted_at(place, MOUNTS) == system


@pytest.mark.parametrize("system", ["nfs4", "fuse.mfs", "ceph", "cifs", "lustre"])
def test_a_disk_that_other_boxes_may_share_is_no_place_for_a_mark(
    occupancy: ModuleType, system: str
) -> None:
    assert occupancy.SHARED(system)


def test_a_directory_that_is_no_disk_and_a_link_to_elsewhere_are_refused_by_name(
    occupancy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    plain, link, missing = (str(tmp_path / name) for name in ("plain", "link", "missing"))
    Path(plain).mkdir()
    Path(link).symlink_to(plain)

    found = occupancy.usable([missing, link, plain], rehearsed=False)

    assert found["path"] == ""
    assert f"{missing}: it is not there" in found["why"]
    assert f"{link}: it is a link to {plain}" in found["why"]
    assert f"{plain}: no disk is mounted there" in found["why"]


def test_a_rehearsal_takes_no_real_path_for_a_place(
    occupancy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / ".rehearsal.json").write_text(json.dumps({"places": {}}), encoding="utf-8")
    monkeypatch.setenv("HOME", str(home))

    assert occupancy.usable(["/"], rehearsed=True) == {
        "path": "",
        "at": "",
        "why": "/: this rehearsal has none",
    }


async def settled(ledger: Ledger, home: Path) -> Lease:
    home.mkdir(exist_ok=True)
    found, transport = ledger.lease(LEASE), LocalTransport(home)
    profile = PROFILES["runpod"]
    caretaker = Caretaker(found, transport, script("caretaker.py"))
    return await settle_place(Session(found, profile, transport, caretaker), ledger=ledger)


async def test_a_place_that_cannot_be_used_is_said_and_the_home_is_used(
    ledger: Ledger, tmp_path: Path
) -> None:
    active(ledger)

    found = await settled(ledger, tmp_path / "home")

    assert found.directory == f"gpu-tenant/{LEASE}"
    assert found.place is not None
    assert found.place.path == "~"
    assert found.place.why is not None
    assert found.place.why.startswith("/workspace: ")
    assert ledger.events(LEASE)[-1].kind == "placed"


async def test_a_file_that_anybody_on_a_real_box_can_write_makes_no_place(
    ledger: Ledger, tmp_path: Path
) -> None:
    active(ledger)
    trap = tmp_path / "trap"
    trap.mkdir()
    (tmp_path / "home").mkdir()
    said = {"places": {"/workspace": str(trap)}}
    (tmp_path / "home" / ".rehearsal.json").write_text(json.dumps(said), encoding="utf-8")

    found = await settled(ledger, tmp_path / "home")

    assert found.place is not None
    assert found.place.path == "~", "a stop would empty that directory"


async def test_a_place_is_settled_once(ledger: Ledger, tmp_path: Path) -> None:
    active(ledger)
    ledger.note_place(LEASE, ON_THE_VOLUME, at=NOON)

    found = await settled(ledger, tmp_path / "home")
    again = ledger.note_place(LEASE, AT_HOME, at=NOON)

    assert found.place == again.place == ON_THE_VOLUME
    assert found.work_directory == f"/workspace/gpu-tenant/{LEASE}/work"
    assert [line.kind for line in ledger.events(LEASE)].count("placed") == 1


# What follows the place


def test_paths_are_named_as_a_pattern_would_wherever_the_directory_is() -> None:
    inner = f"gpu-tenant/{LEASE}/work/out/a.pt"

    for place, real in ((None, "/root"), (ON_THE_VOLUME, "/workspace")):
        assert at("runpod", place).from_work(f"{real}/{inner}") == "out/a.pt"


def test_both_places_are_accounted_for_as_the_box_reaches_them() -> None:
    there = WorkPlace(path="/workspace", at="../disk-workspace")

    assert accounted_paths(PROFILES["runpod"], at("runpod", there)) == ("~", "../disk-workspace")
    assert accounted_paths(PROFILES["runpod"], at("runpod", AT_HOME)) == ("~", "/workspace")


def test_another_lease_is_found_in_whichever_place_it_stands(
    occupancy: ModuleType, tmp_path: Path
) -> None:
    old = tmp_path / "home/gpu-tenant"
    request = {
        "lease": "runpod-new",
        "deployment": "aaaaaa",
        "nonce": "n",
        "known": False,
        "first": True,
        "directory": False,
        "until": datetime.now(UTC).timestamp() + 60,  # noqa: TID251 - the script goes by it
        "lapse_s": 60,
        "beside": [str(old)],
    }
    before = {**request, "lease": "runpod-old", "deployment": "bbbbbb", "beside": []}
    assert occupancy.marked(str(old / "runpod-old/caretaker"), before)["state"] == "put"

    said = occupancy.marked(str(tmp_path / "disk/gpu-tenant/runpod-new/caretaker"), request)

    assert said["state"] == "taken"
    assert said["others"][0]["lease"] == "runpod-old"


def test_whoever_looks_in_the_login_home_alone_finds_the_lease_too(
    occupancy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one who has adopted the box by its address does, and every earlier version."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    there = tmp_path / "disk/gpu-tenant/runpod-new/caretaker"
    stands = {
        "lease": "runpod-new",
        "deployment": "aaaaaa",
        "nonce": "n",
        "known": False,
        "first": True,
        "directory": False,
        "until": datetime.now(UTC).timestamp() + 60,  # noqa: TID251 - the script goes by it
        "lapse_s": 60,
    }
    mark = occupancy.marked(str(there), stands)
    look = {"roots": [str(tmp_path)], "since_ns": 1, "scope": "none"}
    assert occupancy.looked(str(there), mark, look)["files"] == 0

    by_address = {**stands, "lease": "own-abcd", "deployment": "bbbbbb"}
    at = str(tmp_path / "home/gpu-tenant/own-abcd/caretaker")
    assert occupancy.marked(at, by_address)["others"][0]["lease"] == "runpod-new"

    occupancy.left(str(there))
    assert occupancy.marked(at, by_address)["state"] == "put"


def test_what_a_start_writes_into_an_emptied_home_is_quiet_and_nothing_else_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    keys, notes = tmp_path / ".ssh/authorized_keys", tmp_path / "notes.txt"
    keys.parent.mkdir()
    for file in (keys, notes):
        file.write_text("x", encoding="utf-8")
    written_ns = keys.stat().st_ctime_ns

    def seen(restarted_ns: int | None) -> set[str]:
        found = Survey(os.fsencode(tmp_path / "work"), set(), 1, [])
        found.before(1, ["~/.ssh/authorized_keys"], str(tmp_path))
        found.launched_ns, found.restarted_ns = 1, restarted_ns
        found.walk(os.fsencode(tmp_path), True)
        return {Path(at).name for at, _, _ in found.written}

    assert seen(None) == {"authorized_keys", "notes.txt"}
    assert seen(written_ns - 60 * 10**9) == {"notes.txt"}
    assert seen(written_ns - 600 * 10**9) == {"authorized_keys", "notes.txt"}


@pytest.mark.parametrize(
    ("now", "outlives"),
    [
        ("30 22 259:1 /pods/x /workspace rw - ext4 /dev/nvme0n1 rw", {"work/model", "notes"}),
        ("", set()),  # the box came back without the disk
        ("32 22 0:62 / /workspace rw - tmpfs tmpfs rw", set()),
        (
            (
                "30 22 259:1 /pods/x /workspace rw - ext4 /dev/nvme0n1 rw\n"
                "33 30 0:63 / /workspace/work rw - tmpfs tmpfs rw"
            ),
            {"notes"},
        ),
    ],
)
def test_a_directory_outlives_a_stop_only_while_the_platform_s_disk_is_mounted_there(
    now: str, outlives: set[str]
) -> None:
    mounts = f"22 1 0:50 / / rw,relatime - overlay overlay rw\n{now}\n"

    kept = Outliving([b"/workspace"], [b"/workspace"], mounts)

    files = ("work/model", "notes")
    assert {name for name in files if kept.has(os.fsencode(f"/workspace/{name}"))} == outlives
    assert not kept.has(b"/root/notes")


# What each verb keeps


@pytest.mark.parametrize(
    ("provider", "place", "words"),
    [
        (
            "runpod",
            ON_THE_VOLUME,
            (
                "park keeps /workspace at 0.02 USD/h, and is refused while work lies elsewhere; "
                "teardown keeps nothing"
            ),
        ),
        (
            "runpod",
            AT_HOME,
            (
                "park keeps nothing for certain (/workspace: no disk is mounted there), and is refused once the box "
                "was used; teardown keeps nothing"
            ),
        ),
        ("vastai", None, "park keeps every disk at 0.02 USD/h; teardown keeps nothing"),
        ("lambda_cloud", None, "park is not possible there; teardown keeps nothing"),
        (
            "featurize",
            None,
            "park is not possible there; teardown keeps only /home/featurize/work",
        ),
    ],
)
def test_what_each_verb_keeps_of_this_very_box_is_one_line(
    provider: str, place: WorkPlace | None, words: str
) -> None:
    made = at(provider, place).model_copy(update={"quote": quote()})
    price = made.quote.offer.price.model_copy(update={"parked_usd_h": Decimal("0.02")})  # type: ignore[union-attr]
    offer = made.quote.offer.model_copy(update={"price": price})  # type: ignore[union-attr]
    made = made.model_copy(update={"quote": made.quote.model_copy(update={"offer": offer})})  # type: ignore[union-attr]

    assert kept_words(PROFILES[provider], made) == words
    assert f"what is kept: {words}" in rules_of(made, PROFILES[provider])


RENTED = [
    "runpod",
    "vastai",
    "lambda_cloud",
    "digitalocean",
    "gcp",
    "paperspace",
    "autodl",
    "gpushare",
    "matpool",
    "featurize",
    "lanrui",
]
"""The platforms that rent a box out by the hour."""


PAGE = Path(__file__).resolve().parents[2] / "mcp_server/decisions/ownership.md"
KEPT = {"all": "every disk", "work": "the work", "nothing": "nothing"}


def rows(table: dict[str, tuple[str, bool]]) -> list[str]:
    """The same as the page has it."""
    made = []
    for slug, (kept, ends) in table.items():
        profile = PROFILES[slug]
        keeps = "no stop" if profile.park == "none" else KEPT[kept]
        timer = (
            "its platform's timer" if profile.provider_timer == "stop" and slug == "gcp" else "no"
        )
        place = (*profile.work_places, "~")[0]
        made.append(f"| {profile.title} | `{place}` | {keeps} | {'yes' if ends else timer} |")
    return made


def best(provider: str) -> Lease:
    """A used lease there, where the box is as its platform documents it."""
    first = (*PROFILES[provider].work_places, None)[0]
    return at(provider, WorkPlace(path=first, at=first) if first else None)


def test_used_boxes_can_be_parked_or_end_their_own_meter_at_most_rented_platforms_that_stop() -> (
    None
):
    table = {
        slug: (stop_keeps(PROFILES[slug], best(slug)), bool(way_out(PROFILES[slug], best(slug))))
        for slug in RENTED
    }

    assert table == {
        "runpod": ("work", True),
        "vastai": ("all", True),
        "lambda_cloud": ("nothing", False),
        "digitalocean": ("nothing", False),
        "gcp": ("work", False),  # its guard is told by the offer; its platform's timer stops it
        "paperspace": ("all", False),
        "autodl": ("all", True),
        "gpushare": ("nothing", False),
        "matpool": ("nothing", False),
        "featurize": ("nothing", False),
        "lanrui": ("work", False),
    }
    before = {
        slug
        for slug, profile in PROFILES.items()
        if slug in RENTED and stop_keeps(profile, at(slug, WorkPlace(path="~"))) == "all"
    }
    assert before == {"vastai", "autodl", "paperspace"}
    assert set(rows(table)) <= set(PAGE.read_text(encoding="utf-8").splitlines())
    assert sum(kept != "nothing" or ends for kept, ends in table.values()) == 6
