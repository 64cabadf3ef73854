"""What lands on this computer harms nothing on it, wherever it was told to land."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.leased import command, end_processes
from e2e.owner import Owner
from parts import required, root_required

from gpu_tenant.app import open_tenancy
from gpu_tenant.domain.errors import BadRequest, DiskFull, LocalTrouble
from gpu_tenant.files.mounts import Mount, from_mount
from gpu_tenant.files.remove_tree import remove_tree
from gpu_tenant.files.state_dir import require_room

BAD_CALL, REFUSED, HERE, PROVIDER = 2, 3, 6, 5


@pytest.fixture
def owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Owner]:
    home = tmp_path / "home"
    (home / "Documents").mkdir(parents=True)
    (home / "Documents" / "thesis.tex").write_text("mine", encoding="utf-8")
    (home / "work" / "proj" / ".git").mkdir(parents=True)
    (home / "work" / "proj" / ".git" / "config").write_text("[core]\n", encoding="utf-8")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GPU_TENANT_HOME", str(home / ".gpu-tenant"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "train.py").write_text("print('training')\n", encoding="utf-8")
    yield Owner(home / ".gpu-tenant", tree)
    end_processes(home / ".gpu-tenant" / "boxes")


def everything(home: Path) -> dict[str, bytes]:
    """What an owner has there, the state directory apart."""
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in home.rglob("*")
        if path.is_file() and ".gpu-tenant" not in path.parts
    }


def test_a_collect_lands_in_no_directory_that_its_owner_lives_in(owner: Owner) -> None:
    """A box's `proj/.git/config` would take the place of the owner's, and their next git would run it."""
    home = owner.state.parent
    lease = owner.has_run(
        "mkdir -p proj/.git; echo '[core] fsmonitor=x' > proj/.git/config", "proj/"
    )
    before = everything(home)
    (owner.state / "ssh").mkdir(exist_ok=True)

    for place in (
        home,
        home.parent,
        Path("/"),
        owner.state,
        owner.state / "ssh",
        home / "work" / "proj",
        home / "Documents",
    ):
        told = owner.is_told(BAD_CALL, "BAD_REQUEST", "collect", lease, "--to", str(place))
        assert "a new or empty directory" in told or "leave `--to` out" in told, told

    assert everything(home) == before
    owner.does("collect", lease)
    owner.does("teardown", lease)


def test_a_project_is_told_where_its_results_could_go(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = owner.has_run()
    monkeypatch.chdir(owner.state.parent / "work" / "proj")

    told = owner.is_told(BAD_CALL, "BAD_REQUEST", "collect", lease, "--to", ".")

    assert f"--to {Path.cwd() / 'results' / lease}" in told
    owner.does("collect", lease, "--to", f"results/{lease}")
    owner.does("teardown", lease)


@pytest.mark.parametrize("name", [".partial", ".superseded", ".partial/live", ".snapshots"])
def test_what_should_be_ours_and_is_a_link_is_not_gone_through(owner: Owner, name: str) -> None:
    home = owner.state.parent
    lease = owner.has_run()
    place = home / "results"
    owner.does("collect", lease, "--to", str(place))
    ours = place / name
    if ours.is_dir():
        ours.rmdir()
    ours.symlink_to(home / "Documents")

    told = owner.is_told(HERE, "LOCAL_TROUBLE", "collect", lease, "--to", str(place))

    assert "is a link" in told
    assert (home / "Documents" / "thesis.tex").read_text(encoding="utf-8") == "mine"


def test_a_stranger_s_clone_that_leads_elsewhere_is_left_alone(owner: Owner) -> None:
    home = owner.state.parent
    lease = owner.has_run()
    clone = home / "clone"
    clone.mkdir()
    (clone / ".partial").symlink_to(home / "Documents")
    (clone / ".gpu-tenant-kept").write_text(f"gpu-tenant:000000:{lease}\n", encoding="utf-8")

    status, _, said = command("collect", lease, "--to", str(clone))

    assert status in (BAD_CALL, HERE), said
    assert (home / "Documents" / "thesis.tex").read_text(encoding="utf-8") == "mine"


def test_an_owner_s_file_among_half_fetched_ones_stays(owner: Owner) -> None:
    lease = owner.has_run()
    place = owner.state.parent / "results"
    owner.does("collect", lease, "--to", str(place))
    (place / ".partial" / "mine.dat").write_text("mine", encoding="utf-8")
    (place / ".partial" / ("0" * 64)).write_text("half", encoding="utf-8")

    owner.does("collect", lease, "--to", str(place))

    assert [path.name for path in (place / ".partial").iterdir()] == ["mine.dat"]


def test_a_directory_that_an_older_ledger_collected_into_is_taken_and_marked(owner: Owner) -> None:
    lease = owner.has_run()
    place = owner.state.parent / "results"
    owner.does("collect", lease, "--to", str(place))
    (place / ".gpu-tenant-kept").unlink()

    owner.does("collect", lease, "--to", str(place))

    assert (place / ".gpu-tenant-kept").read_text(encoding="utf-8").endswith(f":{lease}\n")
    owner.does("teardown", lease)


def test_a_kept_file_is_never_executable_by_landing(owner: Owner) -> None:
    lease = owner.has_run(
        "mkdir -p out; echo '#!/bin/sh' > out/run.sh; chmod 4755 out/run.sh; echo '[1]' > out/a.json"
    )
    place = owner.state.parent / "results"

    owner.does("collect", lease, "--to", str(place))

    kept = [path for path in place.rglob("*") if path.is_file()]
    assert any(path.name == "run.sh" for path in kept)
    assert not [path for path in kept if path.stat().st_mode & 0o7111]


# Where it lasts


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="this system has no memory to write to")
def test_a_place_in_memory_keeps_nothing(owner: Owner) -> None:
    lease = owner.has_run()
    place = Path("/dev/shm", f"gpu-tenant-test-{os.getpid()}")

    told = owner.is_told(BAD_CALL, "BAD_REQUEST", "collect", lease, "--to", str(place))

    assert "memory" in told
    assert not place.exists()


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="this system has no memory to write to")
def test_a_kept_directory_that_became_a_way_into_memory_proves_nothing(owner: Owner) -> None:
    lease = owner.has_run()
    place = owner.state.parent / "results"
    owner.does("collect", lease, "--to", str(place))
    elsewhere = Path("/dev/shm", f"gpu-tenant-test-{os.getpid()}")
    subprocess.run(["cp", "-a", place, elsewhere], check=True)
    try:
        place.rename(place.with_name("was"))
        place.symlink_to(elsewhere)

        told = owner.is_told(REFUSED, "UNVERIFIED", "teardown", lease)

        assert "memory" in told
    finally:
        remove_tree(elsewhere)


@pytest.mark.parametrize(
    ("source", "kind", "host"),
    [
        ("own-abcd:gpu-tenant/x", "fuse.sshfs", "own-abcd"),
        ("me@[2001:db8::1]:/x", "fuse.sshfs", "2001:db8::1"),
        ("nas:/home", "nfs4", "nas"),
        ("//nas/share", "cifs", "nas"),
        ("gdrive:", "fuse.rclone", "gdrive"),
        ("/dev/sda1", "ext4", None),
        ("C:\\", "9p", None),
        ("/dev/sdb1", "fuseblk", None),
    ],
)
def test_a_mount_says_from_where_its_files_come(source: str, kind: str, host: str | None) -> None:
    assert Mount(Path("/mnt"), kind, source).host == host


def test_the_table_that_macos_prints_is_read() -> None:
    said = (
        "/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)\n"
        "//me@nas/share on /Volumes/a share (smbfs, nodev, nosuid)\nmap auto_home on /x (autofs)\n"
    )

    assert from_mount(said)[1] == Mount(Path("/Volumes/a share"), "smbfs", "//me@nas/share")
    assert from_mount(said)[1].host == "nas"


# The end of a local box


def test_a_local_box_does_not_take_with_it_what_is_mounted_in_it(owner: Owner) -> None:
    required("mount")
    root_required()
    home = owner.state.parent
    lease = owner.has_run("mkdir -p data ok; echo x > data/x; echo '[1]' > ok/o.json", "ok/")
    owner.does_signed("collect", lease, "--discard", "data/")
    mounted = owner.work(lease) / "data"
    subprocess.run(["mount", "--bind", home / "Documents", mounted], check=True)
    try:
        status, _, said = command("teardown", lease)
        assert (home / "Documents" / "thesis.tex").read_text(encoding="utf-8") == "mine"
        assert status != 0
        assert f"umount {mounted}" in said
    finally:
        subprocess.run(["umount", mounted], check=True)
    owner.does("teardown", lease)
    assert not owner.work(lease).exists()


def test_a_tree_deeper_than_any_stack_is_removed_and_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a").write_text("a", encoding="utf-8")
    top = tmp_path / "top"
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        os.symlink(tmp_path / "mine", "link", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)

    remove_tree(top)

    assert not top.exists()
    assert (tmp_path / "mine" / "a").exists()


def test_names_that_no_file_system_takes_are_a_bad_call(owner: Owner) -> None:
    lease = owner.has_run()

    async def tried() -> None:
        tenancy = open_tenancy()
        for place in ("/" + "a" * 5000, "a\0b"):
            with pytest.raises((BadRequest, LocalTrouble)):
                await tenancy.collect(lease, place)
            with pytest.raises(BadRequest):
                await tenancy.push(lease, place)
            with pytest.raises(BadRequest):
                await tenancy.smoke_test(place, "true")
        await tenancy.aclose()

    asyncio.run(tried())


def test_the_reserve_of_this_computer_s_disk_is_no_room(tmp_path: Path) -> None:
    free = os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize

    with pytest.raises(DiskFull, match="stay free"):
        require_room(tmp_path, free - (64 << 20), remedy="free some")
    require_room(tmp_path, 0, remedy="free some")
