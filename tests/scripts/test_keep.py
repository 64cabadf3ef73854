"""What a box keeps in its owner's bucket arrived there, or is named as not kept; and the key is never told."""

import hashlib
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bucket import BUCKET, REGION, Bucket, Key, serving
from desk import Answer, Desk

KEEP = Path(__file__).parents[2] / "scripts" / "keep.py"
PART_BYTES = 5 << 20
NAMES = [
    "work/out/a space.bin",
    "work/out/权重 最终.pt",
    "work/out/100%25 + a=b&c~.txt",
    "work/out/quote\u201bd.txt",
    "work/out/" + "é" * 125 + ".json",
    "work/out/..x.json",
    "work/out/not%FFutf-8%0A",
]
Request = dict[str, Any]


@pytest.fixture(scope="module")
def server() -> Iterator[Bucket]:
    with serving() as bucket:
        yield bucket


@pytest.fixture
def bucket(server: Bucket) -> Bucket:
    for name in server.names():
        server.delete(name)
    server.faults.clear()
    server.asked.clear()
    return server


def s3(bucket: Bucket, **more: str) -> Request:
    return {
        "kind": "s3",
        "endpoint": bucket.url,
        "region": REGION,
        "bucket": BUCKET,
        "prefix": "of/mine",
        "access_key_id": bucket.box_key.id,
        "secret_access_key": bucket.box_key.secret,
        **more,
    }


def file(at: Path, name: str = "work/out/a.bin", content: bytes = b"some bytes") -> Request:
    at.write_bytes(content)
    return {
        "name": name,
        "at": os.fspath(at),
        "size": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }


def asked(verb: str, store: Request, *files: Request, words: tuple[str, ...] = ()) -> Request:
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            str(KEEP),
            verb,
            "--request",
            "-",
            "--backoff-s",
            "0.01",
            "--attempts",
            "3",
            *words,
        ],
        input=json.dumps({"store": store, "files": files}).encode(),
        capture_output=True,
        check=False,
        timeout=120,
        env={"PATH": os.environ["PATH"]},
    )
    printed = (done.stdout + done.stderr).decode()
    for half in ("access_key_id", "secret_access_key"):
        assert store.get(half, "no key") not in printed
    reply: Request = json.loads(done.stdout.splitlines()[-1])
    whole = reply["ok"] and not reply.get("failed")
    assert done.returncode == (0 if whole else 2 if reply.get("code") == "BAD_REQUEST" else 1)
    return reply


def whys(reply: Request) -> list[str]:
    assert not reply["kept"]
    return [each["why"] for each in reply["failed"]]


def test_files_of_any_name_are_kept_and_a_second_call_sends_nothing(
    bucket: Bucket, tmp_path: Path
) -> None:
    files = [file(tmp_path / f"f{n}", name, b"%d" % n) for n, name in enumerate(NAMES)]
    files.append(file(tmp_path / "empty", "log/empty.log", b""))

    first = asked("keep", s3(bucket), *files)
    sent = [path for method, path in bucket.asked if method == "PUT"]
    second = asked("keep", s3(bucket), *files)

    assert [f["name"] for f in first["kept"] if f["sent"]] == [f["name"] for f in files]
    assert [f["name"] for f in second["kept"] if not f["sent"]] == [f["name"] for f in files]
    assert (
        len([path for method, path in bucket.asked if method == "PUT"]) == len(sent) == len(files)
    )
    written = [name.replace("\u201b", "%E2%80%9B") for name in [*NAMES, "log/empty.log"]]
    assert sorted(bucket.names()) == sorted(f"of/mine/{name}" for name in written)
    assert bucket.read(f"of/mine/{NAMES[1]}") == b"1"


def test_a_large_file_goes_in_parts_that_are_the_whole(bucket: Bucket, tmp_path: Path) -> None:
    content = random.Random(3).randbytes(2 * PART_BYTES + 17)
    bucket.faults[:] = [404, 503]
    large = file(tmp_path / "large", content=content)

    reply = asked("keep", s3(bucket), large, words=("--part-bytes", str(PART_BYTES)))

    assert [f["sha256"] for f in reply["kept"]] == [large["sha256"]]
    assert bucket.read("of/mine/work/out/a.bin") == content
    assert len([1 for method, path in bucket.asked if "partNumber" in path]) == 3


def test_a_large_file_that_is_not_what_was_sealed_leaves_no_parts(
    bucket: Bucket, tmp_path: Path
) -> None:
    large = file(tmp_path / "large", content=bytes(PART_BYTES + 1))
    (tmp_path / "large").write_bytes(b"x" + bytes(PART_BYTES))

    reply = asked("keep", s3(bucket), large, words=("--part-bytes", str(PART_BYTES)))

    assert whys(reply) == ["it is not the file that was sealed: other bytes"]
    assert (bucket.names(), bucket.unfinished()) == ([], [])


def test_a_newer_version_leaves_the_older_aside(bucket: Bucket, tmp_path: Path) -> None:
    asked("keep", s3(bucket), file(tmp_path / "f", content=b"older"))

    reply = asked("keep", s3(bucket), file(tmp_path / "f", content=b"newer"))

    assert len(reply["kept"]) == 1
    newest, aside = sorted(bucket.names(), key=lambda name: ".superseded/" in name)
    assert (bucket.read(newest), bucket.read(aside)) == (b"newer", b"older")
    assert aside.endswith("/work/out/a.bin")


def test_what_this_key_may_not_see_is_written_once_and_never_over(
    bucket: Bucket, tmp_path: Path
) -> None:
    bucket.faults[:] = [403]
    new = asked("keep", s3(bucket), file(tmp_path / "f", content=b"older"))
    bucket.faults[:] = [403]
    again = asked("keep", s3(bucket), file(tmp_path / "f", content=b"newer"))
    large = file(tmp_path / "large", content=bytes(PART_BYTES + 1))
    bucket.faults[:] = [403]
    in_parts = asked("keep", s3(bucket), large, words=("--part-bytes", str(PART_BYTES)))

    assert [f["sent"] for f in new["kept"]] == [True]
    for refused in (again, in_parts):
        assert "it exists, and this key may not read it" in whys(refused)[0]
    assert bucket.read("of/mine/work/out/a.bin") == b"older"
    assert bucket.unfinished() == []


@pytest.mark.parametrize("second", [Answer(200), Answer(501)])
def test_a_store_that_would_write_over_what_nobody_sees_gets_nothing(
    tmp_path: Path, second: Answer
) -> None:
    desk = Desk()
    desk.says(Answer(403), Answer(200), second)
    try:
        store = s3(Bucket(desk.url, Key("an-id", "a-secret"), Key("an-id", "a-secret")))

        reply = asked("keep", store, file(tmp_path / "f"))
    finally:
        desk.close()

    assert "the store would write over it: let this key list" in whys(reply)[0]
    assert [request.path.endswith("/.proof/once") for request in desk.asked] == [False, True, True]


def test_what_was_altered_in_the_bucket_is_sent_again(bucket: Bucket, tmp_path: Path) -> None:
    whole = file(tmp_path / "f", content=b"some bytes")
    asked("keep", s3(bucket), whole)
    bucket.write("of/mine/work/out/a.bin", b"sOme bytes")

    reply = asked("keep", s3(bucket), whole)

    assert [f["sent"] for f in reply["kept"]] == [True]
    assert bucket.read("of/mine/work/out/a.bin") == b"some bytes"


def test_a_server_that_is_busy_twice_is_asked_again(bucket: Bucket, tmp_path: Path) -> None:
    bucket.faults[:] = [503, 429]

    assert len(asked("keep", s3(bucket), file(tmp_path / "f"))["kept"]) == 1


def test_a_server_that_stays_busy_keeps_nothing_and_the_reply_says_so(
    bucket: Bucket, tmp_path: Path
) -> None:
    bucket.faults[:] = [500] * 3

    assert whys(asked("keep", s3(bucket), file(tmp_path / "f"))) == [
        "the store answers 500, 3 times in a row"
    ]


@pytest.mark.parametrize("half", ["access_key_id", "secret_access_key"])
def test_a_wrong_key_is_refused_by_the_servers_code_alone(
    bucket: Bucket, tmp_path: Path, half: str
) -> None:
    wrong = s3(bucket, **{half: "WRONGWRONGWRONGWRONG"})

    proof = asked("prove", wrong)

    assert (proof["ok"], proof["code"]) == (False, "FORBIDDEN")
    assert proof["message"].startswith("the store answers 403 ")
    assert whys(asked("keep", wrong, file(tmp_path / "f"))) == [proof["message"]]


def test_a_server_that_is_down_is_told(bucket: Bucket, tmp_path: Path) -> None:
    down = s3(bucket, endpoint="http://127.0.0.1:9")

    assert asked("prove", down)["code"] == "NO_ANSWER"
    assert "does not answer" in whys(asked("keep", down, file(tmp_path / "f")))[0]


def test_a_proof_leaves_its_own_object_alone_where_the_key_cannot_delete(bucket: Bucket) -> None:
    bucket.write("of/mine/other", b"mine")
    owner = {"access_key_id": bucket.key.id, "secret_access_key": bucket.key.secret}

    scoped, able = asked("prove", s3(bucket)), asked("prove", s3(bucket, **owner))

    assert (scoped["ok"], scoped["deleted"]) == (True, False)
    assert scoped["left_because"] == "the store answers 403 AccessDenied"
    assert (able["ok"], able["deleted"]) == (True, True)
    assert sorted(bucket.names()) == sorted([f"of/mine/{scoped['proved']}", "of/mine/other"])


def test_a_file_that_is_gone_or_another_is_named_and_the_others_are_kept(
    bucket: Bucket, tmp_path: Path
) -> None:
    gone, grown = file(tmp_path / "gone", "work/gone"), file(tmp_path / "grown", "work/grown")
    pipe, other = file(tmp_path / "pipe", "work/pipe"), file(tmp_path / "other", "work/other")
    (tmp_path / "gone").unlink()
    (tmp_path / "grown").write_bytes(b"some more bytes")
    (tmp_path / "pipe").unlink()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "other").write_bytes(b"sOme bytes")

    reply = asked("keep", s3(bucket), gone, grown, pipe, other, file(tmp_path / "f"))

    spoiled = ["work/gone", "work/grown", "work/pipe", "work/other"]
    assert [f["name"] for f in reply["failed"]] == spoiled
    assert [f["name"] for f in reply["kept"]] == ["work/out/a.bin"]
    assert bucket.names() == ["of/mine/work/out/a.bin"]


def test_a_directory_is_a_store_too(tmp_path: Path) -> None:
    volume = tmp_path / "a volume"
    volume.mkdir()
    store = {"kind": "directory", "path": os.fspath(volume)}
    name = "work/out/not%FFutf-8%0A"
    asked("keep", store, file(tmp_path / "f", name, b"older"))

    reply = asked("keep", store, file(tmp_path / "f", name, b"newer"))

    at = volume / "work" / "out" / os.fsdecode(b"not\xffutf-8\n")
    (aside,) = volume.glob(".superseded/*/work/out/*")
    assert [f["sent"] for f in reply["kept"]] == [True]
    assert (at.read_bytes(), aside.read_bytes()) == (b"newer", b"older")
    assert asked("prove", store)["deleted"] is True
    assert sorted(path.name for path in volume.iterdir()) == [".superseded", "work"]


@pytest.mark.parametrize(
    ("store", "code"),
    [
        ({"kind": "directory", "path": "/nowhere/at/all"}, "NO_STORE"),
        ({"kind": "tape"}, "BAD_REQUEST"),
        ({"kind": "s3", "endpoint": "ftp://x"}, "BAD_REQUEST"),
        ({"kind": "s3", "endpoint": "https://key:word@x", "bucket": "b"}, "BAD_REQUEST"),
    ],
)
def test_what_is_no_store_is_refused(store: Request, code: str) -> None:
    assert asked("prove", store)["code"] == code


def test_a_name_that_leads_out_of_the_store_is_refused(tmp_path: Path) -> None:
    store = {"kind": "directory", "path": os.fspath(tmp_path)}

    assert asked("keep", store, file(tmp_path / "f", "work/%2E./%2E%2E/x"))["code"] == "BAD_REQUEST"


def test_a_box_whose_clock_is_wrong_asks_again_by_the_servers(tmp_path: Path) -> None:
    desk = Desk()
    skewed = "<Error><Code>RequestTimeTooSkewed</Code></Error>"
    desk.says(Answer(404), Answer(403, skewed), Answer(200), Answer(200, "some bytes"))
    try:
        store = s3(Bucket(desk.url, Key("an-id", "a-secret"), Key("an-id", "a-secret")))

        reply = asked("keep", store, file(tmp_path / "f"))
    finally:
        desk.close()

    assert len(reply["kept"]) == 1
    assert [request.method for request in desk.asked] == ["GET", "PUT", "PUT", "GET"]
