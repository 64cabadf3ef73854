"""Reads the beginning of a kept file, to show it to a person. This proves nothing, unlike `local_evidence`."""

from base64 import b64encode
from pathlib import Path
from typing import Literal

from pydantic import Field

from gpu_tenant.artifacts.formats.bounded_file import Broken, Source, Unread
from gpu_tenant.artifacts.formats.check_file import inspect
from gpu_tenant.artifacts.formats.safetensors import list_tensors
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import LocalTrouble
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.seal import SealedFile
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.files.paths import below
from gpu_tenant.files.state_dir import is_reached

_TEXT_BYTES = 64 * 1024
_IMAGE_BYTES = 4 << 20
_TENSORS = 2000
_IMAGES = {"png": "image/png", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}


class TensorTold(Record):
    """One tensor of a checkpoint, as the file's own header describes it."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class Preview(Record):
    """What a kept file begins with."""

    name: str
    size_bytes: int
    kind: Literal["text", "image", "tensors", "none"]
    text: str = Field(default="", description="its first bytes, made plain")
    image: str | None = Field(default=None, description="all of it, as a data URL")
    tensors: tuple[TensorTold, ...] = ()
    whole: bool = Field(default=True, description="whether this is all of it")


def kept_path(directory: Path, entry: SealedFile, lease: str) -> Path:
    """Return the path below `directory` where the entry is kept. It is a regular file, and no part of it is a link.

    Raises:
        LocalTrouble: there is no such file here.
    """
    path = below(directory, entry.name)
    if entry.kind != "file" or not is_reached(directory, path) or not _is_plain_file(path):
        raise _not_here(directory, entry, lease)
    return path


def preview_of(directory: Path, entry: SealedFile, lease: str) -> Preview:
    """Read the beginning of the entry's copy below `directory`. Nothing in it is executed, and memory use is bounded.

    Raises:
        LocalTrouble: there is no such file here, or it cannot be read.
    """
    path = kept_path(directory, entry, lease)
    try:
        return _preview(path, entry.name)
    except FileNotFoundError:
        raise _not_here(directory, entry, lease) from None
    except OSError as error:
        raise LocalTrouble(
            f"{entry.name} cannot be read: {error.strerror}", remedy=f"look at {path} by hand"
        ) from None


def _is_plain_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _not_here(directory: Path, entry: SealedFile, lease: str) -> LocalTrouble:
    return LocalTrouble(
        f"{entry.name} is not in {directory}", remedy=f"{Command('collect', lease)} fetches it"
    )


def _preview(path: Path, name: str) -> Preview:
    with Source(path, name) as source:
        size, head = source.size_bytes, source.upto(0, _TEXT_BYTES)
        if name.endswith(".safetensors"):
            return _tensors(source, name)
    if size <= _IMAGE_BYTES:
        verdict = inspect(path, name=name)
        if verdict.format in _IMAGES and verdict.outcome == "loads":
            data = b64encode(path.read_bytes()).decode()
            url = f"data:{_IMAGES[verdict.format]};base64,{data}"
            return Preview(name=name, size_bytes=size, kind="image", image=url)
    if b"\0" in head:
        return Preview(name=name, size_bytes=size, kind="none", whole=False)
    # If the cut splits a character, leave out its first half.
    text = head.decode("utf-8", errors="replace").rstrip("\ufffd")
    lines = "\n".join(plain(line, max_line=2000) for line in text.split("\n"))
    return Preview(name=name, size_bytes=size, kind="text", text=lines, whole=size <= _TEXT_BYTES)


def _tensors(source: Source, name: str) -> Preview:
    try:
        found = list_tensors(source)
    except (Broken, Unread):
        return Preview(name=name, size_bytes=source.size_bytes, kind="none", whole=False)
    shown = tuple(
        TensorTold(name=plain(tensor), dtype=dtype, shape=shape)
        for tensor, dtype, shape in found[:_TENSORS]
    )
    return Preview(
        name=name,
        size_bytes=source.size_bytes,
        kind="tensors",
        tensors=shown,
        whole=len(found) <= _TENSORS,
    )
