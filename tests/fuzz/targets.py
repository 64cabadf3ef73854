"""What is fuzzed: each target makes one input after another, and tells what went wrong.

A find is an exception that is not one of ours, a reader that crashed or computed for too long, an answer
that lets through what a terminal would obey, or an input that takes more than 512 MiB of memory.
"""

import asyncio
import importlib.util
import json
import math
import random
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

from fuzz.mutation import mutated, mutated_json, with_each_number
from fuzz.recorded import PROVIDERS, answers, asking
from unit.formats.samples import GOOD

from box_scripts.caretaker import for_runner
from box_scripts.caretaker.patterns import Pattern
from box_scripts.caretaker.refusal import Refusal
from box_scripts.caretaker.requests import checked_arguments
from box_scripts.caretaker.verbs import function_of
from gpu_tenant.artifacts import prune
from gpu_tenant.artifacts.formats import ReadRequest, prove_all
from gpu_tenant.artifacts.formats.worker_pool import Readers
from gpu_tenant.box import caretaker as speaking
from gpu_tenant.box import job_queue, ownership
from gpu_tenant.box.audit import Needs
from gpu_tenant.box.audit import audit as judged
from gpu_tenant.box.idle_check import Activity
from gpu_tenant.box.script_replies import R, accepted_reply, read
from gpu_tenant.domain.errors import TenantError
from gpu_tenant.domain.model import LeaseId
from gpu_tenant.domain.offers import Wish
from gpu_tenant.domain.ports import Finished, Market
from gpu_tenant.domain.seal import Manifest
from gpu_tenant.domain.untrusted_text import bare
from gpu_tenant.files.gitignore import bytes_of, parse_rules
from gpu_tenant.files.paths import escape
from gpu_tenant.files.patterns import matches_kept_name, require_patterns
from gpu_tenant.transfer.protocol import Answer, Conversation, LinkBroken
from gpu_tenant.transfer.upload_worker import _refusal_of

SLOW_S = 20
"""No single input computes longer. What only waits is seen when its whole turn takes too long."""
_TOGETHER = 40
_STOPPED = (
    "its reader crashed",
    "its reader gave up",
    "its reader exits before it can be asked",
    "more computing",
)
_SCRIPTS = Path(__file__).parents[2] / "scripts"
_CORPUS = Path(__file__).parent / "corpus"
_MOST_BYTES = 512 << 20
_READERS_BYTES = 1 << 30
"""A reader may itself have 512 MiB more than it began with, and its libraries are large."""
_CEILING_BYTES = 4 << 30
"""Past this even an input that takes all there is gets no more, and the machine goes on."""


@dataclass(frozen=True)
class Find:
    """Something that should not have been; `input` makes it happen again, or where it is empty the seed does."""

    words: str
    input: bytes


Target = Callable[[random.Random], Generator[Find | None, None, None]]
"""Yields after each input, without end: None where all was well."""


def loads(draw: random.Random) -> Generator[Find | None, None, None]:
    """Every reader of a file format, over good files changed."""
    names, others = sorted(GOOD), list(GOOD.values())
    readers = Readers()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            while True:
                made = {}
                for number in range(_TOGETHER):
                    name = draw.choice(names)
                    path = Path(scratch) / f"{number}"
                    made[path] = (name, mutated(draw, GOOD[name], others))
                    path.write_bytes(made[path][1])
                files = [ReadRequest(path, name, len(held)) for path, (name, held) in made.items()]
                proofs = prove_all(files, readers=readers)
                for proof, (name, held) in zip(proofs, made.values(), strict=True):
                    assert proof is not None
                    said = [w for w in proof.verdict.not_proved if w.startswith(_STOPPED)]
                    said += [w for w in proof.verdict.not_proved if _STOPPED[-1] in w]
                    yield Find(f"{name}: {said[0]}", held) if said else None
    finally:
        readers.close()


_STATUS = {
    "ok": True,
    "job": "j",
    "state": "failed",
    "exit_code": 1,
    "signal": None,
    "started_at": 1e9,
    "reason": {"code": "exit", "evidence": "exit status 1", "signs": {}},
    "ended_at": 1e9 + 5,
    "now": 1e9 + 9,
    "boot_id": "b",
    "log_bytes": 3,
    "log": {"offset": 0, "next_offset": 3, "base64": "YWJj", "truncated": False},
    "sample": {"gpus": [{"index": 0, "name": "H100", "util_pct": 5}], "cpu_load1": 0.5, "procs": 3},
}
_MANIFEST = {
    "ok": True,
    "sealed_at": 1e9,
    "boot_id": "b",
    "since_ns": 1,
    "digest": "0" * 64,
    "entries": [
        {
            "name": "work/a",
            "at": "/root/a",
            "kind": "file",
            "class": "artifact",
            "size": 3,
            "sha256": "0" * 64,
            "mtime_ns": 5,
        }
    ],
    "unclaimed": {"count": 1, "bytes": 5, "largest": [{"at": "/root/b", "size": 5}]},
    "discarded": {
        "count": 0,
        "bytes": 0,
        "patterns": [{"pattern": "*.pyc", "count": 0, "bytes": 0}],
    },
    "pushed": {"count": 0, "bytes": 0},
    "problems": [{"at": "/root/c", "why": "unreadable", "detail": "EACCES"}],
    "unmatched": ["out/*.pt"],
}
_REPLIES: Mapping[str, tuple[type[Any], dict[str, object]]] = {
    "status": (speaking.JobStatus, _STATUS),
    "standing": (
        speaking.Standing,
        {"ok": True, "jobs": [{"job": "j", "state": "running"}], "now": 1e9},
    ),
    "manifest": (Manifest, _MANIFEST),
    "start": (
        speaking.Started,
        {"ok": True, "job": "j", "pid": 5, "started_at": 1e9, "already": False},
    ),
    "refusal": (speaking.JobStatus, {"ok": False, "code": "JOB_RUNNING", "message": "j runs"}),
}
_KEPT: Mapping[str, type[Any]] = {
    "roll": job_queue.Roll,
    "queued": job_queue.Queued,
    "withdrawn": job_queue.Withdrawn,
    "guard": speaking.Guard,
    "index": speaking.Index,
    "judged": speaking.Judged,
    "complete": prune.Complete,
    "pruned": prune.PrunedThere,
    "marked": ownership.Marked,
}


def _good(name: str) -> Any:
    return json.loads((_CORPUS / f"{name}.json").read_text(encoding="utf-8"))


def answered(draw: random.Random) -> Generator[Find | None, None, None]:
    """What a box's scripts reply, read as each of our replies."""
    kept = {name: (model, _good(f"replies/{name}")) for name, model in _KEPT.items()}
    replies = {**_REPLIES, **kept}
    while True:
        name = draw.choice(list(replies))
        model, good = replies[name]
        line = json.dumps(mutated_json(draw, good), ensure_ascii=draw.random() < 0.5)
        raw = line.encode(errors="surrogatepass")
        if draw.random() < 0.1:
            raw = mutated(draw, raw, [raw])
        yield _read(name, model, raw)


def _read(name: str, model: type[R], raw: bytes) -> Find | None:
    finished = Finished(exit_status=0, stdout=raw, stderr=b"")
    began = time.process_time()
    try:
        reply: Any = read(model, accepted_reply(name, finished, LeaseId("local-abcd")))
        if isinstance(reply, speaking.JobStatus) and reply.log:
            assert isinstance(reply.log.raw, bytes)
        if isinstance(reply, ownership.Marked):
            why = ownership.use(reply)
            if why is not None and (bare(why) != why or "\n" in why):
                return Find(f"{name}: {ascii(why)[:100]} came through", raw)
    except TenantError as told:
        words = [told.message, told.remedy]
        if len(str(told)) > 2100:
            return Find(f"{name}: an error of {len(str(told)):,} characters", raw)
    except Exception as surprise:  # noqa: BLE001  that is what is looked for
        return Find(f"{name}: {type(surprise).__name__}: {surprise}"[:300], raw)
    else:
        words = list(_texts(reply.model_dump(mode="json")))
    if time.process_time() - began > SLOW_S:
        return Find(f"{name}: slow", raw)
    unsafe = [w for w in words if bare(w) != w or "\n" in w or len(w) > 1 << 17]
    return Find(f"{name}: {ascii(unsafe[0])[:100]} came through", raw) if unsafe else None


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, held in value.items():
            yield from _texts(key)
            yield from _texts(held)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"fuzzed_{name}", _SCRIPTS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def requested(draw: random.Random) -> Generator[Find | None, None, None]:
    """What the caretaker is asked, of the verbs that only look."""
    with tempfile.TemporaryDirectory() as scratch:
        home, work = Path(scratch) / "home", Path(scratch) / "work"
        home.mkdir()
        work.mkdir()
        (work / "a.txt").write_text("a", encoding="utf-8")
        asked: dict[str, dict[str, object]] = {
            "status": {"job": "j", "offset": -10, "limit": 100, "sample": False},
            "tail": {"job": "j", "offset": 0, "limit": 100},
            "manifest": {
                "work": str(work),
                "roots": [],
                "artifacts": ["out/*.pt", "**/a.[a-z]xt"],
                "discard": ["*.pyc"],
                "ever": True,
                "hash": "taken",
            },
            "complete": {"work": str(work), "artifacts": ["a.txt"], "quiet_s": 0, "limit_s": 2},
            "index": {"work": str(work), "paths": ["a.txt"]},
        }
        while True:
            verb = draw.choice(list(asked))
            request = mutated_json(draw, asked[verb])
            if isinstance(request, dict) and not str(request.get("work", work)).startswith(scratch):
                request["work"] = str(work)
            if isinstance(request, dict):
                request.pop("roots", None)
            raw = json.dumps([verb, request]).encode()
            began = time.process_time()
            find = None
            try:
                checked = checked_arguments(verb, json.loads(raw)[1])
                checked.pop("tenant", None)
                function_of(verb)(str(home), checked)
            except (Refusal, OSError):
                pass
            except Exception as surprise:  # noqa: BLE001  that is what is looked for
                find = Find(f"{verb}: {type(surprise).__name__}: {surprise}"[:300], raw)
            if time.process_time() - began > SLOW_S:
                find = Find(f"{verb}: slow", raw)
            yield find


_MATCH_S = 0.05
"""No name of 255 characters takes a pattern longer."""
_GLOBS = (
    "a",
    "*",
    "**",
    "?",
    "/",
    "/**/",
    "**/",
    "*a",
    "a*",
    "[ab]",
    "[!a]",
    "[a-",
    "[[:alpha:]]",
    "\\",
    "\\*",
    "%00",
)
_GLOBS += ("%", "!", "]", "-", "é", ".", "b", " ", "#", "~/", "*a*a", "?*", "[ab]*")


def matched(draw: random.Random) -> Generator[Find | None, None, None]:
    """A pattern, and a rule of a `.gitignore`, matched with names of 255 characters: here and on the box."""
    while True:
        pieces = draw.choices(_GLOBS, k=draw.randint(1, 6))
        text = "".join(pieces) * draw.choice((1, 1, 3, 20, 60)) + draw.choice(_GLOBS)
        letters = draw.choice(("a", "ab", "a/", "aé", "a/b.", "\udcff"))
        name = "".join(draw.choice(letters) for _ in range(255)).strip("/") or "a"
        raw = json.dumps([text, name]).encode()
        took: dict[str, float] = {}
        try:
            for where, judge in (("the box", _on_box), ("here", _here), ("rules", _by_rules)):
                took[where] = _MATCH_S + 1
                for _ in range(3):  # a collection of garbage may fall into the first time
                    began = time.thread_time()
                    judge(text, name)
                    took[where] = min(took[where], time.thread_time() - began)
                    if took[where] <= _MATCH_S:
                        break
        except Exception as surprise:  # noqa: BLE001  that is what is looked for
            yield Find(f"{type(surprise).__name__}: {surprise}"[:300], raw)
            continue
        slow = [f"{where} took {spent:.3f} s" for where, spent in took.items() if spent > _MATCH_S]
        yield Find("; ".join(slow), raw) if slow else None


def _on_box(text: str, name: str) -> None:
    with suppress(Refusal):
        Pattern(text).matches(escape(name))


def _here(text: str, name: str) -> None:
    with suppress(TenantError):
        require_patterns([text])
        matches_kept_name(text, f"work/{escape(name)}")


def _by_rules(text: str, name: str) -> None:
    parts = bytes_of(name).split("/")
    for rule in parse_rules(text.encode(errors="surrogateescape")):
        rule.matches(parts, "directory")


class _Wired:
    """A channel to a courier that has said all that it ever will."""

    def __init__(self, said: bytes) -> None:
        self.reader, self._far = socket.socketpair()
        self.writer, self._heard = socket.socketpair()
        self._speaking = Thread(target=self._say, args=(said,))
        self._speaking.start()

    def _say(self, said: bytes) -> None:
        with suppress(OSError):
            self._far.sendall(said)
        self._far.close()

    def hang_up(self) -> None:
        for end in (self._far, self._heard):
            end.close()


def framed(draw: random.Random) -> Generator[Find | None, None, None]:
    """What a courier says over its channel."""
    packed = zlib.compress(b"x" * 500)
    good = b"noise of a login\nmark\n" + b"".join(
        b"%c\0\0\0" % letter + (1).to_bytes(4, "big") + len(body).to_bytes(8, "big") + body
        for letter, body in (
            (b"A", b""),
            (b"D", b"y" * 300),
            (b"Z", packed),
            (b"E", b'{"code": "GONE"}'),
        )
    )
    while True:
        said = mutated(draw, good, [packed, good])
        wired = _Wired(said)
        talk = Conversation(wired)
        began = time.process_time()
        find = None
        try:
            talk.greet(b"", "mark")
            for _ in range(4):
                head = talk.head()
                if head.letter == b"Z":
                    talk.read_packed(head.size_bytes, 500)
                else:
                    talk.body(head.size_bytes)
        except LinkBroken:
            pass
        except Exception as surprise:  # noqa: BLE001  that is what is looked for
            find = Find(f"{type(surprise).__name__}: {surprise}"[:300], said)
        finally:
            talk.close()
            wired._speaking.join()
        if time.process_time() - began > SLOW_S:
            find = Find("slow", said)
        yield find


def listed(draw: random.Random) -> Generator[Find | None, None, None]:
    """What each provider answers to whoever lists boxes and offers."""
    with asyncio.Runner() as loop, tempfile.TemporaryDirectory() as scratch:
        while True:
            provider = draw.choice(PROVIDERS)
            with asking(provider, Path(scratch)) as (connector, desk):
                good = answers(provider)
                for _ in range(20):
                    request = draw.choice(list(good))
                    said = json.dumps(mutated_json(draw, good[request]))
                    if draw.random() < 0.1:
                        whole = said.encode()
                        said = mutated(draw, whole, [whole]).decode(errors="replace")
                    desk.always = {path: json.dumps(x) for path, x in good.items()} | {
                        request: said
                    }
                    yield loop.run(_looked(connector, provider, f"{provider} {request}: {said}"))


def odd_numbers(provider: str) -> Iterator[Find | None]:
    """What each number of each answer does where it is none that one can calculate with."""
    good = answers(provider)
    with (
        asyncio.Runner() as loop,
        tempfile.TemporaryDirectory() as scratch,
        asking(provider, Path(scratch)) as (connector, desk),
    ):
        for request, answer in good.items():
            desk.always = {path: json.dumps(said) for path, said in good.items()}
            for odd in (math.nan, -math.inf, 10**400):
                for changed in with_each_number(answer, odd):
                    said = desk.always[request] = json.dumps(changed)
                    yield loop.run(_looked(connector, provider, f"{request}: {said}"))


async def _looked(connector: Any, provider: str, said: str) -> Find | None:
    find = None
    try:
        async with asyncio.timeout(15 * SLOW_S):
            with suppress(TenantError):
                for box in await connector.list_boxes():
                    price = box.price_usd_h
                    if price is not None and not (math.isfinite(price) and 0 <= price <= 100_000):
                        find = Find(f"{provider}: a price of {price}", said.encode())
            if isinstance(connector, Market):
                with suppress(TenantError):
                    await connector.offers(Wish())
    except Exception as surprise:  # noqa: BLE001  that is what is looked for
        return Find(f"{provider}: {type(surprise).__name__}: {surprise}"[:400], said.encode())
    return find


def probed(draw: random.Random) -> Generator[Find | None, None, None]:
    """What the probe on a box has seen, judged."""
    machines, at = _good("probe"), datetime(2026, 11, 22, tzinfo=UTC)
    needs = Needs(disk_gib=50)
    while True:
        observed = draw.choice(machines)
        part = draw.choice(list(observed))
        if isinstance(observed[part], dict) and isinstance(observed[part].get("out"), str):
            # Its words are of another program's making, and are read by us.
            out = mutated(draw, observed[part]["out"].encode(), [observed[part]["out"].encode()])
            observed = {**observed, part: {**observed[part], "out": out.decode(errors="replace")}}
        else:
            observed = mutated_json(draw, observed)
        if not isinstance(observed, dict):
            continue  # whoever reads the probe's answer wants an object first
        raw, began, find = json.dumps(observed).encode(), time.process_time(), None
        try:
            audit = judged(json.loads(raw), needs=needs, asked_at=at, answered_at=at)
            audit.model_dump_json()
            unsafe = [w for w in _texts(audit.model_dump(mode="json")) if bare(w) != w]
            if unsafe:
                find = Find(f"{ascii(unsafe[0])[:100]} came through", raw)
        except Exception as surprise:  # noqa: BLE001  that is what is looked for
            find = Find(f"{type(surprise).__name__}: {surprise}"[:300], raw)
        yield find or (Find("slow", raw) if time.process_time() - began > SLOW_S else None)


def idled(draw: random.Random) -> Generator[Find | None, None, None]:
    """What the judge of idleness on a box says."""
    good = _good("activity")
    while True:
        raw = json.dumps(mutated_json(draw, good)).encode()
        raw = mutated(draw, raw, [raw]) if draw.random() < 0.2 else raw
        find = None
        try:
            said = Activity.parse(raw).words
            find = Find(f"{ascii(said)[:100]} came through", raw) if bare(said) != said else None
        except TenantError:
            pass
        except Exception as surprise:  # noqa: BLE001  that is what is looked for
            find = Find(f"{type(surprise).__name__}: {surprise}"[:300], raw)
        yield find


def refused(draw: random.Random) -> Generator[Find | None, None, None]:
    """Why a courier would not do what it was asked, by its word."""
    good = _good("refusal")
    while True:
        raw = json.dumps(mutated_json(draw, good)).encode()
        if draw.random() < 0.4:
            raw = mutated(draw, raw, [raw, b"[" * 80])
        find = None
        try:
            _refusal_of(Answer(b"E", 1, len(raw)), raw)
        except LinkBroken:
            pass
        except Exception as surprise:  # noqa: BLE001  that is what is looked for
            find = Find(f"{type(surprise).__name__}: {surprise}"[:300], raw)
        yield find


_FRAME = struct.Struct(">cxxxIQ")


def served(draw: random.Random) -> Generator[Find | None, None, None]:
    """What a courier is asked: it answers in frames, or ends, and takes little time and memory for it."""
    good = _good("courier")
    with tempfile.TemporaryDirectory() as scratch:
        while True:
            place = Path(scratch) / "a" / "b" / "c" / "work"  # what climbs out climbs to nowhere
            place.mkdir(parents=True)
            (place / "a.bin").write_bytes(draw.randbytes(100_000))
            (place / "b.txt").write_bytes(b"hello")
            raw = b""
            for request in draw.sample(good, draw.randrange(1, len(good) + 1)):
                asked = mutated_json(draw, request) if draw.random() < 0.5 else request
                raw += json.dumps(asked).encode() + b"\n"
                raw += b"hello" if request["do"] == "write" else b""
            raw = mutated(draw, raw, [raw]) if draw.random() < 0.3 else raw
            yield _conversed(raw, place)
            shutil.rmtree(Path(scratch) / "a")


def _conversed(raw: bytes, place: Path) -> Find | None:
    courier = [sys.executable, "-I", "-S", str(_SCRIPTS / "courier.py"), "mark"]
    argv = ["sh", "-c", 'ulimit -t "$0"; exec "$@"', str(SLOW_S), *courier]
    try:
        ended = subprocess.run(
            argv, input=raw, capture_output=True, cwd=place, timeout=15 * SLOW_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Find("it hangs", raw)
    if ended.returncode < 0:
        return Find(f"it died of signal {-ended.returncode}", raw)
    rest = ended.stdout.removeprefix(b"mark\n")
    while len(rest) >= _FRAME.size:
        letter, _, size = _FRAME.unpack_from(rest)
        if letter not in b"DZSAE":
            return Find(f"it said {letter!r}", raw)
        if len(rest) < _FRAME.size + size:
            break
        rest = rest[_FRAME.size + size :]
    return Find("its last answer is not whole", raw) if rest and not ended.returncode else None


class _Records:
    """A caretaker's home with good records, and the scripts that read them."""

    def __init__(self, scratch: Path) -> None:
        self._queue = _script("runner")
        self._queue.caretaker = for_runner
        self._home, work = scratch / "home", scratch / "work"
        work.mkdir()
        self.good = {name: text.replace("WORK", str(work)) for name, text in _good("state").items()}
        self.asked: dict[str, dict[str, object]] = {
            "status": {"job": "j", "offset": -10, "limit": 100},
            "manifest": {"work": str(work)},
            "complete": {"work": str(work), "quiet_s": 0, "limit_s": 2},
            "guard": {},
            "roll": {},
        }

    def read(self, verb: str, name: str, content: bytes) -> Find | None:
        """What that verb makes of the record `name` with that content, if it is not an answer or a refusal."""
        shutil.rmtree(self._home, ignore_errors=True)
        for other, text in self.good.items():
            (self._home / other).parent.mkdir(parents=True, exist_ok=True)
            (self._home / other).write_text(text, encoding="utf-8")
        (self._home / name).write_bytes(content)
        raw = json.dumps([verb, name, content.decode("utf-8", "surrogateescape")]).encode()
        home, began = str(self._home), time.process_time()
        try:
            if verb == "roll":
                self._queue.roll(home, self._queue.checked("roll", self.asked[verb]))
            else:
                function_of(verb)(home, checked_arguments(verb, self.asked[verb]))
        except (Refusal, OSError):
            pass
        except Exception as surprise:  # noqa: BLE001  that is what is looked for
            return Find(f"{verb} {name}: {type(surprise).__name__}: {surprise}"[:300], raw)
        slow = time.process_time() - began > SLOW_S
        return Find(f"{verb}: slow", raw) if slow else None


def remembered(draw: random.Random) -> Generator[Find | None, None, None]:
    """The records of jobs, guard and queue on a box, where jobs can write, read by the scripts there."""
    with tempfile.TemporaryDirectory() as scratch:
        records = _Records(Path(scratch))
        while True:
            name = draw.choice([name for name in records.good if not name.endswith("/log")])
            lines = []
            for line in records.good[name].splitlines():
                said = line
                if draw.random() < 0.7:
                    said = json.dumps(mutated_json(draw, json.loads(line)))
                lines.append(said)
            content = "\n".join(lines).encode()
            content = mutated(draw, content, [content]) if draw.random() < 0.3 else content
            # A seal watches for a second who is at work.
            verb = draw.choice(["status", "guard", "roll"] * 5 + list(records.asked))
            yield records.read(verb, name, content)


def remembered_again() -> dict[str, Find | None]:
    """What becomes of each record that once crashed a reader, by the name of its file in the corpus."""
    with tempfile.TemporaryDirectory() as scratch:
        records, finds = _Records(Path(scratch)), {}
        for file in sorted((_CORPUS / "records").iterdir()):
            verb, name, content = json.loads(file.read_bytes())
            finds[file.name] = records.read(verb, name, content.encode("utf-8", "surrogateescape"))
        return finds


TARGETS: Mapping[str, Target] = {
    target.__name__: target
    for target in (
        loads,
        answered,
        requested,
        matched,
        framed,
        listed,
        probed,
        idled,
        refused,
        served,
        remembered,
    )
}


def run(
    name: str, seed: int, *, inputs: int | None = None, seconds: float = 3600
) -> tuple[int, list[Find]]:
    """How many inputs there were, so many or as the time allowed, and what was found; each kind of find once.

    All of that happens in a process of its own: what it takes of memory is told, and limited.
    """
    argv = [
        sys.executable,
        str(Path(__file__).parent),
        "alone",
        name,
        str(seed),
        str(seconds),
        str(inputs or ""),
    ]
    try:
        ended = subprocess.run(
            argv, stdout=subprocess.PIPE, check=False, timeout=20 * seconds + 1800
        )
    except subprocess.TimeoutExpired:
        return 0, [Find(f"{name} with seed {seed} hangs", b"")]
    if ended.returncode:
        return 0, [Find(f"{name} with seed {seed} ended with status {ended.returncode}", b"")]
    told = json.loads(ended.stdout.splitlines()[-1])
    finds = [Find(words, b64decode(content)) for words, content in told["finds"]]
    return told["inputs"], finds


def run_alone(name: str, seed: int, seconds: float, inputs: int | None) -> str:
    """The same as one line of JSON, for `run`, in this process."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (_CEILING_BYTES, hard))
    finds: dict[str, Find] = {}
    had = 0
    made = TARGETS[name](random.Random(seed))
    begun, until = _peak_bytes(resource.RUSAGE_SELF), time.monotonic() + seconds
    allowed = {
        resource.RUSAGE_SELF: begun + _MOST_BYTES,
        resource.RUSAGE_CHILDREN: begun + (_READERS_BYTES if name == "loads" else _MOST_BYTES),
    }
    try:
        for find in made:
            had += 1
            if find is not None:
                finds.setdefault(find.words[:60], find)
            for whose, most_bytes in allowed.items():
                peak_bytes = _peak_bytes(whose)
                if peak_bytes > most_bytes:
                    allowed[whose] = peak_bytes + _MOST_BYTES
                    words = f"{peak_bytes >> 20} MiB of memory at input {had} with seed {seed}"
                    finds.setdefault(words, Find(words, b""))
            if had == inputs or time.monotonic() > until:
                break
    finally:
        made.close()
    told = [[find.words, b64encode(find.input).decode()] for find in finds.values()]
    return json.dumps({"inputs": had, "finds": told})


def _peak_bytes(whose: int) -> int:
    """The most memory that this process, or one of its ended children, has ever had."""
    peak = resource.getrusage(whose).ru_maxrss
    return peak if sys.platform == "darwin" else peak << 10
