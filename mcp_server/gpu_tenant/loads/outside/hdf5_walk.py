"""Prints whether `h5py` reads every dataset of an HDF5 file, a bounded piece at a time."""

import json
import sys
from collections.abc import Iterator

import h5py

_PIECE_BYTES = 16 << 20


def walk(path: str) -> dict[str, list[str]]:
    """What reading every dataset proves, in the shape `outside.read` reads."""
    read: list[str] = []
    elsewhere: list[str] = []

    def visit(name: str, item: h5py.HLObject) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        if item.external or item.is_virtual:
            elsewhere.append(name)
            return
        for piece in _pieces(item):
            item[piece]
        read.append(name)

    try:
        with h5py.File(path, "r") as file:
            file.visititems(visit)
    except (OSError, RuntimeError, KeyError) as error:
        return {"problems": [str(error)]}
    proved = [f"h5py {h5py.__version__} reads every dataset: {len(read):,}"]
    return {
        "proved": proved,
        "not_proved": [f"{name} lies in another file" for name in elsewhere[:20]],
    }


def _pieces(dataset: h5py.Dataset) -> Iterator[object]:
    if dataset.shape is None:
        return
    if dataset.chunks is not None:
        yield from dataset.iter_chunks()
    elif not dataset.shape:
        yield ()
    else:
        row_bytes = max(1, dataset.nbytes // max(1, dataset.shape[0]))
        step = max(1, _PIECE_BYTES // row_bytes)
        for start in range(0, dataset.shape[0], step):
            yield slice(start, start + step)


if __name__ == "__main__":
    print(json.dumps(walk(sys.argv[1])))  # noqa: T201
