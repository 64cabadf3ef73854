"""Run the job's own command briefly on this computer, on CPU and in a copy, before money is spent."""

import asyncio
import os
import shutil
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pydantic import AwareDatetime

from gpu_tenant.boxtext import plain
from gpu_tenant.errors import BadRequest
from gpu_tenant.ledger import Ledger
from gpu_tenant.ports import Clock
from gpu_tenant.record import Record
from gpu_tenant.worktree import files_of

_TAIL_CHARS = 2000


class SmokeReceipt(Record):
    """What happened when the command ran here; `provision` asks for a passed one."""

    id: str
    passed: bool
    command: str
    exit_status: int | None
    seconds: float
    wrote: tuple[str, ...]
    log_tail: str
    at: AwareDatetime
    next: str


async def smoke(
    directory: Path,
    command: str,
    *,
    time_limit_s: float,
    environ: Mapping[str, str],
    ledger: Ledger,
    clock: Clock,
) -> SmokeReceipt:
    """The command has run in a copy of `directory`, with CUDA hidden, and the outcome is on record.

    It runs in `environ`, which holds no key of an account: an agent may have chosen the command.

    A command that is still running well at the time limit is stopped and has failed: give the smoke
    a short command of its own (`--epochs 1`, `--smoke`), so that its end is seen too.

    Raises:
        BadRequest: `directory` is no directory.
    """
    if not directory.is_dir():
        raise BadRequest(f"{directory} is no directory", remedy="name the work tree to copy")
    copy = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="gpu-tenant-smoke-"))
    try:
        await asyncio.to_thread(_copy, directory, copy)
        before = {path: path.stat().st_mtime_ns for path in _files(copy)}
        started = clock.now()
        exit_status, output = await _run(command, copy, time_limit_s, environ)
        seconds = (clock.now() - started).total_seconds()
        wrote = [p for p in _files(copy) if before.get(p) != p.stat().st_mtime_ns]
    finally:
        await asyncio.to_thread(shutil.rmtree, copy, True)
    passed = exit_status == 0
    receipt = SmokeReceipt(
        id=f"smoke-{started:%Y%m%d-%H%M%S}-{os.urandom(2).hex()}",
        passed=passed,
        command=command,
        exit_status=exit_status,
        seconds=round(seconds, 2),
        wrote=tuple(sorted(str(path.relative_to(copy)) for path in wrote))[:20],
        log_tail=plain(output.decode(errors="replace"))[-_TAIL_CHARS:],
        at=started,
        next="provision(smoke=this id); what it wrote is what to declare as artifacts"
        if passed
        else "mend the command here, where it is free, and run smoke_test again",
    )
    ledger.file_smoke(receipt.id, receipt.model_dump_json(), at=clock.now())
    return receipt


def _copy(directory: Path, copy: Path) -> None:
    for name, source in files_of(directory).items():
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def _files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]


async def _run(
    command: str, directory: Path, time_limit_s: float, environ: Mapping[str, str]
) -> tuple[int | None, bytes]:
    environ = {
        **environ,
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONUNBUFFERED": "1",
        "WANDB_MODE": "disabled",
    }
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_shell(
            command,
            cwd=directory,
            env=environ,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(time_limit_s):
                exit_status: int | None = await process.wait()
        except TimeoutError:
            exit_status = None
        finally:
            _end_group(process.pid)
            await process.wait()
        log.seek(max(0, log.seek(0, os.SEEK_END) - 16 * _TAIL_CHARS))
        return exit_status, log.read()


def _end_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return
