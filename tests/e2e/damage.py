"""What can happen to a copy, a box or a record: each function is one way to spoil a lease."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from e2e.leased import LINK, OPAQUE, Leased
from waited import over

from gpu_tenant.service import Tenancy

Damage = Callable[[Path], object]
Spoil = Callable[[Leased], object]

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


def records_lost(lease: Leased) -> None:
    shutil.rmtree(lease.records)


def everything_lost(lease: Leased) -> None:
    """A clean home is no proof that nothing was lost."""
    shutil.rmtree(lease.login / "gpu-tenant")


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
        assert (await over(tenancy, lease.id)).state == "finished"

    lease.ask(run)


def claimed_in_vain(lease: Leased) -> None:
    async def run(tenancy: Tenancy) -> None:
        await tenancy.launch_detached(lease.id, "true", ["never.pt"])
        assert (await over(tenancy, lease.id)).state == "finished"

    lease.ask(run)


def nothing(lease: Leased) -> None:
    """The lease is as its stage left it."""
