"""Small files that ask for hours, or for gigabytes, each written here and now."""

import bz2
import io
import lzma
import sqlite3
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

MAGIC = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
_NOTHING = b"\x80\x02N."
_DOUBLED = b"K\x01" + b"2\x86" * 40
"""A tuple of itself twice, forty times over: the words for it would be terabytes."""


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    written = b""
    while number > 127:
        written += bytes([number & 127 | 128])
        number >>= 7
    return written + bytes([number])


def _dimensions() -> bytes:
    packed = (b"\xff" * 8 + b"\x7f") * 900_000
    return _field(7, _field(5, _field(1, packed)))


def _header(shape: str) -> bytes:
    words = f"{{'descr':'<f8','fortran_order':False,'shape':({shape})}}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(words)) + words


def _indexed(expression: str, rows: Sequence[tuple[str]]) -> bytes:
    """A database with an index whose expression was made hostile after the rows were written."""
    database = sqlite3.connect(":memory:")
    database.execute("create table t(a)")
    database.executemany("insert into t values(?)", rows)
    database.execute("create index i on t(length(a))")
    database.execute("pragma writable_schema=on")
    words = f"CREATE INDEX i ON t({expression})"
    database.execute("update sqlite_master set sql=? where name='i'", (words,))
    database.commit()
    written: bytes = database.serialize()
    database.close()
    return written


def _hdf5(shape: tuple[int, ...], *, written: bool = False, **layout: object) -> bytes:
    import h5py

    file = io.BytesIO()
    with h5py.File(file, "w") as opened:
        dataset = opened.create_dataset("x", shape, "u1", **layout)
        if written:
            dataset.id.write_direct_chunk((0,), b"x")
    return file.getvalue()


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 4096), pa.array(["x" * 30_000_000]))
    pq.write_table(
        pa.table({"s": column}), file, compression="zstd", use_dictionary=True, store_schema=False
    )
    return file.getvalue()


BOMBS: Mapping[str, Callable[[], bytes]] = {
    "protocol.pt": lambda: MAGIC + b"\x80\x02" + _DOUBLED + b"." + _NOTHING * 3,
    "key.pt": lambda: (
        MAGIC + b"\x80\x02M\xe9\x03." + _NOTHING * 2 + b"\x80\x02](" + _DOUBLED + b"e."
    ),
    "dimensions.onnx": _dimensions,
    "shape.npy": lambda: _header(("9" * 4000 + ",") * 12),
    "never_written.h5": lambda: _hdf5((1, 3_200_000_000)),
    "one_chunk.h5": lambda: _hdf5((1 << 36,), chunks=(1 << 31,), compression="gzip", written=True),
    "many_chunks.h5": lambda: _hdf5((1 << 50,), chunks=(1 << 20,)),
    "dictionary.parquet": _parquet,
    "memory.sqlite": lambda: _indexed("length(a||hex(zeroblob(490000000)))", [("a",)]),
    "endless.sqlite": lambda: _indexed(
        "length(a) + 0 * length(hex(zeroblob(20000000 + length(a))))", [("a",)] * 2000
    ),
    "zeros.bz2": lambda: bz2.compress(b"0" * (900_000 * 20)) * 2000,
    "blanks.json.xz": lambda: lzma.compress(b" " * (1 << 24)) * 640,
}
OUTCOMES: Mapping[str, str] = {
    "protocol.pt": "broken",  # by what it says, and not by what reading it takes
    "dimensions.onnx": "broken",
    "shape.npy": "broken",
    "never_written.h5": "loads",  # it holds nothing, which is soon read
    "many_chunks.h5": "loads",
}
"""What is said of them; of the others, that they are not proved."""


def write(directory: Path, name: str) -> Path:
    """The file, under its name."""
    path = directory / name
    path.write_bytes(BOMBS[name]())
    return path
