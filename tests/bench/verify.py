"""How fast a kept checkpoint is proved, hashed and checked to load, against `sha256sum` of the same file.

`python tests/bench/verify.py [SIZE_MB]`: cold cache for each, in turn, as ratios within one run.
"""

import argparse
import hashlib
import io
import json
import os
import pickle
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import types
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

from gpu_tenant.files.direct_io import reread_blocks

SIZE_MB = 2000
SMALL_MB = 200
ROUNDS = 3
BAR = 1.2
"""Our whole proof takes at most so many times what `sha256sum` alone does."""
TENSOR_BYTES = 64 << 20
PIECE_BYTES = 1 << 20
PROVE = """
import json, resource, sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from gpu_tenant.artifacts.formats import prove
from gpu_tenant.artifacts.formats.worker_pool import SHARED
paths = [Path(path) for path in sys.argv[1:]]
began = time.perf_counter()
with ThreadPoolExecutor(len(paths)) as threads:
    proofs = list(threads.map(lambda path: prove(path, name=path.name, sha256=""), paths))
took = time.perf_counter() - began
SHARED.close()
peak_kb = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(json.dumps({
    "seconds": took,
    "peak_mb": max(peak_kb) * 1.024e-3,
    "sha256": [proof.sha256 for proof in proofs],
    "outcome": [proof.verdict.outcome for proof in proofs],
    "proved": proofs[0].verdict.proved,
}))
"""


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("size_mb", type=int, nargs="?", default=SIZE_MB, metavar="SIZE_MB")
    words.add_argument("--small", action="store_true", help=f"{SMALL_MB} MB")
    words.add_argument("--json", action="store_true", help="the figures alone, for a program")
    words.add_argument("--into", type=Path, help="where the files are written, and removed again")
    said = words.parse_args()
    size_mb = SMALL_MB if said.small else said.size_mb
    with tempfile.TemporaryDirectory(dir=said.into, prefix="gt-verify-") as scratch:
        known = figures(Path(scratch), size_mb)
    print(json.dumps(known) if said.json else table(known))


def figures(directory: Path, size_mb: int) -> dict[str, object]:
    """Medians of all rounds, by file and by who read it, in seconds."""
    files = [directory / "model.safetensors", directory / "model.pt"]
    write_safetensors(files[0], size_mb * 10**6)
    write_torch(files[1], size_mb * 10**6)
    known: dict[str, object] = {"size_mb": size_mb, "rounds": ROUNDS, "bar": BAR}
    for path in files:
        known[path.suffix[1:]] = measured(path)
    both: list[dict[str, object]] = []
    for _ in range(ROUNDS):
        cool(*files)
        both.append(proof(*files))
    known["both_at_once"] = {
        "prove_s": median(both, "seconds"),
        "peak_mb": max(float(went["peak_mb"] or 0) for went in both),
        "one_after_the_other_s": round(sum(known[x.suffix[1:]]["prove_s"] for x in files), 3),
    }
    known["sha256_warm_mb_s"] = round(warm_mb_s())
    return known


def measured(path: Path) -> dict[str, object]:
    ours: list[dict[str, object]] = []
    others: dict[str, list[float]] = {"sha256sum": [], "unbuffered_read": [], "buffered_read": []}
    openssl = shutil.which("openssl")
    if openssl:
        others["openssl"] = []
    digest = ""
    for _ in range(ROUNDS):
        cool(path)
        ours.append(proof(path))
        cool(path)
        took, said = command("sha256sum", str(path))
        others["sha256sum"].append(took)
        digest = said.split()[0]
        if openssl:
            cool(path)
            others["openssl"].append(command(openssl, "dgst", "-sha256", str(path))[0])
        cool(path)
        others["unbuffered_read"].append(timed(lambda: unbuffered(path)))
        cool(path)
        others["buffered_read"].append(timed(lambda: buffered(path)))
    for went in ours:
        assert (went["sha256"], went["outcome"]) == ([digest], ["loads"]), went
    took = median(ours, "seconds")
    known: dict[str, object] = {"prove_s": took}
    known |= {f"{name}_s": round(statistics.median(t), 3) for name, t in others.items()}
    known["prove_s_each_round"] = [round(float(went["seconds"]), 3) for went in ours]
    known["against_sha256sum"] = round(took / statistics.median(others["sha256sum"]), 3)
    if openssl:
        known["against_openssl"] = round(took / statistics.median(others["openssl"]), 3)
    known["within_bar"] = known["against_sha256sum"] <= BAR
    known["mb_s"] = round(path.stat().st_size / 1e6 / took)
    known["peak_mb"] = max(float(went["peak_mb"] or 0) for went in ours)
    known["proved"] = ours[0]["proved"]
    return known


def table(known: dict[str, object]) -> str:
    lines = [f"{known['size_mb']} MB, median of {known['rounds']}, cold cache"]
    for kind in ("safetensors", "pt"):
        of = known[kind]
        lines.append(f"\n{kind}: {'; '.join(of['proved'])}")
        took = [name for name in of if name.endswith("_s") and name != "mb_s"]
        lines += [f"  {name[:-2]:16} {of[name]:7.2f} s" for name in took]
        lines.append(f"  {of['mb_s']:,} MB/s, {of['peak_mb']:.0f} MB of memory at most")
        lines.append(
            f"  {of['against_sha256sum']:.2f} of sha256sum's time, bar {BAR}: "
            f"{'within' if of['within_bar'] else 'MISSED'}"
        )
    both = known["both_at_once"]
    lines.append(
        f"\nboth at once {both['prove_s']:.2f} s, one after the other {both['one_after_the_other_s']:.2f} s; "
        f"{both['peak_mb']:.0f} MB of memory at most"
    )
    lines.append(f"hashlib's sha256 in memory {known['sha256_warm_mb_s']:,} MB/s")
    return "\n".join(lines)


def proof(*paths: Path) -> dict[str, object]:
    """Our proof, in a process of its own; timed in it, as the product's own process is there already."""
    argv = [sys.executable, "-c", PROVE, *map(str, paths)]
    went = subprocess.run(argv, check=True, capture_output=True, encoding="utf-8")
    return dict(json.loads(went.stdout))


def command(*argv: str) -> tuple[float, str]:
    began = time.perf_counter()
    went = subprocess.run(argv, check=True, capture_output=True, encoding="utf-8")
    return time.perf_counter() - began, went.stdout


def timed(run: Callable[[], None]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def median(went: list[dict[str, object]], name: str) -> float:
    return round(statistics.median(float(one[name]) for one in went), 3)


def cool(*paths: Path) -> None:
    """Nothing of the files is in the page cache."""
    for path in paths:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def unbuffered(path: Path) -> None:
    for _ in reread_blocks(path) or ():
        pass


def buffered(path: Path) -> None:
    block = bytearray(PIECE_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(block):
            pass


def warm_mb_s() -> float:
    block = os.urandom(PIECE_BYTES)
    digest = hashlib.sha256()

    def hashed() -> None:
        for _ in range(512):
            digest.update(block)

    return 512 * PIECE_BYTES / 1e6 / timed(hashed)


def values() -> bytes:
    """A tensor's values: floats like a network's weights, 27 of 32 bits of each drawn by lot."""
    drawn = bytearray(os.urandom(TENSOR_BYTES))
    drawn[3::4] = drawn[3::4].translate(bytes(byte & 0x83 | 0x3C for byte in range(256)))
    return bytes(drawn)


def write_safetensors(path: Path, size_bytes: int) -> None:
    count = max(1, size_bytes // TENSOR_BYTES)
    header = json.dumps(
        {
            name: {"dtype": "F32", "shape": [4096, 4096], "data_offsets": [at, at + TENSOR_BYTES]}
            for number, name in enumerate(names(count))
            for at in [number * TENSOR_BYTES]
        }
    ).encode()
    header += b" " * (-len(header) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for _ in range(count):
            file.write(values())


def write_torch(path: Path, size_bytes: int) -> None:
    """As `torch.save` writes a state dict, with the standard library alone."""
    count = max(1, size_bytes // TENSOR_BYTES)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("model/data.pkl", state_dict(count))
        archive.writestr("model/byteorder", "little")
        for number in range(count):
            archive.writestr(f"model/data/{number}", values())
        archive.writestr("model/version", "3\n")


def names(count: int) -> Iterator[str]:
    return (f"layers.{number}.weight" for number in range(count))


def state_dict(count: int) -> bytes:
    """The pickle of so many tensors, each naming a storage that is kept outside it."""
    torch, inner = types.ModuleType("torch"), types.ModuleType("torch._utils")

    class FloatStorage:
        """Stands for the class, which a pickle only names."""

    def _rebuild_tensor_v2() -> None:
        """Stands for the function."""

    FloatStorage.__module__, FloatStorage.__qualname__ = "torch", "FloatStorage"
    _rebuild_tensor_v2.__module__ = "torch._utils"
    _rebuild_tensor_v2.__qualname__ = "_rebuild_tensor_v2"
    torch.FloatStorage, inner._rebuild_tensor_v2 = FloatStorage, _rebuild_tensor_v2

    class Storage(str):
        __slots__ = ()

    class Tensor:
        def __init__(self, key: str) -> None:
            self.key = key

        def __reduce__(self) -> tuple[object, ...]:
            where = (Storage(self.key), 0, (4096, 4096), (4096, 1), False, OrderedDict())
            return _rebuild_tensor_v2, where

    class Pickler(pickle.Pickler):
        def persistent_id(self, given: object) -> object:
            if isinstance(given, Storage):
                return "storage", FloatStorage, str(given), "cpu", TENSOR_BYTES // 4
            return None

    told = io.BytesIO()
    before = {name: sys.modules.get(name) for name in ("torch", "torch._utils")}
    sys.modules |= {"torch": torch, "torch._utils": inner}
    try:
        tensors = OrderedDict((name, Tensor(str(i))) for i, name in enumerate(names(count)))
        Pickler(told, protocol=2).dump(tensors)
    finally:
        for name, module in before.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module
    return told.getvalue()


if __name__ == "__main__":
    main()
