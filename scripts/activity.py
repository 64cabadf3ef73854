#!/usr/bin/env python3
"""Whether a box works or stands idle: looks that count what its processes did, and a judge that reads them.

    activity.py look --home DIR                   take one look and keep it in DIR/activity.jsonl
    activity.py judge --home DIR [--within-s N]   say how the box stands, by the looks that were kept

DIR is the `--home` that a caretaker was given. Linux, Python 3.7 or newer, standard library only, no root. One
JSON object on the last line; exit status 0, 1 (not done, with a code), 2 (a wrong request).

A look keeps counters that only grow: CPU seconds and bytes of the jobs' processes, which carry the
caretaker's marks or descend from one that does, and of this user's other ones; the network's bytes; and
for each GPU what the driver says and who computes on it. No name, path or argument of a process is kept.
"""

import argparse
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time

RING, LATEST, LOCK = "activity.jsonl", "activity-latest.json", "activity.lock"
MARKER = ".rehearsal.json"
MOST_LINES, KEPT_LINES = 1500, 1200
SMI_S = 20
PROC = "/proc"
AT_REST = ("idle", "suspicious", "unknown")
WITHIN_S = 900.0  # two looks that are further apart say nothing about the time between them
LEAST_S = 5.0

JOB_CORES, OTHER_CORES = 0.1, 0.15
JOB_BYTES_S, OTHER_BYTES_S = 150e3, 300e3
NET_BYTES_S, CORES_A_BYTE = 1e6, 0.01e-6
USED_PCT, NOBODYS_PCT, FULL_PCT, LOW_POWER = 3, 20, 98, 0.5
SPIN_BYTES_S, MUTE_BYTES_S, SPIN_CORES = 50e3, 2.0, 1.0
SPUN_S, MUTE_S, BUFFERED_S = 120.0, 600.0, 180.0
FLUSH_BYTES_S, DATA_BYTES_S = 10e6, 1e6
COUNTERS = ("cpu_s", "read", "written", "disk")
"""Of a group of processes: CPU seconds, bytes passed through read(2) and write(2), bytes from and to disks."""

KINDS = {  # what a command is for, by its first words
    "setup": r"pip[\d.]*|ensurepip|venv|uv|conda|mamba|micromamba|poetry|npm|apt|apt-get|dpkg|aptitude|dnf|yum|git|cmake|make|ninja"
    r"|ld|as|cc1(plus)?|gcc|g\+\+|clang(\+\+)?|nvcc|cicc|ptxas|cargo|rustc|prepare-[0-9a-f]+\.py|setup\.py",
    "data": r"wget|curl|aria2c|rclone|rsync|hf|huggingface-cli|aws|s5cmd|gsutil|gcloud|scp|tar|gzip|pigz|zstd|xz"
    r"|unzip|bzip2|fetch-[0-9a-f]+\.py|.*(tokeni[sz]|preproc|prepare|shard|convert|download|dataset).*",
    "evaluation": r".*(eval|infer|predict|valid|bench|generate|serve|server|vllm|sglang|score).*",
    "training": r"torchrun|accelerate|deepspeed|.*(train|tune|dpo|ppo|grpo|sft).*",
}
OURS_TO_WATCH = re.compile(r"(caretaker|guard|activity|heartbeat)(-[0-9a-f]+)?\.py").fullmatch
AT_WORK = {"manifest", "receive"}
"""These verbs are work for the tenant. With any other verb, and as a supervisor or guard, a caretaker only looks on."""
DOORS = {"sshd", "sshd-session", "sshd-auth", "dropbear"}
"""Their CPU time is spent on whoever knocks, and half the world does. But the bytes may be somebody's upload."""


class Refusal(Exception):
    """What was asked was not done. `code` tells a program why, and the message tells a person."""

    def __init__(self, code, message, **more):
        super().__init__(message)
        self.reply = dict(more, ok=False, code=code, message=message)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Refusal("BAD_REQUEST", message + "; see --help")


def main(argv):
    """The exit status, after one JSON object was written to stdout."""
    try:
        reply = dict(answer(argv), ok=True)
    except Refusal as refusal:
        reply = refusal.reply
    except OSError as error:
        reply = Refusal("OS_ERROR", ascii(str(error))[1:-1]).reply
    except Exception as error:  # noqa: BLE001  a bug too is told as JSON
        words = "{}: {}".format(type(error).__name__, ascii(str(error))[1:-1])
        reply = Refusal("ACTIVITY_BROKE", words).reply
    print(json.dumps(reply), flush=True)
    return 0 if reply["ok"] else 2 if reply["code"] == "BAD_REQUEST" else 1


def answer(argv):
    """What was asked for."""
    parser = Parser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("verb", choices=("look", "judge"))
    parser.add_argument("--home", required=True, metavar="DIR", help="the caretaker's home")
    parser.add_argument(
        "--within-s",
        type=float,
        default=WITHIN_S,
        help="looks further apart than this say nothing ({:g})".format(WITHIN_S),
    )
    parser.add_argument(
        "--rehearsed",
        action="store_true",
        help="the caller's ledger is a rehearsal's, and time may leap with it",
    )
    asked = parser.parse_args(argv)
    if not 10 <= asked.within_s <= 86400:
        raise Refusal("BAD_REQUEST", "--within-s is 10 to 86400 seconds")
    if not os.path.isdir(PROC + "/self"):
        raise Refusal("NO_PROC", "there are no processes to be seen in " + PROC)
    home = os.path.realpath(os.path.expanduser(asked.home))
    if not os.path.isdir(home):
        # It is not made here, because the box of a lease is known by it.
        raise Refusal("NO_HOME", "no caretaker has been at work in " + ascii(home)[1:-1])
    login, leapt_s = rehearsed(home) if asked.rehearsed else (None, 0.0)
    if asked.verb == "look":
        return look(home, login, leapt_s)
    return standing(home, asked.within_s, leapt_s)


# --- the processes ------------------------------------------------------------------------------


def text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def raw(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def now_s():
    """Seconds since the machine began. Nobody can set this clock, and the time of sleep counts."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def rehearsed(home):
    """The login home of a rehearsal's box, by the mark of its platform, and how far its time has leapt. None: no mark."""
    while home != os.path.dirname(home):
        home = os.path.dirname(home)
        marker = os.path.join(home, MARKER)
        if not os.path.lexists(marker):
            continue
        told = read_json(marker).get("leaps")
        try:
            said = float(text(told)) if isinstance(told, str) else 0.0
        except ValueError:
            said = 0.0
        return home, said if 0 < said < 1e12 else 0.0
    return None, 0.0


def boot():
    """A text that changes when the machine or the container is started again."""
    process = stat_of(1)
    return "{:.8}-{}".format(
        text(PROC + "/sys/kernel/random/boot_id").strip(), process["ticks"] if process else 0
    )


def stat_of(pid):
    """The parent, the start and the CPU seconds of a living process; None if there is no such process."""
    # The name in brackets may hold brackets and spaces itself.
    head, _, rest = raw("{}/{}/stat".format(PROC, pid)).rpartition(b")")
    fields = rest.split()
    if len(fields) < 20 or (fields[0] in (b"Z", b"X") and int(fields[17]) <= 1):
        return None
    hz = os.sysconf("SC_CLK_TCK")
    return {
        "name": head.partition(b"(")[2].decode("utf-8", "replace"),
        "parent": int(fields[1]),
        "ticks": int(fields[19]),
        "own_s": (int(fields[11]) + int(fields[12])) / hz,
        "reaped_s": (int(fields[13]) + int(fields[14])) / hz,
    }


def bytes_of(pid):
    """The bytes that the process and its reaped children read, wrote, and moved to and from disks; None if hidden."""
    told = dict(re.findall(r"^(\w+): (\d+)$", text("{}/{}/io".format(PROC, pid)), re.MULTILINE))
    if "wchar" not in told:
        return None
    disk = int(told["read_bytes"]) + int(told["write_bytes"])
    return [int(told["rchar"]), int(told["wchar"]), disk]


def kind_of(words):
    """What a command is for, by its program and first arguments; "" if they do not say."""
    names = [os.path.basename(word).lower() for word in words[:5] if not word.startswith("-")]
    for kind, pattern in KINDS.items():
        if any(re.fullmatch(pattern, name) for name in names[:4]):
            return kind
    return ""


def living(home, login):
    """Every living process that counts, by its number and start: whose it is, and its counters.

    A rehearsal's box is only a `login` home of this computer. None: the box is a machine.
    """
    table = {int(n): stat_of(int(n)) for n in os.listdir(PROC) if n.isdigit()}
    table = {pid: seen for pid, seen in table.items() if seen}
    mark, mine = b"GPU_TENANT_CARETAKER=" + os.fsencode(home), os.getuid()
    apart, pid = set(), os.getpid()
    while pid in table:  # who asks, and on whose behalf
        apart.add(pid)
        pid = table[pid]["parent"]
    found = {}
    for pid, seen in table.items():
        environ = raw("{}/{}/environ".format(PROC, pid)).split(b"\0")
        marked = mark in environ and any(e.startswith(b"GPU_TENANT_JOB=") for e in environ)
        words = raw("{}/{}/cmdline".format(PROC, pid)).decode("utf-8", "replace").split("\0")
        seen["kind"] = kind_of(words)
        if marked and pid != os.getpid():
            found[pid] = "job"
            continue
        try:
            same = os.stat("{}/{}".format(PROC, pid)).st_uid == mine
        except OSError:
            continue
        ours = any(OURS_TO_WATCH(os.path.basename(word)) for word in words)
        watches = ours and not AT_WORK & set(words)
        # A process without words is the kernel's.
        here = login is None or b"HOME=" + os.fsencode(login) in environ
        if same and here and words[0] and pid not in apart and not watches:
            found[pid] = "other"
            if seen["name"] in DOORS:
                seen.update(own_s=0.0, reaped_s=0.0)
    grew = True
    while grew:
        below = [p for p, s in table.items() if found.get(s["parent"]) == "job"]
        below = [p for p in below if found.get(p) != "job" and p != os.getpid()]
        grew = bool(below)
        found.update(dict.fromkeys(below, "job"))
    for pid in found:
        table[pid]["kind"] = table[pid]["kind"] or _inherited(table, found, pid)
    return {
        "{}:{}".format(pid, table[pid]["ticks"]): dict(table[pid], pid=pid, group=group)
        for pid, group in found.items()
    }


def _inherited(table, found, pid):
    for _ in range(20):
        pid = table[pid]["parent"]
        if pid not in found or table[pid]["kind"]:
            return table[pid]["kind"] if pid in found else ""
    return ""


# --- the GPUs -----------------------------------------------------------------------------------


def smi(*query):
    """The driver's cells, a list for each line; None if it gave no answer, or refused."""
    path = os.pathsep.join(
        [os.environ.get("PATH", ""), "/usr/bin", "/usr/local/nvidia/bin", "/usr/lib/wsl/lib"]
    )
    program = shutil.which("nvidia-smi", path=path)
    if program is None:
        raise FileNotFoundError("nvidia-smi")
    child = subprocess.Popen(
        [program, *query, "--format=csv,noheader,nounits"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=dict(os.environ, LC_ALL="C"),
    )
    try:
        said = child.communicate(timeout=SMI_S)[0][: 1 << 20].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, 9)
        child.stdout.close()
        try:
            child.wait(timeout=1)
        except subprocess.TimeoutExpired:
            pass  # a process that hangs in the driver cannot even be killed
        return None
    if child.returncode != 0:
        return None
    return [[cell.strip() for cell in line.split(",")] for line in said.splitlines() if line]


def figure(cell):
    """The number in the cell, or None for `[N/A]`, `[Not Supported]` and all else."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)( ?[A-Za-z%]+)?", cell)
    return float(match.group(1)) if match else None


ASKED = (
    "uuid",
    "pci.bus_id",
    "utilization.gpu",
    "memory.used",
    "utilization.memory",
    "power.draw",
    "power.limit",
)
TOLD = ("util_pct", "mem_mib", "mem_util_pct", "power_w", "power_max_w")
OWNERS = ("job", "other", "else", "unseen")
"""Of a card: the processes of the jobs, of this user and of others that compute on it, and those that cannot be seen."""


def gpus(processes):
    """What the driver says of each GPU, and who computes on it; and how the driver answered."""
    try:
        rows = smi("--query-gpu=" + ",".join(ASKED))
        if rows is None:  # an old driver does not know every field
            rows = smi("--query-gpu=" + ",".join(ASKED[:4]))
        listed = None if rows is None else smi("--query-compute-apps=gpu_uuid,pid,used_memory")
    except OSError:
        return None, "none"
    if rows is None:
        return None, "silent"
    held = holders(processes)
    here = {seen["pid"] for seen in processes.values()}
    everyone = {int(name) for name in os.listdir(PROC) if name.isdigit()}
    found = []
    for row in rows:
        if len(row) < 4:
            continue
        one = dict.fromkeys(TOLD)
        one.update((name, figure(cell)) for name, cell in zip(TOLD, row[2:]))  # noqa: B905  not in 3.7
        on_it = {
            int(r[1]) for r in listed or () if len(r) > 1 and r[0] == row[0] and r[1].isdigit()
        }
        device = minor_of(row[1])
        groups = {p: s["group"] for p, s in ((s["pid"], s) for s in processes.values())}
        mine = {p for p, files in held.items() if not device or device in files} | (on_it & here)
        one["job"] = sum(groups[p] == "job" for p in mine)
        one["other"] = len(mine) - one["job"]
        one["else"] = len(on_it & everyone - here)
        one["unseen"] = len(on_it - everyone)
        found.append(one)
    return found, "ok"


def minor_of(address):
    """The device file of the GPU at that PCI address, by the kernel module's table; "" if that does not say."""
    top, wanted = PROC + "/driver/nvidia/gpus", address.lower().split(":")[-2:]
    for name in os.listdir(top) if os.path.isdir(top) else ():
        match = re.search(r"Device Minor:\s*(\d+)", text(os.path.join(top, name, "information")))
        if match and name.lower().split(":")[-2:] == wanted:
            return "/dev/nvidia" + match.group(1)
    return ""


def holders(processes):
    """The GPU files that each process holds that can compute. One that only asks the driver has no unified memory open."""
    found = {}
    for seen in processes.values():
        directory, files = "{}/{}/fd".format(PROC, seen["pid"]), set()
        try:
            for name in os.listdir(directory):
                files.add(os.readlink(os.path.join(directory, name)))
        except OSError:
            pass
        if "/dev/nvidia-uvm" in files:
            found[seen["pid"]] = {f for f in files if re.fullmatch(r"/dev/nvidia\d+", f)}
    return found


# --- a look -------------------------------------------------------------------------------------


def network():
    """The bytes that came in and went out, but for loopback; None if the system does not say."""
    lines = [line.partition(":") for line in text(PROC + "/net/dev").splitlines() if ":" in line]
    fields = [rest.split() for name, _, rest in lines if name.strip() != "lo"]
    if not lines:
        return None
    return [sum(int(f[0]) for f in fields), sum(int(f[8]) for f in fields)]


def look(home, login, leapt_s):
    """One look was taken, and is the last of the ring."""
    lock = os.open(os.path.join(home, LOCK), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        latest = read_json(os.path.join(home, LATEST))
        try:
            seen, table = taken(home, latest, login, leapt_s)
        except (TypeError, ValueError, KeyError, IndexError, AttributeError):
            # That was no record of ours, so the counters begin anew.
            seen, table = taken(home, {}, login, leapt_s)
        lines = keep(home, seen)
        # The ring is written first. If a crash comes between the two, the next look counts from the one before.
        replace(home, LATEST, json.dumps({"look": seen, "table": table}))
    finally:
        os.close(lock)
    return {"look": seen, "looks": lines}


def taken(home, latest, login, leapt_s):
    """A look at this moment, and the table of processes. Its counters go on from those of the latest look."""
    processes = living(home, login)
    cards, driver = gpus(processes)
    at, up, booted = time.time(), now_s() + leapt_s, boot()
    table = {
        key: [
            s["group"],
            s["parent"],
            s["own_s"],
            s["reaped_s"],
            *(bytes_of(s["pid"]) or [0, 0, 0]),
        ]
        for key, s in processes.items()
    }
    before, old = latest.get("look", {}), latest.get("table", {})
    if before.get("boot") != booted or not before.get("up", up + 1) <= up:
        before, old = {}, {}
    # A process's own start is by the machine's clock, which does not leap.
    since = before.get("up", up) - before.get("leapt", leapt_s)
    seen = {"at": round(at, 2), "up": round(up, 2), "boot": booted}
    if leapt_s:
        seen["leapt"] = leapt_s
    # If the last look's table was lost, the counters begin anew, and so this name of the count changes.
    seen["count"] = before.get("count") or "{:x}".format(int(at * 1000))
    hz = os.sysconf("SC_CLK_TCK")
    fresh = {key for key in table if processes[key]["ticks"] / hz >= since - 1} - set(old)
    for group in ("job", "other"):
        gained = grown(old, table, fresh, group)
        ago = before.get(group, {})
        seen[group] = {n: round(ago.get(n, 0) + g, 2) for n, g in zip(COUNTERS, gained)}  # noqa: B905
        seen[group]["procs"] = sum(row[0] == group for row in table.values())
    kinds = dict(before.get("kinds", {}))
    for key, row in table.items():
        kind, was = processes[key]["kind"], old.get(key) or ([0] * 7 if key in fresh else row)
        if kind and row[2] + row[3] > was[2] + was[3]:
            kinds[kind] = round(kinds.get(kind, 0) + row[2] + row[3] - was[2] - was[3], 2)
    seen.update(kinds=kinds, net=None if login else network(), gpus=cards, driver=driver)
    return seen, table


def grown(old, table, fresh, group):
    """CPU seconds and bytes that the group has gained since; never more than it has, and never less than zero.

    Once a child was waited for, its parent's count includes it. So what was known of the child is taken off.
    """
    alive = {k: row for k, row in table.items() if row[0] == group and (k in old or k in fresh)}
    own_s, sums = 0.0, [0.0] * len(COUNTERS)
    for key, row in alive.items():
        was = old.get(key, [group, 0, 0.0, 0.0, 0, 0, 0])
        own_s += max(0.0, row[2] - was[2])
        sums = [s + now - then for s, now, then in zip(sums, _whole(row), _whole(was))]  # noqa: B905
    parents = {key.partition(":")[0]: key for key in old}
    for key, row in old.items():
        if row[0] == group and key not in table and _reaped_within(old, parents, alive, row):
            sums = [s - known for s, known in zip(sums, _whole(row))]  # noqa: B905
    return [max(own_s, sums[0])] + [max(0.0, value) for value in sums[1:]]


def _whole(row):
    """CPU seconds and bytes of a process and of its children that were waited for."""
    return [row[2] + row[3], *row[4:]]


def _reaped_within(old, parents, alive, row):
    for _ in range(20):
        above = parents.get(str(row[1]))
        if above is None or above in alive:
            return above is not None
        row = old[above]
    return False


def read_json(path):
    """The object in the file; empty if none can be read."""
    try:
        found = json.loads(text(path))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def replace(home, name, content):
    temporary = os.path.join(home, name + ".new")
    with os.fdopen(os.open(temporary, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w") as file:
        file.write(content)
    os.replace(temporary, os.path.join(home, name))


def keep(home, seen):
    """How many lines the ring has. The look is the last of them."""
    path = os.path.join(home, RING)
    line = json.dumps(seen, separators=(",", ":"))
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "rb+") as file:
        content = file.read()
        lines = content.count(b"\n")
        # A line that was cut off stays cut off, and spoils no other line.
        gap = b"\n" if content and not content.endswith(b"\n") else b""
        if lines < MOST_LINES:
            file.write(gap + line.encode() + b"\n")
            return lines + len(gap) + 1
    kept = [one for one in content.decode("utf-8", "replace").splitlines()[-KEPT_LINES:] if one]
    replace(home, RING, "\n".join([*kept, line]) + "\n")
    return len(kept) + 1


# --- the judge ----------------------------------------------------------------------------------


def standing(home, within_s, leapt_s):
    """How the box stands now, by the looks that were kept."""
    looks = kept_looks(home)
    now, booted = now_s() + leapt_s, boot()
    if not looks:
        return _said("unknown", now, now, 0.0, 0.0, "nobody has looked yet")
    latest = looks[-1]
    if latest["boot"] != booted or latest["up"] > now + 1:
        return _said("unknown", now, now, 0.0, 0.0, "the box began anew since the last look")
    if now - latest["up"] > within_s:
        words = "the last look was {} ago".format(lasting(now - latest["up"]))
        return _said("unknown", latest["up"], now, 0.0, 0.0, words)
    began, phase, idle_s, suspicious_s, words = verdicts(looks, within_s)[-1]
    return _said(phase, began, now, idle_s, suspicious_s, words)


def _said(phase, began, now, idle_s, suspicious_s, words):
    return {
        "phase": phase,
        "busy": phase not in AT_REST,
        "idle_s": round(idle_s, 1),
        "suspicious_s": round(suspicious_s, 1),
        # By the time that has passed, because the wall clock may have been set since.
        "since": round(time.time() - (now - began), 1),
        "words": words,
    }


def kept_looks(home):
    """Every line of the ring that is a look. Any other line is passed over."""
    found = []
    for line in text(os.path.join(home, RING)).splitlines():
        try:
            one = json.loads(line, parse_constant=_no_number)
            if is_look(one):
                found.append(one)
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
            continue
    return found


def _no_number(constant):
    raise ValueError(constant)


def is_look(one):
    """Whether everything that the judge reads is there."""
    cells = [one["at"], one["up"], one.get("leapt", 0)]
    cells += [*one["kinds"].values(), *(one["net"] or ())]
    cells += [one[group][name] for group in ("job", "other") for name in (*COUNTERS, "procs")]
    for card in one["gpus"] or ():
        cells += [card[name] for name in OWNERS]
        cells += [card[name] for name in TOLD if card[name] is not None]
    words = (one["boot"], one["count"], one["driver"])
    return all(isinstance(c, (int, float)) for c in cells) and all(
        isinstance(w, str) for w in words
    )


def verdicts(looks, within_s=WITHIN_S):
    """For each look: when the phase began, the phase, the seconds of idleness and of suspicion, and words.

    A verdict rests on its look and on those before it. A later look changes nothing.
    """
    found, before = [], None
    phase, began, idle_s, suspicious_s, was = "", 0.0, 0.0, 0.0, Past()
    for seen in looks:
        told = None if before is None else between(before, seen, within_s)
        if told is not None and told["dt_s"] < LEAST_S and found:
            # It is too short to tell anything. The next look counts from the one before.
            found.append(found[-1])
            continue
        if told is None:
            new, words, was = "unknown", "one look says nothing yet", Past()
            if before is not None:
                words = "nobody looked for {}, or the box began anew".format(
                    lasting(max(0.0, seen["up"] - before["up"]))
                )
        else:
            new, words = judged(told, was)
        if new != phase:
            phase, began = new, before["up"] if told is not None else seen["up"]
        if new in ("idle", "suspicious") and told is not None:
            idle_s += told["dt_s"] if new == "idle" else 0.0
            suspicious_s += told["dt_s"] if new == "suspicious" else 0.0
        else:
            idle_s = suspicious_s = 0.0
        if new == "idle":
            words = "idle for {}: {}".format(lasting(idle_s), words)
        found.append((began, phase, idle_s, suspicious_s, words))
        before = seen
    return found


class Past:
    """What the judge remembers of earlier looks, since it last knew nothing."""

    def __init__(self):
        self.worked = ""  # the last phase of work
        self.spun_s = 0.0  # how long the cards have been full to no effect, as far as can be seen
        self.moved_s = 1e9  # how long ago bytes last passed: a download may still wait in a buffer
        self.rest_s = 0.0  # how long the cards in use have been at 0 %


def between(before, seen, within_s):
    """What happened from one look to the next, as rates; None if that is unknown."""
    dt_s = seen["up"] - before["up"]
    same = seen["boot"] == before["boot"] and seen["count"] == before["count"]
    if not same or dt_s < 0 or dt_s > within_s:
        return None
    # Nothing works while time leaps. A look must not take the little that its own moment shows for work.
    really_s = dt_s - (seen.get("leapt", 0.0) - before.get("leapt", 0.0))
    really_s = max(really_s, min(dt_s, 1.0), 0.001)
    told, per_s = {"dt_s": dt_s}, 1.0 / really_s
    for group in ("job", "other"):
        gained = {n: max(0.0, seen[group][n] - before[group][n]) * per_s for n in COUNTERS}
        gained["flow"] = gained["read"] + gained["written"]
        gained["procs"] = seen[group]["procs"]
        told[group] = gained
    net = [max(0.0, b - a) * per_s for a, b in zip(before["net"] or [], seen["net"] or [])]  # noqa: B905
    told["in"], told["out"] = net if len(net) == 2 else (0.0, 0.0)
    kinds = {k: v - before["kinds"].get(k, 0.0) for k, v in seen["kinds"].items()}
    most = max(kinds, key=kinds.get) if kinds else ""
    spent_s = (told["job"]["cpu_s"] + told["other"]["cpu_s"]) * really_s
    told["kind"] = most if most and kinds[most] >= max(0.01, spent_s / 2) else ""
    told["cards"], told["driver"] = seen["gpus"], seen["driver"]
    return told


def judged(told, was):
    """The phase of the box between two looks, and the figures that show it."""
    cards = told["cards"] or []
    owned = [c for c in cards if c["job"] + c["other"] + c["else"] > 0]
    full = [c for c in cards if (c["util_pct"] or 0) >= NOBODYS_PCT and c not in owned]
    used = [c for c in owned if (c["util_pct"] or 0) >= USED_PCT]
    job, other = told["job"], told["other"]
    cores, net = job["cpu_s"] + other["cpu_s"], told["in"] + told["out"]
    figures = shown(told)
    moves = job["flow"] >= JOB_BYTES_S or other["flow"] >= OTHER_BYTES_S
    was.moved_s = 0.0 if moves else was.moved_s + told["dt_s"]
    works = (
        job["cpu_s"] >= JOB_CORES
        or other["cpu_s"] >= OTHER_CORES
        or moves
        or (net >= NET_BYTES_S and (cores >= net * CORES_A_BYTE or was.moved_s <= BUFFERED_S))
    )
    owners = sum(told[g]["flow"] for g in ("job", "other") if any(c[g] for c in used))
    spins, sure = spinning(used, owners)
    was.spun_s = was.spun_s + told["dt_s"] if spins else 0.0
    rests = any(c["job"] + c["other"] for c in cards) and not used and job["flow"] < MUTE_BYTES_S
    was.rest_s = was.rest_s + told["dt_s"] if rests else 0.0
    if spins and was.spun_s >= (SPUN_S if sure else MUTE_S):
        return "suspicious", "a GPU is full and nothing comes of it: {}".format(figures)
    if rests and works and was.rest_s >= MUTE_S and cores <= 1.1 * SPIN_CORES:
        return "suspicious", "a core spins, and nothing comes of it: {}".format(figures)
    if used or works:
        was.worked = phase_of(told, used, was)
        return was.worked, figures
    if full:
        return "suspicious", "a GPU is at work for nobody who can be seen: {}".format(figures)
    if told["driver"] == "silent" and job["procs"]:
        return "suspicious", "the driver gives no answer, and the job does nothing: " + figures
    return "idle", figures


def spinning(used, flow):
    """Whether the cards in use are busy as with a kernel that waits for ever, and whether that is sure."""
    if not used or flow >= SPIN_BYTES_S or any(c["util_pct"] < FULL_PCT for c in used):
        return False, False
    powers = [
        c["power_w"] / c["power_max_w"] for c in used if c["power_w"] and c.get("power_max_w")
    ]
    memory = [c["mem_util_pct"] for c in used if c["mem_util_pct"] is not None]
    if any(m > 0 for m in memory) or any(p > LOW_POWER for p in powers):
        return False, False
    sure = len(powers) == len(memory) == len(used)
    return sure or flow < MUTE_BYTES_S, sure


def phase_of(told, used, was):
    """Which work it is: an estimate, by what is used most and what the commands are for."""
    written = told["job"]["written"] + told["other"]["written"]
    flow, kind = told["job"]["flow"] + told["other"]["flow"], told["kind"]
    cores = told["job"]["cpu_s"] + told["other"]["cpu_s"]
    if used:
        return "evaluation" if kind == "evaluation" else "training"
    if kind == "setup":
        return "setup"
    if told["out"] >= 1e6 and told["out"] > 4 * told["in"]:
        return "flush"
    if was.worked in ("training", "evaluation", "flush") and written >= FLUSH_BYTES_S:
        return "flush"
    if kind in ("data", "evaluation", "training"):
        return kind
    if told["in"] >= DATA_BYTES_S or written >= DATA_BYTES_S or flow >= 20 * DATA_BYTES_S:
        return "data"
    if was.worked in ("training", "evaluation"):
        return was.worked
    blind = all(card["util_pct"] is None for card in told["cards"] or ())
    return "training" if blind and cores >= JOB_CORES else "data"


def shown(told):
    """The figures between two looks, as a person reads them."""
    said = []
    for index, card in enumerate(told["cards"] or []):
        util = "?" if card["util_pct"] is None else "{:.0f}".format(card["util_pct"])
        whose = "" if card["job"] + card["other"] + card["else"] else ", nobody's"
        said.append("GPU {} {} %{}".format(index, util, whose if util not in "0?" else ""))
    if told["driver"] == "silent":
        said.append("no word from the driver")
    for group, name in (("job", "the jobs"), ("other", "others")):
        one = told[group]
        said.append(
            "{} ({} processes) {:.2f} cores and {} through files".format(
                name, int(one["procs"]), one["cpu_s"], rate(one["flow"])
            )
        )
    said.append("network {}".format(rate(told["in"] + told["out"])))
    return ", ".join(said)


def rate(bytes_s):
    for unit, size in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if bytes_s >= size:
            return "{:.3g} {}".format(bytes_s / size, unit)
    return "{:.0f} B/s".format(bytes_s)


def lasting(seconds):
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return "{:.3g} {}".format(seconds / size, unit)
    return "{:.0f} s".format(seconds)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
