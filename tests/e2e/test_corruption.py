"""However a copy, a box or a record is spoiled, and whoever asks: no box with unverified bytes is destroyed."""

import asyncio
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from e2e.leased import (
    HOSTILE,
    LINK,
    OPAQUE,
    PLAIN,
    Destroys,
    Leased,
    Stage,
    Stages,
    Told,
    command,
    escaped,
)
from mcp import Client
from mcp.types import ElicitRequestParams, ElicitResult

from gpu_tenant.errors import TenantError
from gpu_tenant.model import LeaseState
from gpu_tenant.server import make_server
from gpu_tenant.service import Tenancy

Spoil = Callable[[Leased], object]
Entry = Callable[[Leased], Told]
Damage = Callable[[Path], object]

EXIT_REFUSED = 3


@dataclass(frozen=True)
class Case:
    """What is spoiled, by whom the teardown is asked for, and what mends it."""

    name: str
    spoil: Spoil
    entry: Entry
    stage: Stage = "collected"
    code: str = "UNVERIFIED"
    mends: tuple[str, ...] | None = ("collect",)


# What happens to a file


def cut_to(share: float) -> Damage:
    return lambda path: os.truncate(path, int(path.stat().st_size * share))


def cut_by_one(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def flip_at(share: float) -> Damage:
    def flip(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[min(int(len(content) * share), len(content) - 1)] ^= 0x10
        path.write_bytes(content)

    return flip


def flip_behind_the_clock(path: Path) -> None:
    """The bytes differ; the size and the modification time say that nothing happened."""
    before = path.stat()
    flip_at(0.5)(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\n")


def become_another(path: Path) -> None:
    other = "plot.png" if path.name != "plot.png" else OPAQUE
    shutil.copyfile(path.with_name(other), path)


def become_a_link_to_a_copy(path: Path) -> None:
    elsewhere = path.parents[6] / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def become_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def become_a_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def rename(path: Path) -> None:
    path.rename(path.parent / "renamed")


DAMAGES: dict[str, Damage] = {
    "is missing": Path.unlink,
    "is empty": cut_to(0),
    "is cut in its head": cut_to(0.01),
    "is cut in half": cut_to(0.5),
    "lacks its last byte": cut_by_one,
    "has its first bit wrong": flip_at(0),
    "has a middle bit wrong": flip_at(0.5),
    "has its last bit wrong": flip_at(1),
    "has a bit wrong under its old time": flip_behind_the_clock,
    "has a byte too many": grow,
    "holds another file's bytes": become_another,
    "is a link to a good copy": become_a_link_to_a_copy,
    "is a directory": become_a_directory,
    "is a named pipe": become_a_pipe,
    "is renamed": rename,
}


def here(name: str, damage: Damage) -> Spoil:
    return lambda lease: damage(lease.here / name)


def there(name: str, damage: Damage) -> Spoil:
    return lambda lease: damage(lease.out / name)


def collected_after(spoil: Spoil) -> Spoil:
    """What is spoiled before the collect arrives here faithfully, hash for hash."""

    def both(lease: Leased) -> None:
        spoil(lease)
        lease.ask(lambda tenancy: tenancy.collect(lease.id))

    return both


# What happens to the directory here


def kept_is_gone(lease: Leased) -> None:
    lease.kept.rename(lease.state / "moved")


def kept_is_empty(lease: Leased) -> None:
    shutil.rmtree(lease.kept)
    lease.kept.mkdir()


def kept_is_the_box_itself(lease: Leased) -> None:
    """Every byte there is right, and would go with the box."""
    shutil.rmtree(lease.kept / "work")
    (lease.kept / "work").symlink_to(lease.work)


def link_here_points_elsewhere(lease: Leased) -> None:
    (lease.here / LINK).unlink()
    (lease.here / LINK).symlink_to("plot.png")


def link_here_is_a_copy(lease: Leased) -> None:
    (lease.here / LINK).unlink()
    shutil.copyfile(lease.here / "results.json", lease.here / LINK)


def log_here_is_cut(lease: Leased) -> None:
    cut_by_one(lease.kept / "log" / "job1.log")


# What happens on the box


def written(place: str, name: str, content: bytes = b"new") -> Spoil:
    return lambda lease: (getattr(lease, place) / name).write_bytes(content)


def linked(name: str, target: str) -> Spoil:
    def link(lease: Leased) -> None:
        (lease.out / name).unlink(missing_ok=True)
        (lease.out / name).symlink_to(target)

    return link


def pipe_among_artifacts(lease: Leased) -> None:
    os.mkfifo(lease.out / "pipe")


def two_swapped(lease: Leased) -> None:
    (lease.out / "-rf.json").rename(lease.out / "hand")
    (lease.out / "..x.json").rename(lease.out / "-rf.json")
    (lease.out / "hand").rename(lease.out / "..x.json")


def all_gone(lease: Leased) -> None:
    shutil.rmtree(lease.out)


def renamed_away(lease: Leased) -> None:
    (lease.out / OPAQUE).rename(lease.work / OPAQUE)


def pushed_file_edited(lease: Leased) -> None:
    grow(lease.work / "made" / "results.json")


def log_there_grew(lease: Leased) -> None:
    grow(lease.records / "jobs" / "job1" / "log")


def record_lost(lease: Leased) -> None:
    (lease.records / "since.json").unlink()


def record_garbled(lease: Leased) -> None:
    (lease.records / "jobs" / "job1" / "spec.json").write_text("{", encoding="utf-8")


def open_for_writing(lease: Leased) -> None:
    lease.meanwhile.enter_context((lease.out / OPAQUE).open("ab"))


def running(run: str) -> Spoil:
    """A job was started again, and lives until the teardown has been refused."""

    def start(lease: Leased) -> None:
        lease.ask(lambda tenancy: tenancy.launch_detached(lease.id, run, ["out/"]))
        lease.meanwhile.callback(
            lambda: lease.ask(lambda tenancy: tenancy.stop_job(lease.id, grace_s=5))
        )

    return start


def ran_again(lease: Leased) -> None:
    async def run(tenancy: Tenancy) -> None:
        await tenancy.launch_detached(lease.id, "echo more >> out/weights.bin", ["out/"])
        assert (await tenancy.monitor(lease.id, wait_s=30)).state == "finished"

    lease.ask(run)


def claimed_in_vain(lease: Leased) -> None:
    lease.ask(lambda tenancy: tenancy.collect(lease.id, artifacts=["never.pt"]))


def nothing(lease: Leased) -> None:
    """The lease is as its stage left it."""


# Who asks


def told_by(error: TenantError) -> Told:
    return Told(error.code, error.message, error.remedy)


def the_verb(lease: Leased) -> Told:
    with pytest.raises(TenantError) as refused:
        lease.ask(lambda tenancy: tenancy.verify_and_teardown(lease.id))
    return told_by(refused.value)


def the_command(lease: Leased) -> Told:
    status, out, err = command("teardown", lease.id)
    assert (status, out) == (EXIT_REFUSED, "")
    error, hint = err.splitlines()
    code, _, message = error.removeprefix("error: ").partition(": ")
    return Told(code, message, hint.removeprefix("hint: "))


def over_the_wire(lease: Leased, **options: Any) -> Told:
    async def once() -> str:
        spoken = {"on_refusal": "ask_owner"} if options else {}
        async with Client(make_server(), **options) as client:
            answer = await client.call_tool("verify_and_teardown", {"lease": lease.id, **spoken})
        assert answer.is_error
        return "".join(getattr(part, "text", "") for part in answer.content)

    code, _, rest = asyncio.run(once()).partition(": ")
    message, _, remedy = rest.rpartition("; ")
    return Told(code, message, remedy)


def the_tool(lease: Leased) -> Told:
    return over_the_wire(lease)


def the_tool_and_a_person_who_types(answer: str) -> Entry:
    async def answering(_: Any, params: ElicitRequestParams) -> ElicitResult:
        return ElicitResult(action="accept", content={"lease_id": answer})

    return lambda lease: over_the_wire(lease, elicitation_callback=answering)


def the_tool_while_the_loss_grows(lease: Leased) -> Told:
    """A person signs for what was shown, and by then there is more to lose."""

    async def answering(_: Any, params: ElicitRequestParams) -> ElicitResult:
        (lease.work / "meanwhile.bin").write_bytes(b"new")
        return ElicitResult(action="accept", content={"lease_id": lease.id})

    return over_the_wire(lease, elicitation_callback=answering)


def a_waiver_typed(typed: str) -> Entry:
    def sign(lease: Leased) -> Told:
        async def waive(tenancy: Tenancy) -> object:
            report = await tenancy.assess_loss(lease.id)
            return await tenancy.waive(
                lease.id, shown_digest=report.digest, typed=typed, signed_by="somebody"
            )

        with pytest.raises(TenantError) as refused:
            lease.ask(waive)
        return told_by(refused.value)

    return sign


def a_waiver_of_another_loss(lease: Leased) -> Told:
    async def waive(tenancy: Tenancy) -> object:
        return await tenancy.waive(
            lease.id, shown_digest="0" * 16, typed=lease.id, signed_by="somebody"
        )

    with pytest.raises(TenantError) as refused:
        lease.ask(waive)
    return told_by(refused.value)


def the_verb_after_a_look(lease: Leased) -> Told:
    """Listing leases settles them, and settling never destroys."""
    for _ in range(3):
        lease.ask(lambda tenancy: tenancy.list_leases("all"))
    return the_verb(lease)


def the_verb_after_a_forged_permit(lease: Leased) -> Told:
    """Somebody writes a permit into the file; it is proved anew, and never believed."""
    with sqlite3.connect(lease.state / "ledger.sqlite3") as db:
        db.execute(
            "INSERT INTO permits(lease_id, box_id, ground, detail, at)"
            " VALUES (?1, ?1, 'verified', '{}', '2026-11-20T12:00:00+00:00')",
            (lease.id,),
        )
    db.close()
    return the_verb_after_a_look(lease)


# The matrix


def cases() -> Iterator[Case]:
    for file in (*PLAIN, OPAQUE):
        for words, damage in DAMAGES.items():
            yield Case(f"{file} here {words}", here(file, damage), the_verb)
    for raw in HOSTILE:
        for words in ("is missing", "has a middle bit wrong", "is a link to a good copy"):
            yield Case(
                f"{escaped(raw)[:20]} here {words}", here(os.fsdecode(raw), DAMAGES[words]), the_verb
            )
        yield Case(f"{escaped(raw)[:20]} there grew", there(os.fsdecode(raw), grow), the_verb)
    yield Case("the link here is missing", here(LINK, Path.unlink), the_verb)
    for spoil in (
        link_here_points_elsewhere, link_here_is_a_copy, log_here_is_cut, kept_is_gone, kept_is_empty,
    ):  # fmt: skip
        yield Case(spoil.__name__, spoil, the_verb)
    yield Case(
        "kept_is_the_box_itself", kept_is_the_box_itself, the_verb, mends=("collect", "--to", "{to}")
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
        ("became a link out of the tree", linked(OPAQUE, "/etc/hostname"), None),
        ("became a dangling link", linked(OPAQUE, "nowhere"), None),
        ("became a directory", there(OPAQUE, become_a_directory), ("collect",)),
        ("a checkpoint was cut", there("state_dict.safetensors", cut_to(0.5)), None),
        ("all artifacts were deleted", all_gone, None),
        ("two were swapped", two_swapped, ("collect",)),
        ("the link turned", linked(LINK, "plot.png"), ("collect",)),
        ("a new artifact", written("out", "more.bin"), ("collect",)),
        ("a new pipe", pipe_among_artifacts, None),
        ("a new unclaimed file", written("work", "more.bin"), keep_at_work),
        ("a new unclaimed hidden file", written("work", ".more.bin"), keep_at_work),
        ("a new file at home", written("login", "n.bin"), ("collect", "--discard", "~/n.bin")),
        ("a pushed file was edited", pushed_file_edited, ("collect", "--discard", "made/*.json")),
        ("the log grew", log_there_grew, ("collect",)),
        ("a record was lost", record_lost, None),
        ("a record was garbled", record_garbled, None),
        ("a file is open for writing", open_for_writing, ()),
        ("a job runs", running("sleep 600"), ("collect",)),
        ("a job runs in the background", running("sleep 600 & echo"), ("collect",)),
        ("a job ran again", ran_again, ("collect",)),
    ):
        yield Case(f"on the box {words}", spoil, the_verb, mends=mends)


def before_collect() -> Iterator[Case]:
    for file in PLAIN:
        for words, share in (("cut in half", 0.5), ("empty", 0.0)):
            if (file, words) != ("log.jsonl", "empty"):
                yield Case(
                    f"{file} was {words} when it was collected",
                    collected_after(there(file, cut_to(share))), the_verb, "finished", mends=None,
                )  # fmt: skip
    yield Case("never collected", nothing, the_verb, "finished")
    yield Case("claimed in vain", collected_after(claimed_in_vain), the_verb, "finished", mends=None)
    yield Case(
        "collected with unclaimed bytes",
        collected_after(written("work", "more.bin")), the_verb, "finished",
        mends=("collect", "--discard", "more.bin"),
    )  # fmt: skip


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
        "the tool, wrongly signed": (the_tool_and_a_person_who_types("yes"), "collected", "REFUSED"),
        "the tool, signed too late": (the_tool_while_the_loss_grows, "collected", "REFUSED"),
        "a waiver wrongly typed": (a_waiver_typed("yes"), "collected", "REFUSED"),
        "a waiver not typed": (a_waiver_typed(""), "collected", "REFUSED"),
        "a waiver of another loss": (a_waiver_of_another_loss, "collected", "REFUSED"),
        "the verb after a look": (the_verb_after_a_look, "collected", "UNVERIFIED"),
        "the verb after a forged permit": (the_verb_after_a_forged_permit, "collected", "UNVERIFIED"),
        "the verb after a crash": (the_verb_after_a_look, "cut short", "UNVERIFIED"),
        "the command after a crash": (the_command, "cut short", "UNVERIFIED"),
        "the tool after a crash": (the_tool, "cut short", "UNVERIFIED"),
        "a waiver of another loss after a crash": (a_waiver_of_another_loss, "cut short", "REFUSED"),
    }  # fmt: skip
    for who, (entry, stage, code) in askers.items():
        for words, spoil in spoils.items():
            late = entry is the_tool_while_the_loss_grows
            yield Case(
                f"{who}, {words}", spoil, entry, stage, code,
                mends=("collect", "--artifact", "meanwhile.bin") if late else ("collect",),
            )  # fmt: skip


CASES = tuple(cases())


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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
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
        assert f"gpu-tenant" in told.remedy
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
        words = [word.format(to=lease.state / "other") for word in words]
        status, _, err = command(verb, lease.id, *words)
        assert status == 0, err
    status, _, err = command("teardown", lease.id)
    assert status == 0, err
    assert lease.stands()[0] is LeaseState.GONE
    assert not lease.login.exists()


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
    db = sqlite3.connect(lease.state / "ledger.sqlite3", isolation_level=None)

    with pytest.raises(sqlite3.IntegrityError, match="law:"):
        for statement in LAWLESS[name].split(";"):
            db.execute(statement)

    db.close()
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


def test_the_matrix_is_as_large_as_promised(
    tally: Tally,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = [item for item in request.session.items if item.path == request.path][:-2]
    record_property("corruption_cases", tally.refused)
    with capsys.disabled():
        print(
            f"\n{tally.refused} corruption cases refused, {tally.mended} mended by the remedy,"
            " 0 destroyed unverified"
        )

    assert len(CASES) + len(LAWLESS) >= 200
    assert tally.refused == len(asked)
