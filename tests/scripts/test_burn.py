"""`scripts/burn.py` ends in time whatever the driver does, leaves nothing, and says what it could not measure.

No GPU is here. A small library stands in for the driver's: it takes the same calls, copies in this computer's
memory, and pretends to compute at a rate that it was given.
"""

import ast
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from arranged import eventually
from parts import required

BURN = Path(__file__).parents[2] / "scripts/burn.py"
DRIVER = r"""
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef unsigned long long ptr;
static size_t left = (size_t)600 << 20;
int cuInit(unsigned f) { return f; }
int cuGetErrorName(int e, const char **s) { *s = e == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR"; return 0; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGet(int *d, int n) { *d = n; return 0; }
int cuDeviceGetPCIBusId(char *s, int size, int d) { snprintf(s, size, "0000:%02X:00.0", 0x1b + d); return 0; }
int cuDeviceGetAttribute(int *v, int what, int d) { *v = what == 75 ? 9 : what == 76 ? 0 : 4; return 0; }
int cuDevicePrimaryCtxRetain(void **c, int d) { *c = (void *)(intptr_t)(d + 1); return 0; }
int cuCtxSetCurrent(void *c) { return 0; }
int cuCtxSynchronize(void) { return 0; }
int cuMemGetInfo_v2(size_t *f, size_t *t) { *f = left; *t = (size_t)600 << 20; return 0; }
int cuMemAlloc_v2(ptr *p, size_t n) {
  if (n > left) return 2;
  left -= n; *p = (ptr)(uintptr_t)malloc(n); return *p ? 0 : 2; }
int cuMemFree_v2(ptr p) { free((void *)(uintptr_t)p); return 0; }
int cuMemHostAlloc(void **p, size_t n, unsigned f) { *p = malloc(n); return 0; }
int cuMemFreeHost(void *p) { free(p); return 0; }
int cuMemsetD32_v2(ptr p, unsigned v, size_t n) {
  unsigned *at = (unsigned *)(uintptr_t)p; at[0] = at[n / 2] = at[n - 1] = v; return 0; }
int cuMemcpyDtoH_v2(void *to, ptr from, size_t n) { memcpy(to, (void *)(uintptr_t)from, n); return 0; }
int cuMemcpyHtoD_v2(ptr to, const void *from, size_t n) { memcpy((void *)(uintptr_t)to, from, n); return 0; }
int cuMemcpyDtoD_v2(ptr to, ptr from, size_t n) { usleep(1000); return 0; }
int cuMemcpyPeer(ptr to, void *c, ptr from, void *d, size_t n) { usleep(10000); return c == d; }
int cuModuleLoadData(void **m, const char *text) {
  *m = (void *)text; return strstr(text, ".target sm_90") && strstr(text, ".visible .entry") ? 0 : 218; }
int cuModuleGetFunction(void **f, void *m, const char *name) { *f = m; return 0; }
int cuLaunchKernel(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
  ptr out = *(ptr *)arguments[0]; unsigned rounds = *(unsigned *)arguments[1];
  if (getenv("DRIVER_HANGS")) for (;;) pause();
  float *sums = (float *)(uintptr_t)out;
  for (unsigned n = 0; n < gx * bx; n++) sums[n] = (float)(n % bx);
  if (getenv("DRIVER_ERRS")) sums[gx * bx - 1] += 1;
  usleep(rounds); return shared || stream || extra || gy != 1 || bz != 1; }
"""
SMI = """#!/bin/sh
case "$*" in
*compute-apps*) ;;
*query-gpu*) for n in 0 1; do
echo "$n, NVIDIA H100 80GB HBM3, 00000000:1$( [ $n = 0 ] && echo B || echo C ):00.0, 1755, 1980, 650.10, 700.00, 66, 99, 4, 600, 0x0000000000000004, 5, 5, 16, 16, 0"
done ;;
esac
"""


@dataclass
class Box:
    """A PATH with an `nvidia-smi`, a driver's library, and a home of its own."""

    root: Path

    def burn(self, seconds: float, **environ: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-", "--seconds", str(seconds)],
            env={
                "PATH": f"{self.root / 'bin'}:/usr/bin:/bin",
                "LD_LIBRARY_PATH": str(self.root / "lib"),
                "HOME": str(self.root / "home"),
                **environ,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )

    def told(self, seconds: float, **environ: str) -> dict[str, object]:
        with self.burn(seconds, **environ) as child:
            out, err = child.communicate(BURN.read_text(encoding="utf-8"), timeout=120)
        assert "Traceback" not in err, err
        answer: dict[str, object] = json.loads(out.splitlines()[-1])
        return answer


@pytest.fixture
def box(tmp_path: Path) -> Box:
    for name in ("bin", "lib", "home"):
        (tmp_path / name).mkdir()
    smi = tmp_path / "bin/nvidia-smi"
    smi.write_text(SMI, encoding="utf-8")
    smi.chmod(0o755)
    return Box(tmp_path)


@pytest.fixture
def driver(box: Box) -> Box:
    required("cc")
    (box.root / "driver.c").write_text(DRIVER, encoding="utf-8")
    library = box.root / "lib/libcuda.so.1"
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-w", "-o", library, box.root / "driver.c"], check=True
    )
    return box


def test_each_gpu_is_measured_and_nothing_stays(driver: Box) -> None:
    told = driver.told(14)

    gpus = told["gpus"]
    assert isinstance(gpus, list)
    assert told["missed"] == []
    for gpu in gpus:
        runs = gpu["runs"]
        assert set(runs) == {
            *("fp32_tflops", "tensor_tflops", "memory_gb_s", "to_gpu_gb_s", "to_host_gb_s"),
            *("filled_bytes", "lost_words", "wrong", "wrong_tensor"),
        }
        assert all(runs[name] > 0 for name in runs if not name.startswith(("wrong", "lost")))
        assert (runs["wrong"], runs["wrong_tensor"], runs["lost_words"]) == (0, 0, 0)
        # Both programs are timed by the same pretended rate: a product of matrices counts four times as much.
        assert runs["tensor_tflops"] > runs["fp32_tflops"]
        assert gpu["watch"]["sm_mhz"] == 1755
        assert gpu["watch"]["held"] == {"sw_power_cap": 1.0}
    links = told["links"]
    assert isinstance(links, list)
    assert [(link["a"], link["b"]) for link in links] == [(0, 1)]
    assert told["disk"]
    assert list((driver.root / "home").iterdir()) == [], "what is left counts as somebody's work"


def test_a_gpu_that_computes_wrongly_is_told(driver: Box) -> None:
    gpus = driver.told(12, DRIVER_ERRS="1")["gpus"]

    assert isinstance(gpus, list)
    assert all(gpu["runs"]["wrong"] == 1 for gpu in gpus)


def test_a_driver_that_hangs_is_left_in_time(driver: Box) -> None:
    began = time.monotonic()
    with driver.burn(8, DRIVER_HANGS="1") as child:
        assert child.stdin
        out, _ = child.communicate(BURN.read_text(encoding="utf-8"), timeout=120)
    took = time.monotonic() - began

    gpus = json.loads(out.splitlines()[-1])["gpus"] if "gpus" in out else []
    assert not any(gpu["runs"] for gpu in gpus)
    assert eventually(lambda: not at_home(driver))
    print(f"{took:.1f} s")


def test_the_load_ends_with_whoever_started_it(driver: Box) -> None:
    with driver.burn(40) as child:
        assert child.stdin
        child.stdin.write(BURN.read_text(encoding="utf-8"))
        child.stdin.close()
        assert eventually(lambda: len(at_home(driver)) >= 3), "a child for each GPU"
        child.send_signal(signal.SIGKILL)

    assert eventually(lambda: not at_home(driver))


def test_without_the_driver_s_library_nothing_passes_for_measured(box: Box) -> None:
    told = box.told(8, LD_LIBRARY_PATH=str(box.root / "nothing"))

    gpus, missed = told["gpus"], told["missed"]
    assert isinstance(gpus, list)
    assert isinstance(missed, list)
    assert [gpu["runs"] for gpu in gpus] == [{}, {}]
    assert {what for what, _ in missed} >= {"GPU 0: load", "GPU 1: load"}
    assert "library" in missed[0][1]


def test_without_nvidia_smi_it_says_so(box: Box) -> None:
    (box.root / "bin/nvidia-smi").unlink()

    told = box.told(5)

    assert told["gpus"] == []
    assert "nvidia-smi" in str(told["missed"])


def test_it_is_written_for_python_3_7() -> None:
    ast.parse(BURN.read_text(encoding="utf-8"), feature_version=(3, 7))


def at_home(box: Box) -> list[int]:
    """The processes of the load: they have the box's home."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            alive = entry.joinpath("stat").read_text().rpartition(")")[2].split()[0] != "Z"
            if alive and f"HOME={box.root / 'home'}".encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]
