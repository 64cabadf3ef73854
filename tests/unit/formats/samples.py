"""One good file per format and dialect, small and real."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np

from gpu_tenant.artifacts.formats import inspect
from gpu_tenant.domain.evidence import Verdict

FIXTURES = Path(__file__).parent / "fixtures"
_WRITTEN_BY_LIBRARIES = (
    "state_dict.pt",
    "legacy.pt",
    "no_crc.pt",
    "training.pt",
    "numpy_scalar.pt",
    "state_dict.safetensors",
    "model.gguf",
    "model.onnx",
    "external.onnx",
    "metrics.parquet",
    "data.h5",
    "latest.h5",
    "runs.sqlite",
    "log.jsonl.gz",
    "plot.png",
    "photo.jpg",
    "progressive.jpeg",
    "photo.webp",
    "moving.gif",
)


def verdict(folder: Path, name: str, content: bytes) -> Verdict:
    """What `inspect` says of the content under this name, from a staging path that tells nothing."""
    staged = folder / "staged"
    staged.write_bytes(content)
    return inspect(staged, name=name)


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _npz(save: object, **arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    assert callable(save)
    save(file, **arrays)
    return file.getvalue()


def _zip(method: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("notes.txt", "to be kept\n" * 50)
        archive.writestr("empty", "")
    return file.getvalue()


def _tar(mode: Literal["w", "w:gz", "w:xz"], form: int) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode, format=form) as archive:
        for name, size in (("a.txt", 700), ("d" * 140 + "/b.txt", 5), ("empty", 0)):
            member = tarfile.TarInfo(name)
            member.size = size
            archive.addfile(member, io.BytesIO(b"x" * size))
    return file.getvalue()


def _samples() -> Iterator[tuple[str, bytes]]:
    for name in _WRITTEN_BY_LIBRARIES:
        yield name, (FIXTURES / name).read_bytes()
    floats = np.linspace(0, 1, 600, dtype=np.float32)
    yield "array.npy", _npy(floats.reshape(20, 30))
    yield "fortran.npy", _npy(np.asfortranarray(np.ones((3, 4), dtype=">f8")))
    yield (
        "records.npy",
        _npy(np.zeros(5, dtype=[("id", "<i4"), ("box", "<f4", (2, 2)), ("n", "U3")])),
    )
    yield "objects.npy", _npy(np.array([{"a": 1}, None], dtype=object))
    yield "arrays.npz", _npz(np.savez, weight=floats, step=np.array(3))
    yield "packed.npz", _npz(np.savez_compressed, weight=floats, names=np.array(["a", "bc"]))
    results = {"accuracy": 0.5, "labels": ["a", "é"], "nested": {"deep": [[], {}, None, True]}}
    yield "results.json", json.dumps(results, indent=2, ensure_ascii=False).encode()
    lines = "".join(json.dumps({"step": n, "loss": 1 / (n + 1)}) + "\n" for n in range(40)).encode()
    yield "log.jsonl", lines
    yield "table.csv", b'step,note,loss\n1,"two\nlines, and a comma",0.5\n2,5" disk,0.25\n' * 7
    yield "table.tsv", b"step\tloss\n1\t0.5\n2\t0.25\n" * 7
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        kept = {"steps": [*range(300)], "name": "run" * 99, "array": np.arange(9), "set": {1, 2}}
        yield f"protocol{protocol}.pkl", pickle.dumps(kept, protocol)
    yield "stored.zip", _zip(zipfile.ZIP_STORED)
    yield "deflated.zip", _zip(zipfile.ZIP_DEFLATED)
    yield "bzip2.zip", _zip(zipfile.ZIP_BZIP2)
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        yield f"format{form}.tar", _tar("w", form)
    yield "run.tar.gz", _tar("w:gz", tarfile.PAX_FORMAT)
    yield "run.txz", _tar("w:xz", tarfile.GNU_FORMAT)
    yield (
        "two_members.csv.gz",
        gzip.compress(b"a,b\n1,2\n", mtime=0) + gzip.compress(b"3,4\n", mtime=0),
    )
    yield "log.json.bz2", bz2.compress(json.dumps(results).encode())
    yield "log.ndjson.xz", lzma.compress(lines)


GOOD: dict[str, bytes] = dict(_samples())
