"""Every durable store gives back what it took, keeps what was there before, and says what it has not."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from bucket import BUCKET, REGION, Bucket, serving
from parts import required

from gpu_tenant.artifacts.stores.configuration import open_store
from gpu_tenant.artifacts.stores.protocol import DurableStore
from gpu_tenant.artifacts.stores.rclone import RcloneStore
from gpu_tenant.domain.errors import NotStored, StoreTrouble

NAMES = [
    "l-1/work/a space.bin",
    "l-1/work/权重/100%25 最终.pt",
    "l-1/work/quote\u201bd new%0Aline",
    "l-1/work/" + "é" * 125 + ".json",
]


@pytest.fixture(scope="module")
def server() -> Iterator[Bucket]:
    with serving() as bucket:
        yield bucket


@pytest.fixture
def bucket(server: Bucket) -> Bucket:
    for name in server.names():
        server.delete(name)
    server.faults.clear()
    return server


@pytest.fixture
def store(request: pytest.FixtureRequest, tmp_path: Path) -> DurableStore:
    return opened(request.param, request, tmp_path)


def opened(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> DurableStore:
    there = tmp_path / "there"
    there.mkdir()
    configuration = tmp_path / "config.toml"
    surroundings = {"PATH": os.environ["PATH"], "HOME": os.fspath(tmp_path)}
    if kind == "directory":
        return open_store(os.fspath(there), configuration=configuration, environ=surroundings)
    if kind == "remote":
        required("rclone")
        remote = {"RCLONE_CONFIG_MINE_TYPE": "alias", "RCLONE_CONFIG_MINE_REMOTE": os.fspath(there)}
        return open_store(
            "rclone:mine:", configuration=configuration, environ=surroundings | remote
        )
    return in_bucket(request.getfixturevalue("bucket"), tmp_path)


def in_bucket(bucket: Bucket, tmp_path: Path, *, secret: str = "", url: str = "") -> DurableStore:
    required("rclone")
    configuration = tmp_path / "config.toml"
    configuration.write_text(
        f'[stores.archive]\nurl = "s3://{BUCKET}/of/mine"\nendpoint = "{url or bucket.url}"\n'
        f'region = "{REGION}"\naccess_key_id = "env:ID"\nsecret_access_key = "env:SECRET"\n',
        encoding="utf-8",
    )
    key = {"ID": bucket.key.id, "SECRET": secret or bucket.key.secret}
    # What this computer says of other buckets has no part in it; a bundle that rclone trips over neither.
    others = {"AWS_SECRET_ACCESS_KEY": "other", "RCLONE_DRY_RUN": "true"}
    surroundings = {"PATH": os.environ["PATH"], "HOME": os.fspath(tmp_path), **others, **key}
    return open_store("archive", configuration=configuration, environ=surroundings)


def source(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "a \u201bsource"
    path.write_bytes(content)
    return path


async def given(store: DurableStore, name: str, tmp_path: Path) -> bytes:
    into = tmp_path / "given"
    into.unlink(missing_ok=True)
    await store.get(name, into)
    return into.read_bytes()


every_store = pytest.mark.parametrize("store", ["directory", "bucket"], indirect=True)


@pytest.mark.parametrize("store", ["directory", "remote", "bucket"], indirect=True)
async def test_it_gives_back_what_it_took_under_any_name(
    store: DurableStore, tmp_path: Path
) -> None:
    for number, name in enumerate(NAMES):
        await store.put(source(tmp_path, b"%d" % number), name, superseded="l-1/.superseded/x")

    assert [await given(store, name, tmp_path) for name in NAMES] == [b"0", b"1", b"2", b"3"]
    assert await store.names("l-1") == set(NAMES)


@every_store
async def test_a_newer_version_leaves_the_older_aside(store: DurableStore, tmp_path: Path) -> None:
    await store.put(source(tmp_path, b"older"), "l-1/work/a", superseded="l-1/.superseded/1/work/a")
    await store.put(source(tmp_path, b"newer"), "l-1/work/a", superseded="l-1/.superseded/2/work/a")

    assert await given(store, "l-1/work/a", tmp_path) == b"newer"
    assert await given(store, "l-1/.superseded/2/work/a", tmp_path) == b"older"


@every_store
async def test_what_it_has_not_it_says_so_also_of_a_directory(
    store: DurableStore, tmp_path: Path
) -> None:
    await store.put(source(tmp_path, b"x"), "l-1/work/a/b", superseded="l-1/.superseded/x")

    for absent in ("l-1/work/a", "l-2/work/a"):
        with pytest.raises(NotStored, match="has no file"):
            await given(store, absent, tmp_path)
    assert await store.names("l-2") == set()


async def test_a_large_file_goes_to_a_bucket_in_parts(bucket: Bucket, tmp_path: Path) -> None:
    store = in_bucket(bucket, tmp_path)
    assert isinstance(store, RcloneStore)
    small = {"RCLONE_CONFIG_TENANT_UPLOAD_CUTOFF": "5Mi", "RCLONE_CONFIG_TENANT_CHUNK_SIZE": "5Mi"}
    in_parts = store.asked(attempts=2, settings=small)
    content = os.urandom((5 << 20) + 1)

    await in_parts.put(source(tmp_path, content), "l-1/work/a", superseded="l-1/.superseded/x")

    assert any("partNumber=2" in path for _, path in bucket.asked)
    assert await given(store, "l-1/work/a", tmp_path) == content


async def test_a_server_that_is_busy_twice_is_asked_again(bucket: Bucket, tmp_path: Path) -> None:
    store = in_bucket(bucket, tmp_path)
    bucket.faults[:] = [503, 503]

    await store.put(source(tmp_path, b"x"), "l-1/work/a", superseded="l-1/.superseded/x")

    assert bucket.read("of/mine/l-1/work/a") == b"x"


async def test_a_wrong_key_is_told_without_the_key(bucket: Bucket, tmp_path: Path) -> None:
    store = in_bucket(bucket, tmp_path, secret="hunter2-of-the-tests")

    with pytest.raises(StoreTrouble, match="403") as told:
        await given(store, "l-1/work/a", tmp_path)

    assert not isinstance(told.value, NotStored)
    for secret in ("hunter2-of-the-tests", bucket.key.id):
        assert secret not in str(told.value)


async def test_a_server_that_is_down_is_told_and_no_absence(bucket: Bucket, tmp_path: Path) -> None:
    store = in_bucket(bucket, tmp_path, url="http://127.0.0.1:9")
    assert isinstance(store, RcloneStore)

    with pytest.raises(StoreTrouble, match="refused") as told:
        await given(store.asked(attempts=1, settings={}), "l-1/work/a", tmp_path)

    assert not isinstance(told.value, NotStored)


async def test_without_rclone_the_error_says_how_to_get_it(tmp_path: Path) -> None:
    store = RcloneStore("mine:x", words="rclone:mine:x", environ={"PATH": os.fspath(tmp_path)})

    with pytest.raises(StoreTrouble, match="apt-get install rclone"):
        await given(store, "l-1/work/a", tmp_path)


async def test_a_disk_that_is_no_longer_mounted_is_told_and_nothing_is_made_there(
    tmp_path: Path,
) -> None:
    (tmp_path / "disk").mkdir()
    store = open_store(os.fspath(tmp_path / "disk"), configuration=tmp_path / "none", environ={})
    (tmp_path / "disk").rmdir()

    with pytest.raises(StoreTrouble, match="that directory does not exist now"):
        await store.put(source(tmp_path, b"x"), "l-1/work/a", superseded="l-1/.superseded/x")
    with pytest.raises(StoreTrouble, match="that directory does not exist now"):
        await given(store, "l-1/work/a", tmp_path)

    assert not (tmp_path / "disk").exists()
