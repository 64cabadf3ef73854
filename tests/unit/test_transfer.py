"""Files come from a box whole or not at all, whatever becomes of the channels that carry them."""

import asyncio
import os
import random
import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from transferring import (
    COUNTING,
    MB,
    NOISE,
    Box,
    Throttled,
    Told,
    children,
    coming,
    fetched,
    is_whole,
    nothing_left,
    sent_by,
)

from gpu_tenant.domain.errors import BoxTrouble, BoxUnreachable
from gpu_tenant.files.paths import escape
from gpu_tenant.transfer.chunks import Coming
from gpu_tenant.transfer.partial_file import Partial, Span, held_bytes


@pytest.fixture
def here(tmp_path: Path) -> Path:
    made = tmp_path / "here"
    made.mkdir()
    return made


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path / "box")


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Iterator[None]:
    with nothing_left():
        yield


# What is there arrives


async def test_many_small_and_a_few_large_files_arrive_as_they_are(box: Box, here: Path) -> None:
    chance = random.Random(4)
    held = {f"small {n}": chance.randbytes(chance.randrange(3000)) for n in range(300)}
    held |= {"empty": b"", "edge": NOISE[:MB], "below": NOISE[1:MB], "above": NOISE[: MB + 1]}
    held |= {"large": NOISE[: 3 * MB], "text": b"the same line again\n" * 100_000}
    entries = [box.holds(name, content) for name, content in held.items()]

    told = await fetched(coming(here, entries), box)

    assert not told.lost
    assert all(is_whole(told.arrived[name], content) for name, content in held.items())
    assert told.bytes == sum(len(content) for content in held.values())


async def test_a_file_of_any_name_arrives(box: Box, here: Path) -> None:
    names = [
        "new\nline",
        'it\'s "quoted"',
        "%41",
        os.fsdecode(b"not\xffutf-8"),
        "-rf",
        "é" * 127,
        " ",
        "\\",
        "\x01\x7f",
    ]
    entries = [box.holds(name, name.encode("utf-8", "surrogateescape")) for name in names]
    entries += [box.holds(f"large{name[:50]}", NOISE[: MB + 7]) for name in names[:4]]

    told = await fetched(coming(here, entries), box)

    assert len(told.arrived) == len(names) + 4
    for name in names:
        assert is_whole(told.arrived[escape(name)], name.encode("utf-8", "surrogateescape"))
    for name in names[:4]:
        assert is_whole(told.arrived[escape(f"large{name[:50]}")], NOISE[: MB + 7])


async def test_nothing_is_no_work(box: Box) -> None:
    assert not (await fetched([], box)).arrived
    assert not box.opened


async def test_what_cannot_be_had_is_told_and_all_else_arrives(box: Box, here: Path) -> None:
    names = ("gone", "shrunk", "pipe", "directory", "link", "unharmed")
    entries = []
    for size, kind in ((1000, "small"), (2 * MB, "large")):
        entries += [box.holds(f"{kind} {name}", NOISE[:size]) for name in names]
        at = {name: box.directory / f"{kind} {name}" for name in names}
        for name in names[:-1]:
            at[name].unlink()
        at["shrunk"].write_bytes(NOISE[: size - 1])
        os.mkfifo(at["pipe"])
        at["directory"].mkdir()
        at["link"].symlink_to("gone")

    told = await fetched(coming(here, entries), box)

    assert set(told.arrived) == {"small unharmed", "large unharmed"}
    assert set(told.lost) == {f"{k} {n}" for k in ("small", "large") for n in names[:-1]}
    assert all(is_whole(one, NOISE[: one.size_bytes]) for one in told.arrived.values())


async def test_a_file_that_shrinks_while_it_is_fetched_is_lost_alone(box: Box, here: Path) -> None:
    entries = [box.holds("shrinks", NOISE), box.holds("other", NOISE[: 2 * MB])]
    shrunk = []

    def shrink(told: Told) -> None:
        if not shrunk:
            shrunk.append(os.truncate(box.directory / "shrinks", 1000))

    told = await fetched(coming(here, entries), box, turn=Throttled(8 * MB), meanwhile=shrink)

    assert set(told.lost) == {"shrinks"}
    assert is_whole(told.arrived["other"], NOISE[: 2 * MB])


async def test_a_large_file_comes_over_several_channels_where_it_may(box: Box, here: Path) -> None:
    entries = [box.holds("large", NOISE)]

    told = await fetched(coming(here, entries), box, turn=Throttled(12 * MB, most=3))
    alone = Box(box.directory)
    await fetched(coming(here / "..", entries), alone, turn=Throttled(most=1))

    assert is_whole(told.arrived["large"], NOISE)
    assert len(box.opened) > 1
    assert len(alone.opened) == 1


# Channels die


async def test_what_a_dead_channel_owed_comes_over_another(box: Box, here: Path) -> None:
    entries = [box.holds("large", NOISE)]
    entries += [box.holds(f"small {n}", NOISE[n : n + 5000]) for n in range(100)]
    killed: list[int] = []

    def kill(told: Told) -> None:
        living = children()
        if len(killed) < 2 and told.bytes > len(killed) * 2 * MB and len(living) > 1:
            killed.append(min(living))
            os.kill(killed[-1], signal.SIGKILL)

    told = await fetched(coming(here, entries), box, turn=Throttled(8 * MB), meanwhile=kill)

    assert killed
    assert is_whole(told.arrived["large"], NOISE)
    assert len(told.arrived) == 101
    assert told.bytes == sum(entry.size_bytes for entry in entries)


async def test_when_all_channels_die_the_next_call_fetches_what_is_missing_and_no_more(
    box: Box, here: Path
) -> None:
    size = len(NOISE)
    files = coming(here, [box.holds("large", NOISE), box.holds("next", NOISE[: 2 * MB])])
    first = Told()

    def kill_all(told: Told) -> None:
        if told.bytes > 2 * MB:
            box.directory = box.directory.rename(box.directory.with_name("unreachable"))
            for pid in children():
                os.kill(pid, signal.SIGKILL)

    with pytest.raises(BoxTrouble) as met:
        await fetched(files, box, turn=Throttled(12 * MB), meanwhile=kill_all, told=first)
    assert isinstance(met.value, BoxUnreachable), met.value
    box.directory = box.directory.rename(box.directory.with_name("box"))
    here_already = sum(held_bytes(one.partial, one.entry.size_bytes) for one in files)
    told = await fetched(files, box)

    assert 2 * MB < here_already <= first.bytes
    assert told.bytes == size + 2 * MB - here_already
    assert is_whole(told.arrived["large"], NOISE)
    assert is_whole(told.arrived["next"], NOISE[: 2 * MB])


async def test_a_box_without_python_is_told_as_trouble(tmp_path: Path, here: Path) -> None:
    box = Box(tmp_path / "box", instead="import sys; sys.exit(1)")

    with pytest.raises(BoxTrouble):
        await fetched(coming(here, [box.holds("file", NOISE[:1000])]), box)


async def test_a_box_that_is_gone_is_told_as_trouble(box: Box, here: Path) -> None:
    files = coming(here, [box.holds("file", NOISE)])
    box.directory.rename(here / "elsewhere")

    with pytest.raises(BoxUnreachable):
        await fetched(files, box)


async def test_a_cancelled_transfer_goes_on_later(box: Box, here: Path) -> None:
    files = coming(here, [box.holds("large", NOISE)])
    told, some = Told(), asyncio.Event()
    loop = asyncio.get_running_loop()
    task = loop.create_task(
        fetched(
            files,
            box,
            told=told,
            turn=Throttled(8 * MB),
            meanwhile=lambda told: told.bytes > MB and some.set(),
        )
    )
    await some.wait()

    task.cancel()
    (ended,) = await asyncio.gather(task, return_exceptions=True)

    assert isinstance(ended, asyncio.CancelledError)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("courier")]
    held = held_bytes(files[0].partial, len(NOISE))
    assert held >= MB
    again = await fetched(files, box)
    assert again.bytes == len(NOISE) - held
    assert is_whole(again.arrived["large"], NOISE)


# An older version is here


async def test_of_a_file_that_changed_in_one_block_about_one_block_comes(
    box: Box, here: Path
) -> None:
    old = NOISE[: 3 * MB]
    (here / "old").write_bytes(old)
    box = Box(box.directory, instead=COUNTING)
    new = {}
    for changed in (0, MB + 5, len(old) - 1):
        new[f"byte {changed}"] = old[:changed] + bytes([old[changed] ^ 1]) + old[changed + 1 :]
    entries = [box.holds(name, content) for name, content in new.items()]

    told = await fetched(coming(here, entries, here / "old"), box)

    assert all(is_whole(told.arrived[name], content) for name, content in new.items())
    assert (here / "old").read_bytes() == old
    assert 3 * 16_384 <= sent_by(box) <= 3 * (16_384 + len(old) // 2048) + 5000


async def test_whatever_the_older_version_is_the_new_one_arrives(box: Box, here: Path) -> None:
    new = NOISE[: 5 * MB // 4]
    older = {
        "identical": new,
        "shorter": new[: MB + 77],
        "longer": new + b"more" * 9999,
        "empty": b"",
        "shifted": new[1:],
        "zeros": bytes(MB),
        "a byte": b"x",
    }
    files = []
    for name, old in older.items():
        (here / f"old {name}").write_bytes(old)
        files.append(Coming(box.holds(name, new), here / name, here / f"old {name}"))

    told = await fetched(files, box)

    for name, old in older.items():
        assert is_whole(told.arrived[name], new)
        assert (here / f"old {name}").read_bytes() == old
        assert not (here / f"old {name}").samefile(here / name)


async def test_an_older_version_is_of_use_to_an_attempt_that_goes_on(here: Path) -> None:
    box = Box(here / "box", instead=COUNTING)
    new = bytearray(NOISE)
    new[5 * MB] ^= 1
    (here / "old").write_bytes(NOISE)
    files = coming(here, [box.holds("large", bytes(new))], here / "old")
    begun = Partial(files[0].partial, len(NOISE))
    begun.write(memoryview(NOISE[: MB + 100]), 0)
    begun.note_filled(Span(0, MB + 100))
    begun.close()

    told = await fetched(files, box)

    assert is_whole(told.arrived["large"], bytes(new))
    assert sent_by(box) < 4 * 16_384


async def test_where_no_more_fits_here_it_is_told_and_goes_on_later(box: Box, here: Path) -> None:
    files = coming(here, [box.holds("large", NOISE)])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(told: Told) -> None:
        # All that is written from now on, at any place behind, finds no room.
        resource.setrlimit(resource.RLIMIT_FSIZE, (MB, hard))

    try:
        with pytest.raises(OSError, match="too large"):
            await fetched(files, box, turn=Throttled(8 * MB), meanwhile=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    held = held_bytes(files[0].partial, len(NOISE))
    told = await fetched(files, box)

    assert told.bytes == len(NOISE) - held < len(NOISE)
    assert is_whole(told.arrived["large"], NOISE)
