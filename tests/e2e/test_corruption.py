"""However a copy, a box or a record is spoiled, and whoever asks: no box with unverified bytes is destroyed."""

import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from itertools import cycle
from pathlib import Path

import pytest
from e2e.asking import (
    Entry,
    a_waiver_of_another_loss,
    the_command,
    the_tool,
    the_tool_signed_too_late,
    the_tool_that_signs_for_itself,
    the_verb,
    the_verb_after_a_forged_permit,
    the_verb_after_a_look,
)
from e2e.damage import (
    DAMAGES,
    Spoil,
    all_gone,
    become_a_directory,
    become_a_link_to_a_copy,
    claimed_in_vain,
    collected_after,
    cut_by_one,
    cut_to,
    everything_lost,
    flip_at,
    flip_behind_the_clock,
    grow,
    here,
    kept_is_empty,
    kept_is_gone,
    kept_is_the_box_itself,
    link_here_is_a_copy,
    link_here_points_elsewhere,
    linked,
    log_here_is_cut,
    log_there_grew,
    nothing,
    open_for_writing,
    pipe_among_artifacts,
    pushed_file_edited,
    ran_again,
    record_garbled,
    record_lost,
    records_lost,
    rename,
    renamed_away,
    running,
    there,
    two_swapped,
    written,
)
from e2e.leased import (
    HOSTILE,
    LINK,
    OPAQUE,
    PLAIN,
    Destroys,
    Leased,
    Stage,
    Stages,
    command,
    escaped,
)
from signed import signs_as_told

from gpu_tenant.domain.model import LeaseState
from gpu_tenant.domain.seal import SealedFile
from gpu_tenant.files.hash_cache import HashCache


@dataclass(frozen=True)
class Case:
    """What is spoiled, by whom the teardown is asked for, and what mends it."""

    name: str
    spoil: Spoil
    entry: Entry
    stage: Stage = "collected"
    code: str = "UNVERIFIED"
    mends: tuple[str, ...] | None = ("collect",)
    chosen: bool = True
    """Whether the suite tries it; `make torture` tries them all."""


# The matrix


def cases() -> Iterator[Case]:
    for number, file in enumerate((*PLAIN, OPAQUE)):
        for turn, (words, damage) in enumerate(DAMAGES.items()):
            # Each damage is tried and mended at one file, and each file meets one or two.
            chosen = turn % (len(PLAIN) + 1) == number
            mends = ("collect",) if chosen else None
            yield Case(
                f"{file} here {words}", here(file, damage), the_verb, mends=mends, chosen=chosen
            )
    for number, raw in enumerate(HOSTILE):
        name, shown = os.fsdecode(raw), escaped(raw)[:20]
        for turn, (words, spoil, mends) in enumerate(
            (
                ("here is missing", here(name, Path.unlink), ("collect",)),
                ("here is cut", here(name, cut_by_one), None),
                ("here is a link", here(name, become_a_link_to_a_copy), None),
                ("there grew", there(name, grow), ("collect",)),
            )
        ):
            chosen = turn == number % 4
            yield Case(f"{shown} {words}", spoil, the_verb, mends=mends, chosen=chosen)
    yield Case("the link here is missing", here(LINK, Path.unlink), the_verb)
    for spoil in (
        link_here_points_elsewhere,
        link_here_is_a_copy,
        log_here_is_cut,
        kept_is_gone,
        kept_is_empty,
    ):
        yield Case(spoil.__name__, spoil, the_verb)
    yield Case(
        "kept_is_the_box_itself",
        kept_is_the_box_itself,
        the_verb,
        mends=("collect", "--to", "{to}"),
    )
    yield from on_the_box_after_collect()
    yield from before_collect()
    yield from entries()


def on_the_box_after_collect() -> Iterator[Case]:
    keep_at_work = ("collect", "--artifact", "*.bin")
    for words, spoil, mends in (
        ("changed", there(OPAQUE, flip_at(0.5)), ("collect",)),
        ("changed under its old time", there(OPAQUE, flip_behind_the_clock), ("collect",)),
        ("grew", there(OPAQUE, grow), ("collect",)),
        ("was cut", there(OPAQUE, cut_by_one), ("collect",)),
        ("was emptied", there(OPAQUE, cut_to(0)), ("collect",)),
        ("was deleted", there(OPAQUE, Path.unlink), ("collect",)),
        ("was renamed", there(OPAQUE, rename), ("collect",)),
        ("was moved out of the artifacts", renamed_away, keep_at_work),
        ("became a link to another", linked(OPAQUE, "plot.png"), ("collect",)),
        ("became a link out of the tree", linked(OPAQUE, "/etc/hostname"), ("collect",)),
        ("became a dangling link", linked(OPAQUE, "nowhere"), ("collect",)),
        ("became a directory", there(OPAQUE, become_a_directory), ("collect",)),
        ("a checkpoint was cut", there("state_dict.safetensors", cut_to(0.5)), ("collect",)),
        ("all artifacts were deleted", all_gone, ("collect",)),
        ("two were swapped", two_swapped, ("collect",)),
        ("the link turned", linked(LINK, "plot.png"), ("collect",)),
        ("a new artifact", written("out", "more.bin"), ("collect",)),
        ("a new unclaimed file", written("work", "more.bin"), keep_at_work),
        ("a new unclaimed hidden file", written("work", ".more.bin"), keep_at_work),
        ("a new file at home", written("login", "n.bin"), ("collect", "--discard", "~/n.bin")),
        ("a pushed file was edited", pushed_file_edited, ("collect", "--discard", "made/*.json")),
        ("the log grew", log_there_grew, ("collect",)),
        ("a record was lost", record_lost, None),
        ("a record was garbled", record_garbled, None),
        ("all records were lost", records_lost, None),
        ("everything of the lease was lost", everything_lost, None),
        ("a file is open for writing", open_for_writing, ()),
        ("a job runs", running("sleep 600"), ("collect",)),
        ("a job runs in the background", running("sleep 600 & echo"), ("collect",)),
        ("a job ran again", ran_again, ("collect",)),
    ):
        yield Case(f"on the box {words}", spoil, the_verb, mends=mends)


def before_collect() -> Iterator[Case]:
    yield Case("never collected", nothing, the_verb, "finished")


def entries() -> Iterator[Case]:
    spoils: dict[str, Spoil] = {
        "missing here": here("state_dict.pt", Path.unlink),
        "wrong here": here("array.npy", flip_at(0.5)),
        "cut here": here("results.json", cut_by_one),
        "a link here": here("plot.png", become_a_link_to_a_copy),
        "changed there": there(OPAQUE, flip_at(0.5)),
        "new there": written("out", "more.bin"),
        "all gone here": kept_is_gone,
    }
    askers: dict[str, tuple[Entry, Stage, str]] = {
        "the command": (the_command, "collected", "UNVERIFIED"),
        "the tool": (the_tool, "collected", "UNVERIFIED"),
        "the tool that signs for itself": (
            the_tool_that_signs_for_itself,
            "collected",
            "SIGNATURE_WANTED",
        ),
        "the tool, signed too late": (the_tool_signed_too_late, "collected", "SIGNATURE_WANTED"),
        "a waiver of another loss": (a_waiver_of_another_loss, "collected", "SIGNATURE_WANTED"),
        "the verb after a look": (the_verb_after_a_look, "collected", "UNVERIFIED"),
        "the verb after a forged permit": (
            the_verb_after_a_forged_permit,
            "collected",
            "UNVERIFIED",
        ),
        "the verb after a crash": (the_verb_after_a_look, "cut short", "UNVERIFIED"),
        "the command after a crash": (the_command, "cut short", "UNVERIFIED"),
        "the tool after a crash": (the_tool, "cut short", "UNVERIFIED"),
        "a waiver of another loss after a crash": (
            a_waiver_of_another_loss,
            "cut short",
            "SIGNATURE_WANTED",
        ),
    }
    for number, (who, (entry, stage, code)) in enumerate(askers.items()):
        for turn, (words, spoil) in enumerate(spoils.items()):
            # A lease whose teardown was cut short must be able to collect again.
            mends = ("collect",) if stage == "cut short" and entry is the_command else None
            # Whoever asks meets one kind, and each kind meets one or two who ask.
            chosen = turn == number % len(spoils)
            yield Case(f"{who}, {words}", spoil, entry, stage, code, mends=mends, chosen=chosen)


CASES = tuple(cases())
TRIED = [case for case in CASES if os.environ.get("GPU_TENANT_TORTURE") or case.chosen]
"""Every kind of damage, every file and everybody who asks, and of the grids only a part."""


@dataclass
class Tally:
    """What the matrix came to."""

    refused: int = 0
    mended: int = 0


@pytest.fixture(scope="module")
def tally() -> Tally:
    return Tally()


@pytest.fixture(scope="module")
def destroys() -> Iterator[Destroys]:
    with pytest.MonkeyPatch.context() as patch:
        destroyed = Destroys()
        destroyed.watch(patch)
        yield destroyed


@pytest.fixture(scope="module")
def stages(destroys: Destroys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stages]:
    root = tmp_path_factory.mktemp("corruption")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPU_TENANT_HOME", os.fspath(root / "state"))
        # A version manager's shims would triple the time of every question to the caretaker.
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        stages = Stages(root, destroys)
        stages.live()
        yield stages
        stages.lease.end_processes()


@pytest.mark.parametrize("case", TRIED, ids=lambda case: case.name)
def test_what_is_not_verified_is_not_destroyed(
    case: Case, stages: Stages, destroys: Destroys, tally: Tally
) -> None:
    lease = stages.at(case.stage)
    destroys.grounds.clear()
    with lease.meanwhile:
        case.spoil(lease)
        state, box = lease.stands()[0], lease.on_the_box()

        told = case.entry(lease)

        assert told.code == case.code, told
        assert re.search(r"`(gpu-tenant |[a-z_]+\()", told.remedy), "the next command, or tool"
        assert lease.stands()[0] is state
        box_now = lease.on_the_box()
        assert {path: box_now.get(path) for path in box} == box
        assert destroys.grounds == []
        tally.refused += 1
    if case.mends is not None:
        follow(lease, case)
        assert destroys.grounds == ["verified"]
        tally.mended += 1


def follow(lease: Leased, case: Case) -> None:
    """The way out that the refusal named leads to a receipt: no refusal is a trap."""
    if case.mends:
        verb, *words = case.mends
        words = [word.format(to=lease.state.parent / "other") for word in words]
        status, _, err = command(verb, lease.id, *words)
        if status and "SIGNATURE_WANTED" in err:
            signs_as_told(err, lease.state)
            status, _, err = command(verb, lease.id, *words)
        assert status == 0, err
    status, _, err = command("teardown", lease.id)
    assert status == 0, err
    assert lease.stands()[0] is LeaseState.GONE
    assert not lease.login.exists()


def test_a_copy_that_rotted_behind_its_times_is_refused_and_then_fetched_again(
    stages: Stages,
) -> None:
    lease = stages.at("collected")
    copy, original = lease.here / "results.json", lease.out / "results.json"
    flip_at(0.5)(copy)
    os.utime(copy, (1, 1))
    rotted = SealedFile(
        name="work/out/results.json",
        at="",
        kind="file",
        role="artifact",
        mtime_ns=1_000_000_000,
        size_bytes=copy.stat().st_size,
        sha256=sha256(original.read_bytes()).hexdigest(),
    )
    known = HashCache.of(lease.kept)
    known.note([rotted])
    known.save()

    believed = command("collect", lease.id)[0], copy.read_bytes() == original.read_bytes()
    refused = command("teardown", lease.id)[0]
    mended = command("collect", lease.id)[0], copy.read_bytes() == original.read_bytes()

    assert believed == (0, False), "a disk that changes bytes changes no times"
    assert refused == 3
    assert mended == (0, True)


LAWLESS = {
    "terminating without a permit": "UPDATE leases SET state='terminating'",
    "gone without a permit": "UPDATE leases SET state='gone'",
    "gone without a receipt": "INSERT INTO permits(lease_id, box_id, ground, detail, at)"
    " SELECT id, id, 'verified', '{}', '' FROM leases; UPDATE leases SET state='terminating';"
    " UPDATE leases SET state='gone'",
    "never used after all": "INSERT INTO permits(lease_id, box_id, ground, detail, at)"
    " SELECT id, id, 'never_used', '{}', '' FROM leases",
    "untouched after all": "UPDATE leases SET touched_at=NULL",
    "on another box": "UPDATE leases SET box_id='another'",
    "back to the start": "UPDATE leases SET state='intended'",
    "deleted": "DELETE FROM leases",
    "replaced": "INSERT OR REPLACE INTO leases(id, provider, state, terms, created_at)"
    " SELECT id, provider, 'intended', terms, created_at FROM leases",
    "a receipt nobody saw": "INSERT INTO receipts(lease_id, record, at) SELECT id, '{}', '' FROM leases",
}


@pytest.mark.parametrize("name", LAWLESS)
def test_the_ledger_refuses_what_the_law_forbids_even_to_sql(
    name: str, stages: Stages, tally: Tally
) -> None:
    lease = stages.at("collected")

    with (
        closing(sqlite3.connect(lease.state / "ledger.sqlite3", isolation_level=None)) as db,
        pytest.raises(sqlite3.IntegrityError, match="law:"),
    ):
        db.executescript(LAWLESS[name])

    assert lease.login.exists()
    tally.refused += 1


def test_an_unspoiled_lease_is_verified_and_destroyed(stages: Stages, destroys: Destroys) -> None:
    """The matrix itself: it is the damage that is refused, and nothing else."""
    for stage in ("collected", "cut short"):
        lease = stages.at(stage)
        destroys.grounds.clear()

        status, out, err = command("teardown", lease.id)

        assert (status, err) == (0, "")
        assert out.startswith(f"receipt for {lease.id}: gone")
        assert destroys.grounds == ["verified"]


AS_BAD_THERE: dict[str, Spoil] = {
    **{
        f"{file} was cut to {share:.0%}": there(file, cut_to(share))
        for file, share in zip(PLAIN, cycle((0.5, 0.0)), strict=False)
    },
    "an artifact never appeared": claimed_in_vain,
    "a pipe": pipe_among_artifacts,
    "a link to nothing": linked("latest", "checkpoint-400"),
    "a link out of the tree": linked("out", "/etc/hostname"),
    "a link to itself": linked("round", "round"),
}


@pytest.mark.parametrize("what", AS_BAD_THERE)
def test_what_is_as_bad_on_the_box_keeps_no_box(
    what: str, stages: Stages, destroys: Destroys
) -> None:
    lease = stages.at("finished")
    destroys.grounds.clear()
    collected_after(AS_BAD_THERE[what])(lease)

    status, _, err = command("teardown", lease.id)

    assert (status, err) == (0, "")
    assert destroys.grounds == ["verified"]


def test_the_matrix_is_as_large_as_promised(
    tally: Tally,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = [x for x in request.session.items if x.path == request.path and "[" in x.name]
    record_property("corruption_cases", tally.refused)
    with capsys.disabled():
        print(
            f"\n{tally.refused} corruption cases refused, {tally.mended} mended by the remedy,"
            " 0 destroyed unverified"
        )

    assert len(CASES) + len(LAWLESS) >= 200
    assert tally.refused == len([x for x in asked if "keeps_no_box" not in x.name])
