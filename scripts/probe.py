"""Look at a GPU box, and print what was seen as one JSON object; judge nothing, change nothing.

    python3 probe.py [--work DIR] [--place PATH ...] [--reach HOST[:PORT] ...]
    ssh BOX 'python3 - --reach package-index huggingface.co' < probe.py

Python 3.7 or newer, standard library only, no root, at most 20 seconds. A part that fails or hangs
is told as {"error": "..."} and takes no other part with it. No value of an environment variable
and no command line is read. The one thing written is a file of a few bytes in the home and work
directories, which is removed again.
"""

import argparse
import functools
import json
import os
import pwd
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

WHOLE_S = 18
REACH_S = 3
TORCH_S = 8
COUNT_S = 3
MAX_TEXT = 600000
REAL_FILESYSTEMS = (
    "bcachefs",
    "beegfs",
    "btrfs",
    "ceph",
    "cifs",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "fuse",
    "gpfs",
    "jfs",
    "lustre",
    "nfs",
    "nfs4",
    "overlay",
    "reiserfs",
    "virtiofs",
    "9p",
    "xfs",
    "zfs",
)
TOOLS = (
    "apt-get",
    "aria2c",
    "curl",
    "docker",
    "gcc",
    "git",
    "nvcc",
    "nvidia-smi",
    "podman",
    "rsync",
    "screen",
    "srun",
    "sudo",
    "systemctl",
    "tar",
    "tmux",
    "unzip",
    "uv",
    "wget",
    "zstd",
)
HINT_VARIABLES = (
    "CONTAINER_ID",
    "KUBERNETES_SERVICE_HOST",
    "RUNPOD_POD_ID",
    "SLURM_JOB_ID",
    "VAST_CONTAINERLABEL",
    "AutoDLContainerUUID",
    "COLAB_RELEASE_TAG",
    "KAGGLE_KERNEL_RUN_TYPE",
)
NOT_FROM_HERE = "import sys; sys.path[:] = [path for path in sys.path if path]; "
# What lies in the login directory is the tenant's: a `torch.py` there is not PyTorch.
TORCH = (
    NOT_FROM_HERE
    + """
import json, torch
seen = {"version": torch.__version__, "built_for_cuda": torch.version.cuda}
seen["cuda_available"] = torch.cuda.is_available()
seen["devices"] = torch.cuda.device_count()
print(json.dumps(seen))
"""
)


def main():
    """The observations are on stdout, whatever failed."""
    parser = argparse.ArgumentParser(description="Look at this box; print JSON.")
    parser.add_argument("--work", default="", help="the directory the jobs will run in")
    parser.add_argument("--reach", nargs="*", default=[], metavar="HOST[:PORT]")
    parser.add_argument("--place", nargs="*", default=[], help="paths that the platform speaks of")
    parser.add_argument("--count", nargs="*", default=[], help="of these, the files are counted")
    asked = parser.parse_args()
    started_s = time.time()
    home, shm = os.path.expanduser("~"), "/dev/shm"  # noqa: S108
    places = {"root": "/", "home": home, "tmp": tempfile.gettempdir(), "shm": shm}
    if asked.work:
        places["work"] = existing(os.path.abspath(os.path.expanduser(asked.work)))
    parts = {
        "system": system,
        "user": user,
        "cpu": cpu,
        "cgroup": cgroup,
        "memory": memory,
        "smi": nvidia_smi,
        "devices": gpu_devices,
        "kernel_log": kernel_log,
        "disks": lambda: disks(places, asked.place, asked.count),
        "writes": lambda: {
            role: write_test(places[role]) for role in ("home", "work") if role in places
        },
        "python": python,
        "torch": torch,
        "processes": processes,
        "tools": tools,
        "container": container,
        "reach": lambda: at_once(
            [(target, functools.partial(reach, target)) for target in asked.reach], REACH_S + 2
        ),
    }
    seen = at_once(list(parts.items()), WHOLE_S)
    seen["probe"] = 1
    seen["clock"] = {"started_s": started_s, "ended_s": time.time()}
    print(json.dumps(seen), flush=True)
    os._exit(0)  # a thread stuck in a dead mount must not keep the answer from ending


def at_once(parts, limit_s):
    """Each part's answer by its name, all asked at once; an error for each that fails or hangs."""
    answers = {}

    def ask(name, look):
        try:
            answers[name] = look()
        except Exception as trouble:  # noqa: BLE001 (one part's trouble is an answer, whatever it is)
            answers[name] = {"error": "{}: {}".format(type(trouble).__name__, trouble)[:500]}

    threads = [threading.Thread(target=ask, args=part, daemon=True) for part in parts]
    for thread in threads:
        thread.start()
    end = time.monotonic() + limit_s
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    late = {"error": "no answer in {} s".format(limit_s)}
    return {name: answers.get(name, late) for name, _ in parts}


def command(*words, **limits):
    """What a command said. Its whole process group is ended when its time is over."""
    timeout_s = limits.get("timeout_s", 10)
    child = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=dict(os.environ, LC_ALL="C"),
    )
    try:
        out, err = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, 9)
        return {"error": "no answer in {} s".format(timeout_s)}
    return {
        "status": child.returncode,
        "out": out.decode("utf-8", "replace")[:MAX_TEXT],
        "err": err.decode("utf-8", "replace")[:4000],
    }


def text(path, limit=MAX_TEXT):
    """The file's text, None where it is not readable."""
    try:
        with open(path, "rb") as file:
            return file.read(limit).decode("utf-8", "replace")
    except OSError:
        return None


def existing(path):
    """The nearest directory above that exists."""
    while not os.path.isdir(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def system():
    kernel = os.uname()
    return {
        "kernel": kernel.release,
        "machine": kernel.machine,
        "os_release": text("/etc/os-release", 2000),
        "boot_id": (text("/proc/sys/kernel/random/boot_id") or "").strip() or None,
        "uptime_s": float((text("/proc/uptime") or "nan").split()[0]),
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }


def user():
    return {"uid": os.getuid(), "name": user_name(os.getuid()), "home": os.path.expanduser("~")}


def user_name(uid):
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def cpu():
    described = text("/proc/cpuinfo") or ""
    models = [
        line.split(":", 1)[1].strip() for line in described.splitlines() if "model name" in line
    ]
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "model": models[0] if models else None,
        "host_cores": os.cpu_count(),
        "affinity": len(affinity(0)) if affinity else None,
        "load": text("/proc/loadavg", 200),
    }


def cgroup():
    """Each limit file between our own group and the top, for both versions."""
    names = {
        "": ("cpu.max", "memory.max", "memory.current", "memory.events"),
        "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us"),
        "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.failcnt"),
    }
    own = text("/proc/self/cgroup", 20000) or ""
    groups = []
    for line in own.splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            if controller not in names:
                continue
            for top in cgroup_mounts(controller):
                below = path
                while True:
                    directory = os.path.join(top, below.lstrip("/"))
                    files = {
                        name: text(os.path.join(directory, name), 2000)
                        for name in names[controller]
                    }
                    files = {name: said.strip() for name, said in files.items() if said is not None}
                    if files:
                        groups.append({"directory": directory, "files": files})
                    if below in ("/", ""):
                        break
                    below = os.path.dirname(below)
    return {"own": own, "groups": groups[:64]}


def cgroup_mounts(controller):
    """Where a version 1 controller is mounted, or, for "", version 2."""
    for line in (text("/proc/mounts") or "").splitlines():
        _, path, kind, options = line.split(" ")[:4]
        if controller and kind == "cgroup" and controller in options.split(","):
            yield path
        if not controller and kind == "cgroup2":
            yield path


def memory():
    return {"meminfo": text("/proc/meminfo", 8000)}


def nvidia_smi():
    if shutil.which("nvidia-smi") is None:
        return {"missing": True}
    return command("nvidia-smi", "-q", "-x", timeout_s=15)


def gpu_devices():
    nodes = [
        name for name in os.listdir("/dev") if name.startswith("nvidia") and name[6:].isdigit()
    ]
    buses = []
    pci = "/sys/bus/pci/devices"
    for bus in os.listdir(pci) if os.path.isdir(pci) else []:
        vendor = (text(os.path.join(pci, bus, "vendor"), 20) or "").strip()
        kind = (text(os.path.join(pci, bus, "class"), 20) or "").strip()
        if vendor == "0x10de" and kind.startswith("0x03"):
            buses.append(bus)
    return {
        "nodes": sorted(nodes),
        "buses": sorted(buses),
        "module": text("/proc/driver/nvidia/version", 1000),
    }


def kernel_log():
    said = command("dmesg", timeout_s=5) if shutil.which("dmesg") else {"error": "no dmesg"}
    if said.get("status") != 0:
        return {"error": (said.get("err") or said.get("error") or "not readable").strip()[:300]}
    lines = [line[:500] for line in said["out"].splitlines() if "Xid" in line or "NVRM" in line]
    return {"lines": lines[-100:]}


def disks(places, promised, counted):
    """Each place that matters and each real mount above 1 GB; a dead one takes no other with it."""
    asked = list(places.items())
    asked += [("platform", path) for path in promised if path != "~"]
    mounts = {}
    for line in (text("/proc/mounts") or "").splitlines():
        device, path, kind, options = line.split(" ")[:4]
        path = path.encode().decode("unicode_escape").encode("latin-1").decode("utf-8", "replace")
        mounts[path] = {"device": device, "kind": kind, "options": options}
        if kind.split(".")[0] in REAL_FILESYSTEMS and not os.path.isfile(path):
            asked.append(("mount", path))
    measured = at_once(
        [
            (
                "{} {}".format(role, path),
                functools.partial(measure, role, path, mounts, path in counted),
            )
            for role, path in asked[:100]
        ],
        5,
    )
    found = []
    for (role, path), seen in zip(asked, measured.values()):  # noqa: B905 (Python 3.7)
        if "error" in seen:
            seen = {"role": role, "path": path, "error": seen["error"]}
        if role != "mount" or "error" in seen or seen["total_bytes"] > 1e9:
            found.append(seen)
    return {"places": found}


def measure(role, path, mounts, counting):
    size = os.statvfs(path)
    point = os.path.realpath(path)
    while point not in mounts and point != "/":
        point = os.path.dirname(point)
    return {
        "role": role,
        "path": path,
        "mount": point,
        "kind": mounts.get(point, {}).get("kind"),
        "options": mounts.get(point, {}).get("options"),
        "device": os.stat(path).st_dev,
        "total_bytes": size.f_blocks * size.f_frsize,
        "free_bytes": size.f_bavail * size.f_frsize,
        "total_inodes": size.f_files,
        "free_inodes": size.f_favail,
        "files": files_below(path) if counting else None,
    }


def files_below(path):
    """How many files and directories lie below, or so many as could be counted in COUNT_S."""
    found, until = 0, time.monotonic() + COUNT_S
    for _, directories, files in os.walk(path):
        found += len(directories) + len(files)
        if time.monotonic() > until:
            break
    return found


def write_test(directory):
    """Whether a few bytes come back as they were written."""
    try:
        with tempfile.NamedTemporaryFile(dir=directory, prefix=".gpu-tenant-probe-") as file:
            file.write(b"gpu-tenant")
            file.flush()
            os.fsync(file.fileno())
            with open(file.name, "rb") as again:
                return {"path": directory, "same": again.read() == b"gpu-tenant"}
    except OSError as trouble:
        return {"path": directory, "error": str(trouble)[:300]}


def python():
    return {"version": "{}.{}.{}".format(*sys.version_info[:3]), "path": sys.executable}


def torch():
    said = command(sys.executable, "-c", TORCH, timeout_s=TORCH_S)
    if said.get("status") == 0:
        return json.loads(said["out"])
    if "No module named 'torch'" in said.get("err", ""):
        return {"missing": True}
    last = said.get("err", "").strip().splitlines()[-1:] or [said.get("error", "failed")]
    return {"error": last[0][:300]}


def processes():
    """Who else runs here, by user and program name, and which of all hold a GPU open."""
    others, on_gpu, total = {}, [], 0
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            uid = os.stat("/proc/" + entry).st_uid
        except OSError:
            continue
        total += 1
        name = (text("/proc/{}/comm".format(entry), 100) or "?").strip()
        if uid != os.getuid() and uid >= 1000:
            others[(uid, name)] = others.get((uid, name), 0) + 1
        if holds_gpu(entry):
            on_gpu.append({"pid": int(entry), "uid": uid, "name": name})
    most = sorted(others.items(), key=lambda item: -item[1])[:50]
    return {
        "total": total,
        "others": [
            {"uid": uid, "user": user_name(uid), "name": name, "count": count}
            for (uid, name), count in most
        ],
        "on_gpu": on_gpu[:100],
        "pids_seen_from": "container" if text("/proc/2/comm", 20) != "kthreadd\n" else "host",
    }


def holds_gpu(pid):
    directory = "/proc/{}/fd".format(pid)
    try:
        for entry in os.listdir(directory):
            target = os.readlink(os.path.join(directory, entry))
            if target.startswith("/dev/nvidia") and target[11:].isdigit():
                return True
    except OSError:
        pass
    return False


def tools():
    return {name: shutil.which(name) for name in TOOLS}


def container():
    return {
        "marks": [path for path in ("/.dockerenv", "/run/.containerenv") if os.path.exists(path)],
        "first_process": (text("/proc/1/comm", 100) or "").strip() or None,
        "variables": [name for name in HINT_VARIABLES if name in os.environ],
    }


def package_index():
    """HOST[:PORT] of the index that pip uses here: a mirror, where one is set."""
    asked = [
        "import runpy; sys.argv = 'pip config get global.index-url'.split(); runpy.run_module('pip', run_name='__main__')",
        "from pip._internal.models.index import PyPI; print(PyPI.url)",
    ]
    url = os.environ.get("PIP_INDEX_URL", "")
    for code in asked if not url else ():
        ran = subprocess.run(
            [sys.executable, "-c", NOT_FROM_HERE + code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=REACH_S,
        )
        url = ran.stdout.decode("ascii", "replace").strip()
        if url:
            break
    host = url.partition("://")[2].partition("/")[0].rpartition("@")[2]
    if not host:
        raise OSError("no pip here to say where it looks")
    return host if ":" in host or not url.startswith("http://") else host + ":80"


def reach(target):
    """Whether a connection opens. Nothing is sent. `package-index` is wherever this box's pip looks."""
    host, _, port = (package_index() if target == "package-index" else target).partition(":")
    began = time.monotonic()
    with socket.create_connection((host, int(port or 443)), timeout=REACH_S) as connection:
        return {
            "address": connection.getpeername()[0],
            "took_s": round(time.monotonic() - began, 3),
        }


if __name__ == "__main__":
    main()
