"""A durable store that is reached through rclone: any remote of the owner's, or a bucket with the S3 protocol."""

import asyncio
import json
import shutil
import tempfile
from asyncio.streams import StreamReader
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Collection, Mapping
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from gpu_tenant.artifacts.stores.locality import Whereabouts
from gpu_tenant.artifacts.stores.rclone_config import leads
from gpu_tenant.domain.errors import NotStored, StoreTrouble
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.files.paths import is_unseen
from gpu_tenant.providers.response_limits import BOUNDS, Bounds

S3_REMOTE = "tenant"
"""The name of the rclone remote for a bucket. It is defined only in the environment of one rclone process."""
_ABSENT = (3, 4)
"""rclone's exit statuses for a directory that does not exist, and for a file that does not."""
_SHOWN, _READ = 300, 30_000
_FILE_S, _SLOWEST_BYTES_S = 3600, 20_000
"""A file may take an hour, and one more second for each 20,000 bytes. A slower transfer counts as hung."""
_DAY_S = 86_400
"""A file of unknown size may take this many seconds."""
_DUMP = TypeAdapter(dict[str, dict[str, str]])


class RcloneStore:
    """Files below one path of a remote. Each call runs one rclone process.

    Secrets are in the environment of that process, never in its arguments and never in a file.
    """

    def __init__(
        self,
        root: str,
        *,
        words: str,
        environ: Mapping[str, str],
        secrets: Collection[str] = (),
        attempts: int = 5,
        where: Whereabouts | None = None,
        bounds: Bounds = BOUNDS,
    ) -> None:
        self._bounds = bounds
        self._root = root.rstrip("/")
        self.words = words
        self._environ = dict(environ)
        # rclone fails if this variable names a certificate bundle, but accepts the same file in its
        # own variable.
        bundle = self._environ.pop("AWS_CA_BUNDLE", None)
        if bundle:
            self._environ.setdefault("RCLONE_CA_CERT", bundle)
        self._secrets = tuple(secrets)
        self._attempts = attempts
        self._where = where

    def with_settings(self, *, attempts: int, settings: Mapping[str, str]) -> "RcloneStore":
        """Return the same store with further rclone variables (`settings`). Each call is tried `attempts` times."""
        return RcloneStore(
            self._root,
            words=self.words,
            environ={**self._environ, **settings},
            secrets=self._secrets,
            attempts=attempts,
            where=self._where,
            bounds=self._bounds,
        )

    async def where(self) -> Whereabouts:
        """Do the same as `DurableStore.where`, using the owner's rclone configuration."""
        if self._where is None:
            self._where = await self._find_remote()
        return self._where

    async def _find_remote(self) -> Whereabouts:
        try:
            status, said = await self._run("config", "dump")
            settings = _DUMP.validate_json(said) if not status else None
        except (StoreTrouble, ValidationError):
            settings = None
        if settings is None:
            return Whereabouts(unknown="rclone does not show its configuration")
        return leads(self._root, settings, self._environ)

    async def put(self, source: Path, name: str, *, superseded: str) -> None:
        """Do the same as `DurableStore.put`."""
        status, said = await self._run("lsjson", "--stat", self._place(name))
        if status == 0 and _is_file(said):
            await self._must("moveto", self._place(name), self._place(superseded), within_s=_FILE_S)
        elif status not in (0, *_ABSENT):
            raise self._trouble(said)
        # Without `--ignore-times`, rclone sends nothing if the store has a file of equal size and
        # time, because it thinks that it is the same file.
        with tempfile.TemporaryDirectory() as plainly:
            # Use a link whose name we choose: rclone changes some quotation marks in names, and
            # then finds no file.
            link = Path(plainly) / "source"
            link.symlink_to(source.absolute())
            await self._must(
                "copyto",
                "--ignore-times",
                "--copy-links",
                str(link),
                self._place(name),
                within_s=_FILE_S + source.stat().st_size / _SLOWEST_BYTES_S,
            )

    async def get(self, name: str, into: Path) -> None:
        """Do the same as `DurableStore.get`."""
        status, said = await self._run(
            "copyto", self._place(name), str(into.absolute()), within_s=_DAY_S
        )
        if status not in (0, *_ABSENT):
            raise self._trouble(said)
        # If `name` is a directory in the store, rclone has fetched a directory. If it is absent,
        # rclone may still report success.
        if into.is_dir():
            await asyncio.to_thread(shutil.rmtree, into)
        if not into.is_file():
            raise NotStored(
                f"{self.words} has no file {name}", remedy="store it again, or collect it"
            )

    async def names(self, directory: str) -> frozenset[str]:
        """Do the same as `DurableStore.names`."""
        status, said = await self._run("lsf", "-R", "--files-only", self._place(directory))
        if status in _ABSENT:
            return frozenset()
        if status:
            raise self._trouble(said)
        # All names that we write are plain, so other names are not ours.
        return frozenset(
            f"{directory}/{_read(line)}"
            for line in said.split("\n")
            if line and not is_unseen(line)
        )

    def _place(self, name: str) -> str:
        root = self._root if self._root.endswith(":") else f"{self._root}/"
        return root + _quote_name(name)

    async def _must(self, *words: str, within_s: float) -> None:
        status, said = await self._run(*words, within_s=within_s)
        if status:
            raise self._trouble(said)

    async def _run(self, *words: str, within_s: float | None = None) -> tuple[int, str]:
        """Run rclone. Returns its exit status, and its standard output, or its error output if the status is not 0.

        Raises:
            StoreTrouble: there is no rclone, it did not end within its time limit, or its output was longer than
            any real list.
        """
        program = shutil.which("rclone", path=self._environ.get("PATH"))
        if program is None:
            raise StoreTrouble(
                f"{self.words} is reached by rclone, but rclone is not installed on this computer",
                remedy="install rclone (`apt-get install rclone`, `brew install rclone`), then run the same command again",
            )
        running = await asyncio.create_subprocess_exec(
            program,
            "--ask-password=false",
            "--log-level=ERROR",
            "--contimeout=15s",
            "--timeout=60s",
            "--retries=2",
            f"--low-level-retries={self._attempts}",
            *words,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            env=self._environ,
        )
        within_s = self._bounds.list_s if within_s is None else within_s
        assert running.stdout
        assert running.stderr
        try:
            async with asyncio.timeout(within_s):
                out, err = await asyncio.gather(
                    self._read_output(running.stdout, running),
                    self._read_output(running.stderr, running),
                )
                await running.wait()
        except TimeoutError:
            raise self._trouble(f"`rclone {words[0]}` did not end within {within_s:g} s") from None
        finally:
            if running.returncode is None:
                running.kill()
                await running.wait()
        status = running.returncode or 0
        return status, (err if status else out).decode(errors="replace")

    async def _read_output(self, stream: StreamReader, running: Process) -> bytes:
        """Read the whole output. A process that writes too much is killed, and the rest of its output is dropped."""
        said, most = bytearray(), self._bounds.answer_bytes
        while piece := await stream.read(1 << 16):
            if len(said) <= most:
                said += piece
            elif running.returncode is None:
                running.kill()
        if len(said) > most:
            raise self._trouble(f"rclone said more than {most >> 20} MiB")
        return bytes(said)

    def _trouble(self, said: str) -> StoreTrouble:
        for secret in self._secrets:
            said = said.replace(secret, "***")
        # The last lines give the cause. The lines before them are earlier attempts.
        end = said[-_READ:]
        words = " ".join(plain(end.strip()).split())[-_SHOWN:] or "rclone said nothing"
        return StoreTrouble(
            f"{self.words} failed: {words}",
            remedy="check its address and its key, and that it answers, then run the same command again",
        )


def _quote_name(name: str) -> str:
    """Write `name` as rclone takes it. Every ‛ is escaped, because rclone itself uses this character in names."""
    return name.replace("‛", "%E2%80%9B")


def _read(name: str) -> str:
    return name.replace("%E2%80%9B", "‛")


def _is_file(said: str) -> bool:
    """Whether `lsjson --stat` describes a file. In a bucket, an absent name is shown as a directory."""
    try:
        entry = json.loads(said)
    except ValueError:
        return False
    return isinstance(entry, dict) and entry.get("IsDir") is False
