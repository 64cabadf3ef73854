"""A durable store proves what its bytes prove, re-read at that moment, and nothing by its own word."""

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pytest
from bucket import BUCKET, REGION, Bucket, serving
from e2e.leased import Leased
from parts import required
from waited import over

from gpu_tenant.artifacts.stores.configuration import open_store
from gpu_tenant.artifacts.stores.locality import Whereabouts
from gpu_tenant.artifacts.stores.protocol import DurableStore
from gpu_tenant.artifacts.stores.rclone import RcloneStore
from gpu_tenant.artifacts.stores.replicate import StoreCopy, keep_safe
from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import BadRequest, StoreTrouble, Unverified
from gpu_tenant.domain.permit import Verified
from gpu_tenant.leases.verify import Assessment, assess, prove
from gpu_tenant.service import Tenancy

T = TypeVar("T")
JOB = (
    "mkdir out && echo '{\"loss\": 1}' | tee out/a.json > out/b.json && echo xyz > 'out/权重 a.bin'"
    " && ln -s a.json out/latest"
)
WORDS = f"archive (s3://{BUCKET}/of/mine)"


@dataclass
class Story:
    """A collected lease, the owner's store, and the bucket behind it."""

    lease: Leased
    store: DurableStore
    bucket: Bucket

    @property
    def prefix(self) -> str:
        return f"of/mine/{self.lease.id}"

    def with_tenancy(self, does: Callable[[Tenancy], Awaitable[T]]) -> T:
        return self.lease.ask(does)

    def keep(self, store: DurableStore | None = None) -> StoreCopy:
        async def kept(tenancy: Tenancy) -> StoreCopy:
            lease = tenancy.ledger.lease(self.lease.id)
            seal = tenancy.ledger.seal(lease.id)
            assert seal is not None
            return await keep_safe(
                lease,
                seal,
                directory=Path(lease.kept_in or ""),
                store=store or self.store,
                ledger=tenancy.ledger,
                progress=lambda _, __: None,
            )

        return self.with_tenancy(kept)

    def assess(self, store: DurableStore | None = None) -> tuple[Assessment, str]:
        """What stands in the way, and the ground that a permit would have, or the refusal."""

        async def assessed(tenancy: Tenancy) -> tuple[Assessment, str]:
            lease = tenancy.ledger.lease(self.lease.id)
            found = await assess(tenancy.context, lease, store=store)
            try:
                ground = prove(lease, found).ground
            except Unverified as refused:
                return found, refused.message
            assert found.seal is not None
            assert ground == Verified(seal_digest=found.seal.digest)
            return found, "verified"

        return self.with_tenancy(assessed)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """The story up to the collect, and its files brought to the bucket."""
    required("rclone")
    root = tmp_path_factory.mktemp("durable")
    with serving() as bucket, pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPU_TENANT_HOME", os.fspath(root / "state"))
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        lease = Leased(root / "state")

        async def collected(tenancy: Tenancy) -> str:
            made = (await tenancy.provision(smoke="none")).lease
            await tenancy.launch_detached(made, JOB, ["out/"])
            seen = await over(tenancy, made)
            assert seen.state == "finished", seen
            await tenancy.collect(made)
            return made

        lease.id = lease.ask(collected)
        story = Story(lease, opened(root, bucket), bucket)
        story.keep()
        shutil.copytree(lease.kept, root / "kept", symlinks=True)
        yield story
        lease.end_processes()


@pytest.fixture
def story(told: Story) -> Iterator[Story]:
    """What was kept here is gone, the store is as `keep_safe` left it; after the test both are again."""
    there = {name: told.bucket.read(name) for name in told.bucket.names()}
    shutil.rmtree(told.lease.kept / "work")
    yield told
    told.bucket.faults.clear()
    for name in told.bucket.names():
        told.bucket.delete(name)
    for name, content in there.items():
        told.bucket.write(name, content)
    shutil.rmtree(told.lease.kept)
    shutil.copytree(told.lease.state.parent / "kept", told.lease.kept, symlinks=True)


@pytest.fixture
def disk(tmp_path: Path) -> DurableStore:
    (tmp_path / "disk").mkdir()
    return open_store(os.fspath(tmp_path / "disk"), configuration=tmp_path / "none", environ={})


def opened(root: Path, bucket: Bucket) -> DurableStore:
    configuration = root / "config.toml"
    configuration.write_text(
        f'[stores.archive]\nurl = "s3://{BUCKET}/of/mine"\nendpoint = "{bucket.url}"\n'
        f'region = "{REGION}"\naccess_key_id = "env:ID"\nsecret_access_key = "env:SECRET"\n',
        encoding="utf-8",
    )
    key = {"ID": bucket.key.id, "SECRET": bucket.key.secret, "PATH": os.environ["PATH"]}
    store = open_store("archive", configuration=configuration, environ=key)
    assert isinstance(store, RcloneStore)
    return store.with_settings(attempts=1, settings={})


def test_copies_that_are_gone_here_are_proved_from_the_store_and_the_evidence_says_where(
    story: Story,
) -> None:
    found, ground = story.assess(story.store)

    assert ground == "verified"
    assert {e.name: e.where for e in found.evidence} == {
        "log/job1.log": "here",
        "work/out/a.json": WORDS,
        "work/out/b.json": WORDS,
        "work/out/latest": WORDS,
        "work/out/权重 a.bin": WORDS,
    }
    assert [path.name for path in story.lease.kept.iterdir() if "brought" in path.name] == []


def test_without_a_store_nothing_has_changed(story: Story) -> None:
    found, refusal = story.assess()

    assert "work/out/a.json is not here; " in refusal
    assert len(found.losses) == 4


def test_a_store_whose_objects_are_not_the_sealed_ones_proves_nothing(story: Story) -> None:
    story.bucket.write(f"{story.prefix}/work/out/a.json", b'{"loss": 2}\n')
    story.bucket.write(f"{story.prefix}/work/out/b.json", b'{"los')
    story.bucket.delete(f"{story.prefix}/work/out/权重 a.bin")

    found, _ = story.assess(story.store)

    assert [loss.what for loss in found.losses] == [
        f"work/out/a.json is not here, and {WORDS} has other bytes than the box",
        f"work/out/b.json is not here, and {WORDS} has 5 bytes of it, but the box has 12",
        f'"work/out/权重 a.bin" is not here, and {WORDS} does not have it',
    ]


def test_a_link_needs_the_very_seal_in_the_store(story: Story) -> None:
    (seal,) = [name for name in story.bucket.names() if "/.seals/" in name]
    written = story.bucket.read(seal)
    story.bucket.write(seal, written.replace(b'"target":"a.json"', b'"target":"b.json"'))

    _, refusal = story.assess(story.store)

    assert refusal.endswith(f"work/out/latest is not here, and {WORDS} has another seal")


def test_a_store_that_is_down_is_no_evidence_and_no_crash(story: Story) -> None:
    assert isinstance(story.store, RcloneStore)
    down = {"RCLONE_CONFIG_TENANT_ENDPOINT": "http://127.0.0.1:9"}

    found, refusal = story.assess(story.store.with_settings(attempts=1, settings=down))

    assert f"work/out/a.json is not here, and {WORDS} could not be re-read" in refusal
    assert len(found.losses) == 4


def test_a_directory_on_the_box_itself_is_no_store(story: Story) -> None:
    # In a cache, so that the copy itself is not one more thing that would be lost.
    on_the_box = story.lease.login / ".cache" / "pip" / "store"
    on_the_box.mkdir(parents=True)
    shutil.copytree(story.lease.work, on_the_box / story.lease.id / "work", symlinks=True)
    store = open_store(os.fspath(on_the_box), configuration=on_the_box / "none", environ={})

    try:
        _, refusal = story.assess(store)
        with pytest.raises(BadRequest, match="on the box itself"):
            story.keep(store)
    finally:
        shutil.rmtree(on_the_box)

    assert f"{on_the_box} is on the box itself" in refusal


@pytest.mark.parametrize(
    ("kind", "says"), [("local", "is on the box itself"), ("memory", "is no proof by itself")]
)
def test_a_remote_that_is_the_box_or_may_be_anywhere_proves_nothing(
    story: Story, kind: str, says: str
) -> None:
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": os.fspath(story.lease.login),
        "RCLONE_CONFIG": "/nowhere",
        "RCLONE_CONFIG_X_TYPE": kind,
    }
    words = f"rclone:X:{story.lease.login}/safe"
    store = open_store(words, configuration=story.lease.login / "none", environ=environ)

    _, refusal = story.assess(store)

    assert f"{words} {says}" in refusal
    if kind == "local":
        with pytest.raises(BadRequest, match="on the box itself"):
            story.keep(store)


def test_what_the_store_holds_already_is_not_sent_again_and_what_is_spoiled_there_is(
    told: Story,
) -> None:
    told.bucket.write(f"{told.prefix}/work/out/a.json", b'{"loss": 2}\n')
    told.bucket.asked.clear()

    kept = told.keep()

    assert (kept.files, kept.sent_files, kept.not_here) == (4, 1, ())
    assert told.bucket.read(f"{told.prefix}/work/out/a.json") == b'{"loss": 1}\n'
    (aside,) = [name for name in told.bucket.names() if "/.superseded/" in name]
    assert told.bucket.read(aside) == b'{"loss": 2}\n'
    puts = [path for method, path in told.bucket.asked if method == "PUT"]
    assert all("a.json" in path for path in puts)


def stored(told: Story) -> dict[str, object]:
    """The last line of the ledger about a store."""

    async def last(tenancy: Tenancy) -> dict[str, object]:
        on_record = tenancy.ledger.events(told.lease.id)
        return [x for _, x in on_record if isinstance(x, timeline.Stored)][-1].as_stored()

    return told.with_tenancy(last)


def test_what_is_not_here_is_named_and_what_is_here_is_kept_and_on_record(
    told: Story, disk: DurableStore
) -> None:
    (told.lease.here / "a.json").rename(told.lease.here / "c.json")
    try:
        kept = told.keep(disk)
    finally:
        (told.lease.here / "c.json").rename(told.lease.here / "a.json")

    assert (kept.files, kept.not_here) == (3, ("work/out/a.json",))
    assert (stored(told)["store"], stored(told)["files"], stored(told)["missing"]) == (
        disk.words,
        3,
        1,
    )


def test_a_store_that_takes_a_part_raises_and_the_part_is_on_record(
    told: Story, disk: DurableStore
) -> None:
    there = Path(disk.words) / told.lease.id
    there.mkdir()
    for in_the_way in ("work", ".superseded"):
        (there / in_the_way).write_bytes(b"no directory")

    with pytest.raises(StoreTrouble, match="3 of 4 files could not be proved in"):
        told.keep(disk)

    assert (stored(told)["files"], stored(told)["missing"]) == (1, 3)


def test_the_collected_copy_itself_is_no_second_one(told: Story) -> None:
    here = open_store(
        os.fspath(told.lease.kept.parent), configuration=told.lease.state / "none", environ={}
    )

    with pytest.raises(BadRequest, match="no second copy"):
        told.keep(here)


class Meanwhile:
    """The owner's store, which takes its time; something happens on the box while it is re-read."""

    def __init__(self, store: DurableStore, does: Callable[[], object]) -> None:
        self.words = store.words
        self._store = store
        self._does: Callable[[], object] | None = does

    async def where(self) -> Whereabouts:
        return await self._store.where()

    async def put(self, source: Path, name: str, *, superseded: str) -> None:
        await self._store.put(source, name, superseded=superseded)

    async def names(self, directory: str) -> frozenset[str]:
        return await self._store.names(directory)

    async def get(self, name: str, into: Path) -> None:
        if self._does is not None:
            await asyncio.sleep(2.5)
            self._does()
            self._does = None
        await self._store.get(name, into)


@pytest.mark.parametrize("where", ["out/late.bin", "elsewhere.bin"])
def test_what_is_written_on_the_box_while_kept_files_are_re_read_is_not_destroyed(
    story: Story, where: str
) -> None:
    late = story.lease.work / where

    def write() -> None:
        late.write_bytes(b"the only copy")

    try:
        found, refusal = story.assess(Meanwhile(story.store, write))
    finally:
        late.unlink(missing_ok=True)

    assert [loss.what for loss in found.losses] == [
        "what was written on the box while the kept files were re-read"
    ]
    assert "verified" not in refusal


def test_a_box_that_stays_as_it_was_while_kept_files_are_re_read_is_proved(story: Story) -> None:
    assert story.assess(Meanwhile(story.store, lambda: None))[1] == "verified"
