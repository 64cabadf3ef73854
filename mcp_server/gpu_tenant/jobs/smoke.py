"""The smoke test: runs the job's own command briefly on this computer's CPU, before money is spent.

The command runs in a copy of the work tree. An agent may have chosen the command, and a stranger may have written the
program. So the command has a home directory of its own and, as far as this system allows (`jobs/sandbox.py`), no
access to the owner's keys. All processes that it started are ended with it.
"""

import asyncio
import fcntl
import json
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Literal

from pydantic import AwareDatetime, Field

from gpu_tenant.artifacts.file_sets import half_sets
from gpu_tenant.artifacts.formats import inspect
from gpu_tenant.artifacts.left_behind import left_out_words, reasons_of
from gpu_tenant.artifacts.work_tree import read_work_tree
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command, Option
from gpu_tenant.domain.errors import BadRequest, LocalTrouble
from gpu_tenant.domain.gpu_memory import GpuMemory
from gpu_tenant.domain.model import LeaseId
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.trackers import kept_by_default
from gpu_tenant.domain.untrusted_text import fence, plain, quote_text
from gpu_tenant.domain.wording import in_words, some
from gpu_tenant.files.missing_file import missing_files
from gpu_tenant.files.patterns import (
    literal_pattern,
    matches_kept_name,
    patterns_alike,
    told_apart,
)
from gpu_tenant.files.protected_files import Guarded, homes
from gpu_tenant.files.remove_tree import remove_tree
from gpu_tenant.files.worktree import left_out_lines, left_out_reasons
from gpu_tenant.jobs import memory_estimate, memory_probe, sandbox
from gpu_tenant.ledger import Ledger
from gpu_tenant.providers.credentials import read_table

HEAR_EVERY_S = 10.0
"""The progress of a smoke test is reported this often, in real time."""
_TAIL_CHARS = 2000
_LINE_CHARS = 80
_PATIENCE_S = 10
_PREFIX = "gpu-tenant-smoke-"
"""The name of each test's own directory begins like this."""
_MARK = ".smoke"
"""A file in each test's own directory. A directory with such a name is removed only if it contains this file."""
_PROBE = "probe"
"""The directory that holds a copy of `memory_probe.py`, and what the probe wrote."""
_SHOWN = 20
"""At most this many of the files that the smoke test wrote are named in its receipt."""
_LARGEST = 20
"""So many of the largest files that the smoke test wrote are named in its receipt with their sizes."""
_NAMED = 3
"""A command that we propose names at most this many undeclared files."""
_JUDGED, _JUDGED_BYTES = 200, 64 << 20
"""So many of the files that the smoke test wrote are judged, and none that is larger."""
_CACHES_BY_NAME = (
    "__pycache__/",
    "*.pyc",
    ".cache/",
    ".ipynb_checkpoints/",
    ".pytest_cache/",
    ".triton/",
)
"""Names by which a box recognises a cache. Here are those that a smoke test may write."""
_CACHES = {"HF_HUB_CACHE": ".cache/huggingface/hub", "TORCH_HOME": ".cache/torch"}
"""The caches of earlier downloads: the variable that names each one, and its place below a home directory.

The test may read them. New downloads go to an overlay on top of them, which is deleted with the test.
"""

Network = Literal["full", "none"]


_USED_AGAIN_FOR = timedelta(days=1)
"""A passed smoke test is used again for this long. After that, other packages may be installed here."""


class SmokeReceipt(Record):
    """What happened when the command ran on this computer. `provision` asks for a receipt that passed."""

    id: str
    passed: bool
    command: str
    exit_status: int | None
    seconds: float
    wrote: tuple[str, ...]
    large: dict[str, int] = Field(
        default={}, description="the largest files that it wrote, with their sizes"
    )
    log_tail: str
    at: AwareDatetime
    next: str
    confined: str = Field(
        default="not at all", description="how it was kept away from this computer's files"
    )
    left_out: tuple[str, ...] = Field(
        default=(), description="what was left out of its copy, as for a push"
    )
    missing: tuple[str, ...] = Field(
        default=(), description="files left out that its log reports missing"
    )
    peak_bytes: int | None = Field(
        default=None, description="memory of its largest process here; None: unknown"
    )
    directory: str = Field(default="", description="the work tree that was copied")
    tree: str = Field(default="", description="fingerprint of its files; empty: not recorded")
    include: tuple[str, ...] = Field(default=(), description="what was copied although left out")
    gpu_memory: GpuMemory | None = Field(
        default=None,
        description="the GPU memory that it will want; None: torch took no optimizer step",
    )
    doubtful: tuple[str, ...] = Field(
        default=(),
        description="what would be doubted of a job's work that ends like this: files, sets, the log",
    )


async def smoke(
    directory: Path,
    command: str,
    *,
    time_limit_s: float,
    environ: Mapping[str, str],
    ledger: Ledger,
    guarded: Guarded,
    network: Network = "full",
    include: Sequence[str] = (),
    hear: Callable[[float, str], None] | None = None,
    hear_every_s: float = HEAR_EVERY_S,
) -> SmokeReceipt:
    """Run the command in a copy of `directory`, with CUDA hidden, and record the outcome.

    The copy holds exactly what a push with the same `include` would send.

    The command gets the variables in `environ`, which must hold no key of an account, and a HOME and a TMPDIR of its
    own. If the system lets us make namespaces, the command sees only the tree and the programs of the owner's files,
    and can write only to its copy. If not, the receipt says so. All processes that it started are ended.

    A command that still runs at the time limit is stopped, and has failed. Give the smoke test a short
    command (`--epochs 1`, `--smoke`), so that the end of the command is tested, too.

    While the command runs, `hear` is called every `hear_every_s` seconds, with the seconds since the start and the
    last line of the log.

    Raises:
        BadRequest: `directory` is not a directory, or the command is not text.
    """
    if "\0" in command or not os.path.isdir(directory):  # noqa: PTH112 - its Path cousin raises where no name is that long
        raise BadRequest(
            f"{str(directory)[:200]!r} is not a directory, or the command is not text",
            remedy="name the work tree to copy",
        )
    with _cleaned_up_at_a_signal():
        async with _place() as own:
            copy = own / "tree"
            for name in ("tree", "home", "tmp", _PROBE):
                (own / name).mkdir(mode=0o700)
            # Python runs a module of this name at every start. The probe then waits until torch is imported.
            shutil.copyfile(memory_probe.__file__, own / _PROBE / "sitecustomize.py")
            work = await read_work_tree(directory, include)
            tree, _ = await asyncio.to_thread(fingerprint, work.files)
            await asyncio.to_thread(_copy, work.files, directory, copy, guarded)
            before = {path: path.stat().st_mtime_ns for path in _files(copy)}
            inside = _Inside(own, directory.resolve(), environ, guarded, network)
            started, began_s = ledger.now(), monotonic()
            exit_status, output, confined, peak_bytes = await _run(
                command, inside, time_limit_s, hear, hear_every_s
            )
            # Not by the ledger's clock, which may jump in a rehearsal.
            seconds = monotonic() - began_s
            wrote = [p for p in _files(copy) if before.get(p) != p.stat().st_mtime_ns]
            sizes = {str(path.relative_to(copy)): path.stat().st_size for path in wrote}
            seen = await asyncio.to_thread(memory_estimate.seen_in, own / _PROBE)
            doubtful = await asyncio.to_thread(_doubts_of_files, copy, wrote)
    passed = exit_status == 0
    doubtful += _doubts_of_log(output.decode(errors="replace")) if passed else []
    log_tail = plain(output.decode(errors="replace"))[-_TAIL_CHARS:]
    left_out = left_out_reasons(work.left_out)
    missing = () if passed else missing_files(log_tail, left_out, root=str(copy), here=directory)
    receipt_id = f"smoke-{started:%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"
    receipt = SmokeReceipt(
        id=receipt_id,
        passed=passed,
        command=command,
        exit_status=exit_status,
        seconds=round(seconds, 2),
        wrote=_some_of_each_place([*sizes]),
        large=dict(sorted(sizes.items(), key=lambda item: -item[1])[:_LARGEST]),
        log_tail=log_tail,
        at=started,
        next=f"{Command('offers')}, then {Command('provision', quote='QUOTE', smoke=receipt_id)}; declare what "
        "the command wrote as artifacts"
        if passed
        else _after_failure(directory, command, include, left_out, missing),
        confined=confined,
        left_out=left_out_lines(work.left_out),
        missing=missing,
        peak_bytes=peak_bytes,
        directory=str(directory.resolve()),
        tree=tree,
        include=tuple(include),
        gpu_memory=memory_estimate.estimate(seen),
        doubtful=tuple(doubtful),
    )
    ledger.file_smoke(receipt.id, receipt.model_dump_json(), at=ledger.now())
    return receipt


def _doubts_of_files(directory: Path, wrote: Sequence[Path]) -> list[str]:
    """Judge what the command wrote as the work of a job is judged at its end."""
    small = [path for path in wrote if path.stat().st_size <= _JUDGED_BYTES][:_JUDGED]
    names = {path: str(path.relative_to(directory)) for path in wrote}
    told = [
        half.words for half in half_sets({f"work/{name}": path for path, name in names.items()})
    ]
    for path in small:
        verdict = inspect(path, name=names[path])
        if verdict.outcome == "broken":
            as_what = "" if verdict.format == "unknown" else f" as {verdict.format}"
            problem = quote_text(verdict.problem or "")
            told.append(f"{quote_text(names[path])} does not load{as_what}: {problem}")
    more = [f"and {some(len(told) - _NAMED, 'more file')}"] if told[_NAMED:] else []
    return [*told[:_NAMED], *more]


def _doubts_of_log(log: str) -> list[str]:
    from gpu_tenant.jobs.log_end import last_crash

    crash = last_crash(log)
    return [f"{quote_text(crash.words)}, although its exit status is 0"] if crash else []


@asynccontextmanager
async def _place() -> AsyncIterator[Path]:
    """Make the test's own directory, and remove it at the end. First remove the directories of tests that were killed.

    While a test runs, it has a lock on its directory. The system releases the lock when the test's process ends, even
    if it is killed.
    """
    own, held = await asyncio.to_thread(_make_place)
    try:
        await asyncio.to_thread(_remove_what_was_left, own.parent)
        yield own
    finally:
        await asyncio.to_thread(remove_tree, own)
        os.close(held)


def _make_place() -> tuple[Path, int]:
    """Return a new directory, and the open file that holds its lock."""
    own = Path(tempfile.mkdtemp(prefix=_PREFIX)).resolve()
    held = os.open(own, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    # Another test may remove the directory only from now on.
    (own / _MARK).touch(mode=0o600)
    return own, held


def _remove_what_was_left(parent: Path) -> None:
    for left in parent.glob(f"{_PREFIX}*"):
        # A directory that somebody else made under such a name has no mark.
        with suppress(OSError):
            if left.lstat().st_uid != os.getuid() or not (left / _MARK).is_file():
                continue
            seen = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(seen, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(left)
            finally:
                os.close(seen)


@contextmanager
def _cleaned_up_at_a_signal() -> Iterator[None]:
    """While the block runs, let SIGTERM and SIGHUP first cancel it, so that it cleans up, and then end this program.

    If the program already has a handler for one of these signals, this handler stays.
    """
    task, got = asyncio.current_task(), list[signal.Signals]()
    assert task is not None

    def end(number: signal.Signals) -> None:
        if not got:  # a second signal must not interrupt the cleaning up
            task.cancel()
        got.append(number)

    loop, caught = asyncio.get_running_loop(), list[signal.Signals]()
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Outside of the main thread nobody can handle a signal.
        with suppress(ValueError, RuntimeError, NotImplementedError):
            if signal.getsignal(number) is signal.SIG_DFL:
                loop.add_signal_handler(number, end, number)
                caught.append(number)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)
        if got:
            os.kill(os.getpid(), got[0])


def _after_failure(
    directory: Path,
    command: str,
    include: Sequence[str],
    left_out: Mapping[str, str],
    missing: Sequence[str],
) -> str:
    """Say what to do about a smoke test that failed. Name what was left out of its copy: a job would lack it, too."""
    if missing:
        names = list(dict.fromkeys((*include, *missing)))
        again = Command("smoke", directory, include=names, then=command)
        words = left_out_words(missing, reasons_of(missing, left_out), "its copy, like a push,")
        return f"{again}: {words}"
    again = Command("smoke", "DIR", then="COMMAND")
    words = f"correct the command on this computer, where it costs nothing, then {again} again"
    if not left_out:
        return words
    return f"{words}; if it needs what was left out: {Option('include', 'NAME')}"


def network_of(configuration: Path) -> Network:
    """Return whether smoke tests may use the network: the setting `network` in `[smoke]`. "full" if it is absent.

    Raises:
        LocalTrouble: the setting is neither "full" nor "none".
    """
    match read_table(configuration, "smoke").get("network", "full"):
        case "full":
            return "full"
        case "none":
            return "none"
        case _:
            raise LocalTrouble(
                f'{configuration}: `network` of [smoke] is neither "full" nor "none"',
                remedy="correct that file",
            )


def fence_output(receipt: SmokeReceipt) -> SmokeReceipt:
    """Put the log between tags that tell a model that the text is data, not instructions."""
    if not receipt.log_tail:
        return receipt
    return receipt.model_copy(
        update={
            "log_tail": fence(
                receipt.log_tail, nonce=secrets.token_hex(4), of="the smoke test's log, from here"
            )
        }
    )


def _copy(files: Mapping[str, Path], directory: Path, copy: Path, guarded: Guarded) -> None:
    keys = set(guarded.keys_among(directory, files))
    for name, source in files.items():
        if name in keys:
            continue
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def _some_of_each_place(names: Sequence[str]) -> tuple[str, ...]:
    """Return at most `_SHOWN` names, some of each directory, so that one directory does not hide the others."""
    places: dict[str, int] = {}
    ranked: list[tuple[int, str]] = []
    for name in sorted(names):
        place = name.partition("/")[0]
        places[place] = places.get(place, 0) + 1
        ranked.append((places[place], name))
    return tuple(sorted(name for _, name in sorted(ranked)[:_SHOWN]))


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]


class _Inside:
    """Which files, variables and networks of this computer the command can see."""

    def __init__(
        self,
        own: Path,
        directory: Path,
        environ: Mapping[str, str],
        guarded: Guarded,
        network: Network,
    ) -> None:
        self._own, self._directory, self._environ = own, directory, environ
        self._guarded, self._network = guarded, network
        said = Path(environ.get("HOME") or Path.home())
        # The home that the caller names is the last, so that its caches count.
        self._homes = tuple(dict.fromkeys(home.resolve() for home in (*reversed(homes()), said)))

    @property
    def environ(self) -> dict[str, str]:
        """The command's variables: the owner's, changed so that none leads to the owner's own files."""
        usual = {n: value for n, value in self._environ.items() if not n.startswith("XDG_")}
        caches = {
            name: str(home / place)
            for home in self._homes
            for name, place in _CACHES.items()
            if (home / place).is_dir()
        }
        modules = filter(None, (str(self._own / _PROBE), usual.get("PYTHONPATH")))
        return {
            **caches,
            **usual,
            "PYTHONPATH": os.pathsep.join(modules),
            "HOME": str(self._own / "home"),
            "TMPDIR": str(self._own / "tmp"),
            "CUDA_VISIBLE_DEVICES": "",
            "PYTHONUNBUFFERED": "1",
            "WANDB_MODE": "disabled",
        }

    def request(self, command: str, says: int) -> str:
        """Return the request in the form that `jobs/sandbox.py` takes: JSON."""
        hidden = {*self._homes, *(p for p in self._guarded.places if p.is_dir())} - {Path("/")}
        return json.dumps(
            {
                "command": command,
                "parent": os.getpid(),
                "work": str(self._own / "tree"),
                "own": str(self._own),
                "says": says,
                "hidden": sorted(map(str, hidden)),
                "shown": list(dict.fromkeys(map(str, self._visible_paths()))),
                "layered": [
                    place for name in _CACHES if Path(place := self.environ.get(name, "")).is_dir()
                ],
                "masked": [str(place) for place in self._guarded.places if place.is_file()],
                "network": self._network,
            }
        )

    def _visible_paths(self) -> Iterator[Path]:
        """Yield the places that the command may see: the tree, programs, and the libraries that programs need."""
        if not self._guarded.meets(self._directory):
            yield from self._not_a_home(self._directory)
        prefixes = (self._environ.get("VIRTUAL_ENV"), self._environ.get("CONDA_PREFIX"))
        for prefix in (sys.prefix, sys.base_prefix, *prefixes):
            if prefix:
                yield from self._not_a_home(Path(prefix))
        for entry in self._environ.get("PATH", "").split(os.pathsep):
            place = Path(entry)
            if place.is_absolute():
                whole = place.name in ("bin", "shims") and place.parent.name != ".local"
                yield from self._not_a_home(place.parent if whole else place)
        for home in self._homes:
            for name in (".local/lib", ".local/share/uv"):
                yield from self._not_a_home(home / name)

    def _not_a_home(self, place: Path) -> Iterator[Path]:
        """Yield that place, and the place where its links lead, if they exist and contain no home directory."""
        for path in (place, place.resolve()):
            real = path.resolve()
            if path.exists() and not any(home.is_relative_to(real) for home in self._homes):
                yield path


async def _run(
    command: str,
    inside: _Inside,
    time_limit_s: float,
    hear: Callable[[float, str], None] | None,
    hear_every_s: float,
) -> tuple[int | None, bytes, str, int | None]:
    """Run the command, and end all its processes.

    Returns four values. The first is the exit status (None if it did not end in time). The second is the end of the
    output. The third says how the command was confined, as in `SmokeReceipt.confined`. The last is the peak memory of
    the largest process, in bytes (None if unknown).
    """
    told, says = os.pipe()
    with tempfile.TemporaryFile() as log, os.fdopen(told, "rb") as telling:
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-I",
                sandbox.__file__,
                inside.request(command, says),
                env=inside.environ,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(says,),
            )
        finally:
            os.close(says)
        exit_status: int | None = None
        telling_of_it = asyncio.create_task(_tell_how_far(log.fileno(), hear, hear_every_s))
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(time_limit_s):
                    exit_status = await process.wait()
        finally:
            telling_of_it.cancel()
            await _end_process(process)
        confined = (await asyncio.to_thread(telling.readline)).decode(errors="replace").strip()
        peak = (await asyncio.to_thread(telling.readline)).strip()
        log.seek(max(0, log.seek(0, os.SEEK_END) - 16 * _TAIL_CHARS))
        peak_bytes = int(peak) if peak.isdigit() else None
        return exit_status, log.read(), confined or "not at all", peak_bytes


async def _tell_how_far(
    log: int, hear: Callable[[float, str], None] | None, every_s: float
) -> None:
    """Report, until cancelled, for how long the command has run, and the last line of its log."""
    began_s = monotonic()
    while hear is not None:
        await asyncio.sleep(every_s)
        # The command writes at the position of this descriptor, so read without moving the position.
        end = os.pread(log, _TAIL_CHARS, max(0, os.fstat(log).st_size - _TAIL_CHARS))
        lines = plain(end.decode(errors="replace")).replace("\r", "\n").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        hear(monotonic() - began_s, last[:_LINE_CHARS])


async def _end_process(process: asyncio.subprocess.Process) -> None:
    """End the process and everything that it started."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(_PATIENCE_S):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def fingerprint(files: Mapping[str, Path]) -> tuple[str, int]:
    """Return a hash of these files' names, sizes and times of change, and the newest of these times, in nanoseconds."""
    digest, newest_ns = sha256(), 0
    for name, seen in file_stats(files):
        newest_ns = max(newest_ns, seen.st_mtime_ns)
        digest.update(f"{name}\0{seen.st_size}\0{seen.st_mtime_ns}\0".encode())
    return digest.hexdigest(), newest_ns


def file_stats(files: Mapping[str, Path]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield each file's name and what the file system says of it. A file that was removed meanwhile is left out."""
    for name, path in sorted(files.items()):
        with suppress(FileNotFoundError, NotADirectoryError):
            yield name, path.stat()


def newest_test_of(directory: str, *, ledger: Ledger) -> SmokeReceipt | None:
    """Return the newest of that work tree's smoke tests, if it passed. Otherwise None."""
    record = ledger.newest_smoke(directory)
    receipt = None if record is None else SmokeReceipt.model_validate_json(record)
    return receipt if receipt is not None and receipt.passed else None


def passed_before(
    directory: str, command: str, include: Sequence[str], tree: str, *, ledger: Ledger
) -> SmokeReceipt | None:
    """Return the newest of the work tree's smoke tests, if it passed not long ago with the same files and command."""
    receipt = newest_test_of(directory, ledger=ledger)
    if receipt is None or ledger.now() - receipt.at > _USED_AGAIN_FOR:
        return None
    same = (receipt.command, receipt.include, receipt.tree) == (command, tuple(include), tree)
    return receipt if same else None


def undeclared(
    tested: SmokeReceipt | None, artifacts: Sequence[str], discard: Sequence[str], *, limit: int
) -> list[str]:
    """Return the files that nobody declared and that do not come home unasked: together they exceed `limit` bytes.

    If the job writes them, too, somebody must decide about them. The smallest of them count first.
    """
    if tested is None:
        return []
    found, left_bytes = [], limit
    for name in reversed(_undeclared([*tested.large], artifacts, discard)):
        left_bytes -= tested.large[name]
        if left_bytes < 0:
            found.append(name)
    return found


def _undeclared(
    wrote: Sequence[str], artifacts: Sequence[str], discard: Sequence[str]
) -> list[str]:
    kept, lost = told_apart(*kept_by_default(artifacts, discard))
    known = (*kept, *lost, *_CACHES_BY_NAME)
    return [
        name for name in wrote if not any(matches_kept_name(each, f"work/{name}") for each in known)
    ]


def _test_for(lease: LeaseId, directory: str, *, ledger: Ledger) -> SmokeReceipt | None:
    """Return the smoke test with which the lease was rented, if it was of that work tree. Otherwise the newest test."""
    rented_with = [
        event.smoke
        for _, event in ledger.events(lease, timeline.Tested)
        if isinstance(event, timeline.Tested)
    ]
    record = ledger.smoke(rented_with[-1]) if rented_with else None
    receipt = SmokeReceipt.model_validate_json(record) if record else None
    if receipt is not None and receipt.directory == directory:
        return receipt
    return newest_test_of(directory, ledger=ledger)


def left_out_of_push(
    lease: LeaseId, directory: str, included: Collection[str], *, ledger: Ledger
) -> str | None:
    """Say which files were given by `--include` to the smoke test of that work tree, but to no push. None if none."""
    tested = _test_for(lease, directory, ledger=ledger)
    sent = {name.rstrip("/") for name in included}
    names = [
        name
        for name in (tested.include if tested else ())
        if name.rstrip("/") not in sent and (Path(directory) / name).exists()
    ]
    if tested is None or not names:
        return None
    again = Command("push", directory, lease, include=names)
    return f"{tested.id} passed with {', '.join(names)}, which stayed here: {again} sends it"


def unclaimed_output(
    lease: LeaseId,
    directory: str,
    artifacts: Sequence[str],
    discard: Sequence[str],
    *,
    ledger: Ledger,
) -> str | None:
    """Say which large files the smoke test of that work tree wrote that these patterns do not declare. None if none."""
    tested = newest_test_of(directory, ledger=ledger)
    limit = ledger.lease(lease).terms.unasked_bytes
    names = undeclared(tested, artifacts, discard, limit=limit)
    if tested is None or not names:
        return None
    patterns = [literal_pattern(name) for name in names]
    keep = Command("collect", lease, artifact=patterns_alike(names)[:_NAMED])
    give_up = Command("collect", lease, discard=patterns[:_NAMED])
    wrote = in_words([quote_text(name) for name in names])
    if len(names) == 1:
        return (
            f"{tested.id} wrote {wrote}, which no job here declares: if the job writes it, too, {keep} keeps it, and "
            f"{give_up} gives it up"
        )
    return (
        f"{tested.id} wrote {wrote}, which no job here declares: if the job writes them, too, {keep} keeps them, and "
        f"{give_up} gives them up"
    )
