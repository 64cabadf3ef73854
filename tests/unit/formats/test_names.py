"""What a file is, its first bytes say; its name counts only where they do not. What is whole is not called broken."""

import bz2
import gzip
import io
import json
import lzma
import pickle
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest
from unit.formats.samples import GOOD, verdict

ROWS = "".join(json.dumps({"iter": i, "loss": 1 / (i + 1)}) + "\n" for i in range(50)).encode()
TORCH, SAFE, PARQUET = (
    GOOD["state_dict.pt"],
    GOOD["state_dict.safetensors"],
    GOOD["metrics.parquet"],
)
PAGE = b"<!DOCTYPE html><html><head><title>429 Too Many Requests</title></head></html>"
S3_ERROR = b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>NoSuchKey</Code></Error>'
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


def tar(name: str, content: bytes) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def zipped(name: str, content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(name, content)
    return stream.getvalue()


def script() -> bytes:
    """A TorchScript program: a zip with code and constants beside its pickle."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(TORCH)) as old, zipfile.ZipFile(stream, "w") as archive:
        for member in old.namelist():
            archive.writestr(member, old.read(member))
        root = old.namelist()[0].partition("/")[0]
        archive.writestr(f"{root}/code/__torch__.py", "class Net(Module): pass\n")
        archive.writestr(f"{root}/constants.pkl", pickle.dumps((), protocol=2))
    return stream.getvalue()


def joblib() -> bytes:
    """A pickle as joblib writes it: the bytes of an array follow the object that stands for it."""
    head = b"\x80\x04cjoblib.numpy_pickle\nNumpyArrayWrapper\n)\x81}b"
    return head + b"\xff" * 64 + b"."


WHOLE = {
    "checkpoint.pth.tar": TORCH,
    "pickled.pth.tar": pickle.dumps({"epoch": 3}),
    "legacy.pth.tar": GOOD["legacy.pt"],
    "scripted.pt": script(),
    "pytorch_model.bin": TORCH,
    "last.ckpt": TORCH,
    "model.pkl": TORCH,
    "safe.pt": SAFE,
    "safe.bin": SAFE,
    "array.pkl": GOOD["array.npy"],
    "arrays.zip": GOOD["arrays.npz"],
    "gzipped.pkl": gzip.compress(pickle.dumps([1])),
    "bzipped.pickle": bz2.compress(pickle.dumps([1])),
    "joblib.pkl": zlib.compress(pickle.dumps([1])),
    "with_arrays.pkl": joblib(),
    "forest.joblib": joblib(),
    "unpacked.tgz": tar("a", b"x"),
    "packed.tar": gzip.compress(tar("a", b"x")),
    "packed.zip": tar("a", b"x"),
    "download.tar": zipped("a", b"x"),
    "xz.tar": lzma.compress(tar("a", b"x")),
    "table.csv": PARQUET,
    "compressed.csv": gzip.compress(b"a,b\n1,2\n"),
    "compressed.json": gzip.compress(b"{}"),
    "rows.json": ROWS,
    "large_rows.json": ROWS * 3000,
    "one.jsonl": json.dumps({"a": [1, 2]}, indent=2).encode(),
    "with_mark.json": b"\xef\xbb\xbf" + b'{"a": 1}',
    "wide.json": '{"a": "ä"}'.encode("utf-16"),
    "wide_rows.jsonl": ROWS.decode().encode("utf-16"),
    "nan.json": b'{"loss": NaN}',
    "config.json": b'// made by hand\n{"a": 1, /* not 2 */ "url": "http://x", "b": [1, 2,],}\n',
    "latin.json": '{"a": "é"}'.encode("latin-1"),
    "wider.json": '{"a": 1}'.encode("utf-32"),
    "without_mark.json": '{"a": 1}'.encode("utf-16-le"),
    "several.json": b'{\n "a": 1\n}\n{\n "b": 2\n}\n',
    "marked.jsonl": b"\xef\xbb\xbf" + ROWS,
    "quotes.tsv": b'a\tb\n1\t"x\n',
    "zeros.bin": bytes(4096),
    "empty.csv": b"",
    "empty.tsv": b"",
    "empty.jsonl": b"",
    "one_line.csv": b"\n",
    "headed.csv": b"a,b\n",
    "export.csv": "a,b\n1,2\n".encode("utf-16"),
    "export_be.csv": b"\xfe\xff" + "a,b\n1,2\n".encode("utf-16-be"),
    "mac.csv": b"a,b\r1,2\r",
    "windows.csv": b"a,b\r\n1,2\r\n",
    "latin.csv": "naïve,b\n1,2\n".encode("latin-1"),
    "semicolons.csv": b"a;b\n1;2\n",
    "empty.txt": b"",
    "done": b"",
    "notes.dat": b"plain text",
    "tokens.bin": b"plain text",
    "photo.png": GOOD["photo.jpg"],
    "index.html": PAGE,
    "page.txt": PAGE,
    "icon.svg": b"<?xml version='1.0'?><svg/>",
    "raw.bin": bytes(range(256)),
    "weights.bin": bytes(range(256)),
}

NOT_AS_NAMED = {
    "weights.bin": (PAGE, "web page"),
    "model.safetensors": (PAGE, "web page"),
    "last.ckpt": (bytes(4096), "nothing but zeros"),
    "model-00001.bin": (bytes(20 << 20), "nothing but zeros"),
    "weights_2.bin": (b"", "empty"),
    "checkpoint.th": (POINTER, "git LFS pointer"),
    "checkpoint.state": (TORCH[:-40], ""),
    "data.csv": (PAGE, "web page"),
    "metrics.json": (b"  \n<html><body>503</body></html>", "web page"),
    "data.parquet": (S3_ERROR, "error in XML"),
    "pytorch_model.bin": (POINTER, "git LFS pointer"),
    "data.npy": (POINTER, "git LFS pointer"),
    "train.csv": (POINTER, "git LFS pointer"),
    "model.pt": (b"not weights at all\n", "neither like a zip nor like a pickle"),
    "model.bin": (b"not weights at all\n", "text, where weights are due"),
    "adapter_model.bin": ('{"error": "ä rate limit"}'.encode(), "text, where weights are due"),
    "best.safetensors": (GOOD["plot.png"], "its name says safetensors, and it is png"),
    "plot.png": (TORCH, "its name says png, and it is torch"),
    "array.npy": (b"", "empty"),
    "model.gguf": (b"", "empty"),
    "results.json": (b"", "empty"),
    "last.json": (b'{"a": 1}\n{"a": ', "not JSON"),
    "rows.jsonl": (ROWS[:-9], "line 50"),
    "cut.csv": ("a,b\n1,2\n3".encode("utf-16"), "cut off in the last row"),
    "odd.csv": ("a,b\n".encode("utf-16")[:-1], "UTF-16"),
    "cut.pkl": (zlib.compress(pickle.dumps([1] * 99))[:-3], ""),
    "cut.pth.tar": (TORCH[: len(TORCH) // 2], ""),
    "cut.csv.gz": (gzip.compress(b"a,b\n")[:-4], ""),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_file_is_not_called_broken_for_its_name(tmp_path: Path, name: str) -> None:
    seen = verdict(tmp_path, name, WHOLE[name])

    assert (seen.outcome, seen.problem) != ("broken", seen.problem)


@pytest.mark.parametrize("name", NOT_AS_NAMED)
def test_a_file_that_is_not_what_its_name_says_is_broken(tmp_path: Path, name: str) -> None:
    content, why = NOT_AS_NAMED[name]

    seen = verdict(tmp_path, name, content)

    assert seen.outcome == "broken"
    assert why in (seen.problem or "")
