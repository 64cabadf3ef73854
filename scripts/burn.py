#!/usr/bin/env python3
"""Put the GPUs of a box under load for a bounded time, and print what was measured as one JSON object.

    python3 burn.py --seconds 45
    ssh BOX 'python3 - --seconds 45' < burn.py

Python 3.7 or newer, standard library only, no root, no torch, no CUDA toolkit: the load is two small programs
that the driver itself (libcuda) translates. Where that library is missing, only what `nvidia-smi` says is told,
and what was not measured is named. It judges nothing. It writes one file, to time the disk, and removes it. It
ends by itself within its seconds, and with whoever started it. A GPU's memory is filled only as far as it is free.
"""

import argparse
import ctypes
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

MOST_S = 60
REHEARSED = " (a rehearsal's GPU)"
MIB, GIB = 1 << 20, 1 << 30
HOST_BYTES = 64 * MIB
DISK_BYTES = 512 * MIB
FIELDS = (
    "index",
    "name",
    "pci.bus_id",
    "clocks.sm",
    "clocks.max.sm",
    "power.draw",
    "power.limit",
    "temperature.gpu",
    "utilization.gpu",
    "memory.used",
    "memory.total",
    "clocks_throttle_reasons.active",
    "pcie.link.gen.current",
    "pcie.link.gen.max",
    "pcie.link.width.current",
    "pcie.link.width.max",
    "ecc.errors.uncorrected.volatile.total",
)
KEYS = (
    "index",
    "name",
    "bus",
    "sm_mhz",
    "sm_max_mhz",
    "power_w",
    "power_limit_w",
    "temp_c",
    "util_pct",
    "used_mib",
    "total_mib",
    "reasons",
    "pcie_gen",
    "pcie_gen_max",
    "pcie_width",
    "pcie_width_max",
    "ecc",
)
REASONS = {
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}
PTX_OF = {70: "6.0", 72: "6.1", 75: "6.5", 80: "7.0", 86: "7.1", 87: "7.4", 89: "7.8", 90: "7.8"}
"""The first version of the driver's language that knows each generation. A later one takes the last of these."""

HEAD = """
.version %(version)s
.target sm_%(target)d
.address_size 64
"""
# Each thread has eight sums of its own, and each is multiplied and added to %(turns)d times a round.
FMA = """
.visible .entry fma(.param .u64 out, .param .u32 rounds)
{
  .reg .pred %%p; .reg .u32 %%r<8>; .reg .u64 %%d<4>; .reg .f32 %%f<12>;
  ld.param.u64 %%d0, [out]; ld.param.u32 %%r0, [rounds];
  mov.u32 %%r1, %%tid.x; mov.u32 %%r2, %%ctaid.x; mov.u32 %%r3, %%ntid.x;
  cvt.rn.f32.u32 %%f8, %%r1; mov.f32 %%f9, 0f3F7FFF58; mov.f32 %%f10, 0f3A83126F;
  %(start)s
AGAIN:
  %(body)s
  sub.u32 %%r0, %%r0, 1; setp.ne.u32 %%p, %%r0, 0; @%%p bra AGAIN;
  %(sum)s
  mad.lo.u32 %%r4, %%r2, %%r3, %%r1; mul.wide.u32 %%d1, %%r4, 4; add.u64 %%d2, %%d0, %%d1;
  st.global.f32 [%%d2], %%f0; ret;
}
"""
MMA = """
.visible .entry mma(.param .u64 out, .param .u32 rounds)
{
  .reg .pred %%p; .reg .u32 %%r<8>; .reg .u64 %%d<4>; .reg .b32 %%a<4>; .reg .b32 %%b<2>; .reg .f32 %%f<32>;
  ld.param.u64 %%d0, [out]; ld.param.u32 %%r0, [rounds];
  mov.u32 %%r1, %%tid.x; mov.u32 %%r2, %%ctaid.x; mov.u32 %%r3, %%ntid.x;
  mov.b32 %%a0, %(one)s; mov.b32 %%a1, %(one)s; mov.b32 %%a2, %(one)s; mov.b32 %%a3, %(one)s;
  mov.b32 %%b0, %(one)s; mov.b32 %%b1, %(one)s;
  %(start)s
AGAIN:
  %(body)s
  sub.u32 %%r0, %%r0, 1; setp.ne.u32 %%p, %%r0, 0; @%%p bra AGAIN;
  %(sum)s
  mad.lo.u32 %%r4, %%r2, %%r3, %%r1; mul.wide.u32 %%d1, %%r4, 4; add.u64 %%d2, %%d0, %%d1;
  st.global.f32 [%%d2], %%f0; ret;
}
"""
CHAINS, TURNS, THREADS = 8, 16, 256


class Trouble(Exception):
    """Something could not be measured. The message says why."""


def main(argv):
    """The exit status, after one JSON object was printed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=45, help="at most {}".format(MOST_S))
    asked = parser.parse_args(argv)
    seconds = min(max(asked.seconds, 5.0), float(MOST_S))
    die_with_parent()
    # Whatever hangs in the driver: this process, and so each of its children, ends in time.
    signal.signal(signal.SIGALRM, too_late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    print(json.dumps(dict(burnt(seconds), burn=1)), flush=True)
    os._exit(0)


def too_late(*_):
    os.write(1, b'{"burn": 1, "error": "the time was over before all was measured"}\n')
    os._exit(3)


def die_with_parent():
    """The kernel ends this process when the one that started it ends."""
    parent = os.getppid()
    try:
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)  # PR_SET_PDEATHSIG
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:
        os._exit(3)


def burnt(seconds):
    """Everything that was measured, and everything that was not, with the reason."""
    began, missed = time.monotonic(), []
    before = watched()
    if before is None:
        return {"gpus": [], "missed": [["GPUs", "there is no nvidia-smi that answers"]]}
    if before and all(row["name"].endswith(REHEARSED) for row in before):
        said = output("nvidia-smi", "rehearsed-load")
        return dict(json.loads(said), rehearsed=True)
    # The last seconds are for the links between the GPUs, for the disk, and for ending what hangs.
    until = began + seconds * 0.72
    runs, samples, others = loaded(before, until, missed)
    gpus = []
    for row in before:
        one = dict(row, runs=runs.get(row["index"], {}))
        one["watch"] = summary([s for s in samples if s["index"] == row["index"]])
        one["others"] = others.get(row["bus"], [])
        gpus.append(one)
    links = []
    if len(before) > 1:
        links = between(len(before), began + seconds * 0.84, missed)
    disk = timed_disk(began + seconds * 0.94, missed)
    after = {row["index"]: row for row in watched() or ()}
    for one in gpus:
        one["ecc_after"] = after.get(one["index"], {}).get("ecc")
    took = time.monotonic() - began
    return {"gpus": gpus, "links": links, "disk": disk, "missed": missed, "took_s": round(took, 1)}


# --- what the driver says --------------------------------------------------------------------------


def output(*words):
    """What a command printed; None if it failed or hung."""
    program = shutil.which(words[0])
    if program is None:
        return None
    child = subprocess.Popen(
        [program, *words[1:]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(os.environ, LC_ALL="C"),
    )
    try:
        said = child.communicate(timeout=8)[0][: 1 << 20].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        child.kill()
        return None
    return said if child.returncode == 0 else None


def watched():
    """A row for each GPU; None if the driver does not answer. A field that it does not know is None."""
    for fields in (FIELDS, FIELDS[:11]):
        style = "--format=csv,noheader,nounits"
        said = output("nvidia-smi", "--query-gpu=" + ",".join(fields), style)
        if said is not None:
            return [row_of(line) for line in said.splitlines() if line.strip()]
    return None


def row_of(line):
    row = dict.fromkeys(KEYS)
    for key, cell in zip(KEYS, (cell.strip() for cell in line.split(","))):  # noqa: B905  (Python 3.7)
        row[key] = cell if key in ("name", "bus") else number(cell)
    row["index"] = int(row["index"] or 0)
    return row


def number(cell):
    if re.match(r"0x[0-9a-fA-F]{1,16}$", cell):
        return int(cell, 16)
    match = re.match(r"\d{1,12}(?:\.\d{1,6})?$", cell)
    return float(match.group(0)) if match else None


def summary(samples):
    """What was seen while the GPU worked: the middle clock, the most heat and power, why its clocks were held down."""
    busy = [s for s in samples if (s["util_pct"] or 0) >= 50] or samples
    if not busy:
        return {"samples": 0}
    clocks = sorted(s["sm_mhz"] for s in busy if s["sm_mhz"] is not None)
    held = {}
    for bit, name in REASONS.items():
        share = sum(bool(int(s["reasons"] or 0) & bit) for s in busy) / len(busy)
        if share:
            held[name] = round(share, 2)
    told = {"samples": len(busy), "held": held}
    told["sm_mhz"] = clocks[len(clocks) // 2] if clocks else None
    for key in ("power_w", "temp_c", "pcie_gen", "pcie_width"):
        told[key] = max((s[key] for s in busy if s[key] is not None), default=None)
    return told


def strangers():
    """The processes that the driver lists on each GPU before there is a load of ours, by bus."""
    query = "--query-compute-apps=gpu_bus_id,process_name,used_memory"
    said = output("nvidia-smi", query, "--format=csv,noheader,nounits") or ""
    found = {}
    for line in said.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) >= 3:
            found.setdefault(cells[0], []).append(os.path.basename(cells[1])[:60])
    return found


# --- the load --------------------------------------------------------------------------------------


def loaded(before, until, missed):
    """The figures of each GPU, all under load at once, and the driver's rows while they worked."""
    others, samples, children = strangers(), [], {}
    for row in before:
        children.update(forked(lambda tell, row=row: under_load(row, until - 1, tell)))
    runs = {row["index"]: {} for row in before}
    rest = dict.fromkeys(children, b"")
    while children and time.monotonic() < until + 1:
        ready, _, _ = select.select(list(children), [], [], 0.2)
        for pipe in ready:
            part = os.read(pipe, 65536)
            rest[pipe] += part
            if not part:
                os.close(pipe)
                os.waitpid(children.pop(pipe), 0)
        samples += watched() or []
    for pipe, pid in children.items():
        os.kill(pid, signal.SIGKILL)
        os.close(pipe)
    for said in rest.values():
        for line in said.decode("utf-8", "replace").splitlines():
            try:
                told = json.loads(line)
            except ValueError:
                continue
            if "missed" in told:
                missed.append(["GPU {}: {}".format(told["index"], told["missed"]), told["why"]])
            else:
                runs[told.pop("index")].update(told)
    return runs, samples, others


def forked(work):
    """{pipe: pid} of a child that does the work. What it tells comes through the pipe, a line each."""
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return {read: pid}
    signal.setitimer(signal.ITIMER_REAL, 0)
    die_with_parent()
    try:
        work(lambda **told: os.write(write, json.dumps(told).encode() + b"\n"))
    except BaseException as trouble:  # noqa: BLE001  (a child tells whatever went wrong, and ends)
        why = "{}: {}".format(type(trouble).__name__, trouble)[:300]
        os.write(write, json.dumps({"index": -1, "missed": "load", "why": why}).encode() + b"\n")
    os._exit(0)


class Cuda:
    """The driver's own library. A call that fails raises Trouble, with the driver's word for it."""

    def __init__(self):
        # Its cache would be a file in the home, and this changes nothing there.
        os.environ["CUDA_CACHE_DISABLE"] = "1"
        os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise Trouble("the driver's library is not here ({})".format(error)) from None
        self("cuInit", ctypes.c_uint(0))

    def __call__(self, name, *arguments):
        status = getattr(self._library, name)(*arguments)
        if status:
            said = ctypes.c_char_p()
            self._library.cuGetErrorName(ctypes.c_int(status), ctypes.byref(said))
            word = (said.value or b"?").decode("ascii", "replace")
            raise Trouble("{} failed: {} ({})".format(name, word, status))

    def attribute(self, what, device):
        value = ctypes.c_int()
        self("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(what), device)
        return value.value

    def device_at(self, bus):
        """The device at that PCI address. Its number in a container may be another than the driver's."""
        count = ctypes.c_int()
        self("cuDeviceGetCount", ctypes.byref(count))
        for number_ in range(count.value):
            device = self.device(number_)
            said = ctypes.create_string_buffer(32)
            self("cuDeviceGetPCIBusId", said, ctypes.c_int(32), device)
            if said.value.decode().lower().split(":")[-2:] == bus.lower().split(":")[-2:]:
                return device
        raise Trouble("the driver lists a GPU that cannot be computed on")

    def device(self, number_):
        device = ctypes.c_int()
        self("cuDeviceGet", ctypes.byref(device), ctypes.c_int(number_))
        return device

    def enter(self, device):
        context = ctypes.c_void_p()
        self("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self("cuCtxSetCurrent", context)
        return context

    def allocate(self, size):
        pointer = ctypes.c_uint64()
        self("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def free(self, pointer):
        self("cuMemFree_v2", pointer)

    def free_bytes(self):
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def wait(self):
        self("cuCtxSynchronize")


def under_load(row, until, tell):
    """Each figure of one GPU is told as soon as it is known."""
    index, cuda = row["index"], None
    phases = (
        ("fp32", 0.30, arithmetic),
        ("tensor", 0.62, matrices),
        ("memory", 0.76, bandwidth),
        ("copies", 0.90, copies),
        ("fill", 1.0, filled),
    )
    try:
        cuda = Cuda()
        device = cuda.device_at(row["bus"])
        cuda.enter(device)
    except (Trouble, AttributeError) as trouble:
        tell(index=index, missed="load", why=str(trouble))
        return
    began = time.monotonic()
    for name, share, phase in phases:
        end = began + (until - began) * share
        try:
            tell(index=index, **phase(cuda, device, end))
        except (Trouble, AttributeError) as trouble:
            tell(index=index, missed=name, why=str(trouble))


def program(cuda, device, text, name):
    """The function of that name, translated by the driver for this GPU."""
    kind = cuda.attribute(75, device) * 10 + cuda.attribute(76, device)
    target = max([known for known in PTX_OF if known <= kind] or [70])
    source = (HEAD % {"version": PTX_OF[target], "target": target} + text).encode()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    cuda("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(source))
    cuda("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(name))
    return function


def fma_text():
    start = "".join("add.f32 %f{0}, %f8, 0f{1:08X};".format(n, 0x3F800000) for n in range(CHAINS))
    body = "fma.rn.f32 %f{0}, %f{0}, %f9, %f10;"
    turns = "\n  ".join(body.format(n) for _ in range(TURNS) for n in range(CHAINS))
    total = "".join("add.f32 %f0, %f0, %f{};".format(n) for n in range(1, CHAINS))
    return FMA % {"start": start, "body": turns, "sum": total, "turns": TURNS}


def mma_text(kind):
    """Products of matrices of ones, in bfloat16 from 8.0 on and in float16 before."""
    half = kind < 80
    form = "m16n8k8.row.col.f32.f16.f16.f32" if half else "m16n8k16.row.col.f32.bf16.bf16.f32"
    a, b = ("%a0, %a1", "%b0") if half else ("%a0, %a1, %a2, %a3", "%b0, %b1")
    # 2**-12 in each half of the word: the sums stay numbers however long it runs.
    one = "0x0C000C00" if half else "0x39803980"
    start = "".join("mov.f32 %f{}, 0f00000000;".format(n) for n in range(4 * CHAINS))
    lines = []
    for _ in range(TURNS):
        for chain in range(CHAINS):
            sums = ", ".join("%f{}".format(4 * chain + n) for n in range(4))
            lines.append(
                "mma.sync.aligned.{} {{{}}}, {{{}}}, {{{}}}, {{{}}};".format(form, sums, a, b, sums)
            )
    total = "".join("add.f32 %f0, %f0, %f{};".format(n) for n in range(1, 4 * CHAINS))
    return MMA % {"start": start, "body": "\n  ".join(lines), "sum": total, "one": one}


def rate(cuda, device, function, operations, until):
    """Operations a second, by batches that grow to a fifth of a second; and how many threads came to another sum."""
    blocks = cuda.attribute(16, device) * 8
    out = cuda.allocate(blocks * THREADS * 4)
    rounds, done, spent, wrong = 64, 0.0, 0.0, 0
    while True:
        turns = ctypes.c_uint(rounds)
        arguments = (ctypes.c_void_p * 2)(
            ctypes.cast(ctypes.byref(out), ctypes.c_void_p),
            ctypes.cast(ctypes.byref(turns), ctypes.c_void_p),
        )
        one, began = ctypes.c_uint(1), time.monotonic()
        shape = (ctypes.c_uint(blocks), one, one, ctypes.c_uint(THREADS), one, one)
        no_stream, nothing = ctypes.c_void_p(), ctypes.c_uint(0)
        cuda("cuLaunchKernel", function, *shape, nothing, no_stream, arguments, None)
        cuda.wait()
        took = time.monotonic() - began
        if took < 0.1 and rounds < 1 << 22:
            rounds *= 2
        else:  # what came before was too short to be timed
            done, spent = done + operations * blocks * rounds, spent + took
        if time.monotonic() + took > until:
            break
    wrong = unlike(cuda, out, blocks)
    cuda.free(out)
    if not spent:
        raise Trouble("there was no time for it")
    return done / spent, wrong


def unlike(cuda, out, blocks):
    """How many threads came to another sum than the same thread of the first block."""
    size = blocks * THREADS * 4
    said = ctypes.create_string_buffer(size)
    cuda("cuMemcpyDtoH_v2", said, out, ctypes.c_size_t(size))
    first = said.raw[: THREADS * 4]
    wrong = 0
    for block in range(1, blocks):
        mine = said.raw[block * THREADS * 4 : (block + 1) * THREADS * 4]
        if mine != first:
            wrong += sum(mine[n : n + 4] != first[n : n + 4] for n in range(0, THREADS * 4, 4))
    return wrong


def arithmetic(cuda, device, until):
    function = program(cuda, device, fma_text(), b"fma")
    flops, wrong = rate(cuda, device, function, 2.0 * CHAINS * TURNS * THREADS, until)
    return {"fp32_tflops": flops / 1e12, "wrong": wrong}


def matrices(cuda, device, until):
    kind = cuda.attribute(75, device) * 10 + cuda.attribute(76, device)
    if kind < 75:
        raise Trouble("its tensor cores know another product than the one that is timed here")
    each = 2.0 * 16 * 8 * (8 if kind < 80 else 16) / 32  # of a thread: a product is a warp's
    function = program(cuda, device, mma_text(kind), b"mma")
    flops, wrong = rate(cuda, device, function, each * CHAINS * TURNS * THREADS, until)
    return {"tensor_tflops": flops / 1e12, "wrong_tensor": wrong}


def bandwidth(cuda, _, until):
    size = min(GIB, cuda.free_bytes() // 8 // MIB * MIB)
    if size < 64 * MIB:
        raise Trouble("too little of its memory is free")
    one, other = cuda.allocate(size), cuda.allocate(size)
    cuda("cuMemsetD32_v2", one, ctypes.c_uint(7), ctypes.c_size_t(size // 4))
    cuda.wait()
    best = 0.0
    while time.monotonic() < until:
        began = time.monotonic()
        for _ in range(20):
            cuda("cuMemcpyDtoD_v2", other, one, ctypes.c_size_t(size))
        cuda.wait()
        best = max(best, 2.0 * 20 * size / (time.monotonic() - began))
    cuda.free(one)
    cuda.free(other)
    if not best:
        raise Trouble("there was no time for it")
    return {"memory_gb_s": best / 1e9}


def copies(cuda, _, until):
    """To the GPU and back, from memory of the host that stays where it is."""
    host, there = ctypes.c_void_p(), cuda.allocate(HOST_BYTES)
    cuda("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(HOST_BYTES), ctypes.c_uint(0))
    size, best = ctypes.c_size_t(HOST_BYTES), {}
    ways = (
        ("to_gpu_gb_s", "cuMemcpyHtoD_v2", (there, host)),
        ("to_host_gb_s", "cuMemcpyDtoH_v2", (host, there)),
    )
    for turn, (name, call, ends) in enumerate(ways):
        now = time.monotonic()
        end = now + (until - now) / (2 - turn)
        while name not in best or time.monotonic() < end:
            began = time.monotonic()
            cuda(call, *ends, size)
            took = time.monotonic() - began
            best[name] = max(best.get(name, 0.0), HOST_BYTES / took / 1e9)
    cuda("cuMemFreeHost", host)
    cuda.free(there)
    return best


def filled(cuda, _, until):
    """How much of the free memory holds what was written to it. A tenth of it stays free."""
    most, chunks = int(cuda.free_bytes() * 0.9), []
    each, word, lost = 256 * MIB, ctypes.c_uint(), 0
    try:
        while (len(chunks) + 1) * each <= most and time.monotonic() < until:
            chunk = cuda.allocate(each)
            chunks.append(chunk)
            cuda("cuMemsetD32_v2", chunk, ctypes.c_uint(len(chunks)), ctypes.c_size_t(each // 4))
        for number_, chunk in enumerate(chunks, 1):
            for place in (0, each // 2, each - 4):
                at = ctypes.c_uint64(chunk.value + place)
                cuda("cuMemcpyDtoH_v2", ctypes.byref(word), at, ctypes.c_size_t(4))
                lost += word.value != number_
    finally:
        for chunk in chunks:
            cuda.free(chunk)
    return {"filled_bytes": len(chunks) * each, "lost_words": lost}


def between(count, until, missed):
    """What each pair of GPUs can send to each other, as far as there is time. Neighbours come first."""

    def work(tell):
        cuda = Cuda()
        contexts = [cuda.enter(cuda.device(number_)) for number_ in range(count)]
        ends, size = [], 128 * MIB
        for context in contexts:
            cuda("cuCtxSetCurrent", context)
            ends.append(cuda.allocate(size))
        pairs = [(a, a + step) for step in range(1, count) for a in range(count - step)]
        for a, b in pairs:
            if time.monotonic() > until - 1:
                break
            spans = []
            for _ in range(4):
                began = time.monotonic()
                cuda(
                    "cuMemcpyPeer",
                    ends[b],
                    contexts[b],
                    ends[a],
                    contexts[a],
                    ctypes.c_size_t(size),
                )
                cuda.wait()
                spans.append(time.monotonic() - began)
            tell(a=a, b=b, gb_s=size / min(spans[1:]) / 1e9)

    ((pipe, pid),) = forked(work).items()
    said = b""
    while time.monotonic() < until:
        if select.select([pipe], [], [], 0.2)[0]:
            part = os.read(pipe, 65536)
            if not part:
                break
            said += part
    os.kill(pid, signal.SIGKILL)
    found = [json.loads(line) for line in said.decode().splitlines() if line.endswith("}")]
    missed += [["links between GPUs", each["why"]] for each in found if "why" in each]
    return [each for each in found if "gb_s" in each]


def timed_disk(until, missed):
    """How fast a file is written to the disk of the home, and read from it. It is removed again."""
    size, block = 0, os.urandom(4 * MIB)
    began = time.monotonic()
    if shutil.disk_usage(os.path.expanduser("~")).free < 4 * DISK_BYTES:
        missed.append(["disk", "too little of it is free"])
        return None
    try:
        with tempfile.TemporaryFile(dir=os.path.expanduser("~")) as file:
            while size < DISK_BYTES and time.monotonic() < began + (until - began) / 2:
                size += file.write(block)
            file.flush()
            os.fsync(file.fileno())
            took = time.monotonic() - began
    except OSError as error:
        missed.append(["disk", str(error)[:200]])
        return None
    return {"write_mb_s": size / 1e6 / took, "bytes": size}


if __name__ == "__main__":
    main(sys.argv[1:])
