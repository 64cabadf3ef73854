"""Prints whether `h5py` reads every dataset of an HDF5 file. The data is read in pieces of bounded size."""

import json
import sys
from collections.abc import Iterator
from itertools import product
from math import ceil, prod

import h5py

_PIECE_BYTES = 16 << 20
_LARGEST_CHUNK_BYTES = 128 << 20
"""The largest chunk that is read. A chunk can be read only as a whole. Libraries choose chunks of about 1 MiB."""
_MOST_TOLD = 20


def walk(path: str) -> dict[str, list[str]]:
    """Read every dataset. Returns what that proves, in the form that `subprocesses.read` expects."""
    read: list[str] = []
    elsewhere: list[str] = []
    too_large: list[str] = []

    def visit(name: str, item: h5py.HLObject) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        if item.external or item.is_virtual:
            elsewhere.append(name)
            return
        if item.chunks is not None and _chunk_bytes(item) > _LARGEST_CHUNK_BYTES:
            too_large.append(f"{name[:100]} has chunks of {_chunk_bytes(item):,} bytes")
            return
        for piece in _pieces(item):
            item[piece]
        read.append(name)

    try:
        with h5py.File(path, "r") as file:
            file.visititems(visit)
    except MemoryError as error:
        return {"stopped": [str(error) or "it takes more memory than is allowed here"]}
    except (OSError, RuntimeError, KeyError) as error:
        if "allocat" in str(error) or "memory" in str(error):
            return {"stopped": [str(error)]}
        return {"problems": [str(error)]}
    if too_large:
        return {"stopped": [f"{too_large[0]}: not read here"]}
    return {
        "proved": [f"h5py {h5py.__version__} reads every dataset: {len(read):,}"],
        "not_proved": [f"{name[:100]} lies in another file" for name in elsewhere[:_MOST_TOLD]],
    }


def _chunk_bytes(dataset: h5py.Dataset) -> int:
    return int(prod(dataset.chunks) * dataset.dtype.itemsize)


def _pieces(dataset: h5py.Dataset) -> Iterator[object]:
    """Yield slices that cover all the data in the file. Parts that were never written have no bytes to check."""
    shape = dataset.shape
    if shape is None or dataset.id.get_storage_size() == 0:
        return
    if dataset.chunks is not None:
        written: list[tuple[int, ...]] = []
        dataset.id.chunk_iter(lambda chunk: written.append(chunk.chunk_offset))
        for at in written:
            yield tuple(
                slice(start, start + step) for start, step in zip(at, dataset.chunks, strict=True)
            )
        return
    yield from _boxes(shape, max(1, _PIECE_BYTES // max(1, dataset.dtype.itemsize)))


def _boxes(shape: tuple[int, ...], most: int) -> Iterator[tuple[slice, ...]]:
    """Yield boxes that together fill the shape, with at most `most` values in each."""
    steps = [0] * len(shape)
    for axis in reversed(range(len(shape))):
        steps[axis] = max(1, min(shape[axis], most))
        most = max(1, most // steps[axis])
    ranges = (range(ceil(length / step)) for length, step in zip(shape, steps, strict=True))
    for place in product(*ranges):
        yield tuple(slice(i * step, (i + 1) * step) for i, step in zip(place, steps, strict=True))


if __name__ == "__main__":
    print(json.dumps(walk(sys.argv[1])))  # noqa: T201
