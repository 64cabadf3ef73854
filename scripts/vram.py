#!/usr/bin/env python3
"""Whose is the GPU memory: what the driver counts, beside the processes that can be seen from here.

    vram.py [--home DIR ...]               report, and change nothing
    vram.py [--home DIR ...] --end PID     end one process that a caretaker of ours started

DIR is the `--home` that a caretaker was given. Python 3.7 or newer, standard library only, no root. One JSON
object on the last line; exit status 0, 1 (not done, with a code), 2 (a wrong request).

The driver reports the process numbers of the host. Inside a container those are either hidden or name
another process, so a number counts only where a process here bears it and holds that GPU open.
Memory that this leaves over is nobody's that can be seen, which is not to say that it is nobody's.
"""

import argparse
import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET

SMI_S = 30
MAX_XML = 16 << 20
PROC = "/proc"
NUMBERS = ("pid", "start_ticks", "init_ticks", "supervisor_pid", "supervisor_ticks")


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
        parser = Parser(
            description=__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        parser.add_argument(
            "--home",
            action="append",
            default=[],
            metavar="DIR",
            help="a caretaker's home (repeatable)",
        )
        parser.add_argument(
            "--proc", default=PROC, metavar="DIR", help="where the processes are to be seen (/proc)"
        )
        parser.add_argument(
            "--end", type=int, metavar="PID", help="end this process, if it is ours"
        )
        parser.add_argument(
            "--grace-s", type=float, default=10.0, help="seconds between SIGTERM and SIGKILL (10)"
        )
        asked = parser.parse_args(argv)
        reply = answer(asked)
    except Refusal as refusal:
        reply = refusal.reply
    except Exception as error:  # noqa: BLE001  a bug too is told as JSON
        reply = Refusal("VRAM_BROKE", "{}: {}".format(type(error).__name__, error)).reply
    print(json.dumps(reply), flush=True)
    return 0 if reply["ok"] else 2 if reply["code"] == "BAD_REQUEST" else 1


def answer(asked):
    """What was asked for."""
    global PROC
    if not 0 <= asked.grace_s <= 600:
        raise Refusal("BAD_REQUEST", "--grace-s is 0 to 600 seconds")
    if asked.end is not None and asked.proc != PROC:
        raise Refusal("BAD_REQUEST", "--end goes by the processes of /proc alone")
    PROC = asked.proc
    if not os.path.isdir(PROC + "/1"):
        raise Refusal("NO_PROC", "there are no processes to be seen in " + PROC)
    jobs = [job for home in homes(asked.home) for job in records(home)]
    return report(jobs) if asked.end is None else end(asked.end, jobs, asked.grace_s)


# --- what our caretakers started ----------------------------------------------------------------


def homes(given):
    """The caretakers' homes that were named, and the one that this process was started under."""
    found = [os.path.realpath(os.path.expanduser(home)) for home in given if home]
    for home in found:
        if not os.path.isdir(os.path.join(home, "jobs")):
            raise Refusal("BAD_REQUEST", "no caretaker keeps jobs in " + home)
    inherited = os.environ.get("GPU_TENANT_CARETAKER", "")
    return list(dict.fromkeys(found + ([inherited] if os.path.isdir(inherited) else [])))


def records(home):
    """Each job that was started there, by its own record. A record that cannot be read is no reason to end anything."""
    top = os.path.join(home, "jobs")
    for name in sorted(os.listdir(top)) if os.path.isdir(top) else ():
        try:
            with open(os.path.join(top, name, "started.json"), encoding="utf-8") as file:
                record = json.load(file)
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(record, dict) and all(isinstance(record.get(n), int) for n in NUMBERS):
            yield dict(record, job=name, home=home)


def restarted(record):
    """Whether no process of that launch can be left: the machine or the container was started again since."""
    if record.get("boot_id") != text(PROC + "/sys/kernel/random/boot_id").strip():
        return True
    first = ticks(1)
    return bool(record["init_ticks"] and first and record["init_ticks"] != first)


def text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def stat_of(pid):
    """The parent, the session and the start of a living process; None if there is no such process."""
    try:
        with open("{}/{}/stat".format(PROC, pid), "rb") as file:
            # The name in brackets may hold brackets and spaces itself.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 20 or (fields[0] in (b"Z", b"X") and int(fields[17]) <= 1):
        return None
    return int(fields[1]), int(fields[3]), int(fields[19])


def living():
    """Every living process by its number."""
    seen = ((int(entry), stat_of(entry)) for entry in filter(str.isdigit, os.listdir(PROC)))
    return {pid: stat for pid, stat in seen if stat}


def ticks(pid):
    seen = stat_of(pid)
    return seen[2] if seen else 0


def owners(jobs, table):
    """The job of every living process that belongs to one: by record, session, mark and descent."""
    found = {}
    for job in jobs:
        gone = restarted(job)
        for pid, (_, session, began) in table.items():
            if not gone and (
                (pid == job["pid"] and began == job["start_ticks"])
                or (pid == job["supervisor_pid"] and began == job["supervisor_ticks"])
                or (session == job["pid"] and began >= job["start_ticks"] > 0)
            ):
                found[pid] = job
        marks = {
            b"GPU_TENANT_JOB=" + os.fsencode(job["job"]),
            b"GPU_TENANT_CARETAKER=" + os.fsencode(job["home"]),
        }
        for pid in table:
            try:
                with open("{}/{}/environ".format(PROC, pid), "rb") as file:
                    if marks.issubset(file.read().split(b"\0")) and pid != os.getpid():
                        found[pid] = job
            except OSError:
                continue
    grew = True
    while grew:
        below = {p: found[s[0]] for p, s in table.items() if p not in found and s[0] in found}
        below.pop(os.getpid(), None)
        grew = bool(below)
        found.update(below)
    return found


# --- what the driver says, and who is seen ------------------------------------------------------


def bus(address):
    """A PCI address in one spelling: 00000000:0A:00.0, 0000:0a:00.0 and 0A:00.0 are the same; "" for none."""
    match = re.fullmatch(
        r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", address.strip().lower()
    )
    if match is None:
        return ""
    domain, number, device, function = (int(part or "0", 16) for part in match.groups())
    return "{:04x}:{:02x}:{:02x}.{:x}".format(domain, number, device, function)


def mebibytes(element, path):
    match = re.match(r"\s*(\d{1,9}) ?MiB", element.findtext(path) or "")
    return int(match.group(1)) if match else None


def driver():
    """What `nvidia-smi -q -x` says of every GPU."""
    if shutil.which("nvidia-smi") is None:
        raise Refusal(
            "NO_NVIDIA_SMI", "there is no nvidia-smi here: no GPU is attached, or no driver"
        )
    child = subprocess.Popen(
        ["nvidia-smi", "-q", "-x"],
        stdin=subprocess.DEVNULL,  # this script itself may be on stdin
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=dict(os.environ, LC_ALL="C"),
    )
    try:
        said = child.communicate(timeout=SMI_S)[0][:MAX_XML].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        raise Refusal(
            "DRIVER_SILENT", "nvidia-smi gave no answer in {} s: the driver hangs".format(SMI_S)
        ) from None
    if child.returncode != 0 or "<!ENTITY" in said:
        words = " ".join(re.sub(r"[^ -~]+", " ", said).split())[:300]
        raise Refusal(
            "DRIVER_REFUSED", "nvidia-smi failed ({}): {}".format(child.returncode, words)
        )
    try:
        log = ET.fromstring(said[max(0, said.find("<?xml")) :])  # noqa: S314 (no entities; its size is bounded)
    except ET.ParseError as error:
        raise Refusal(
            "DRIVER_REFUSED", "nvidia-smi printed no whole XML: {}".format(error)
        ) from None
    return [gpu(index, element) for index, element in enumerate(log.findall("gpu"))]


def gpu(index, element):
    address = bus(element.findtext("pci/pci_bus_id") or element.get("id") or "")
    minor = (element.findtext("minor_number") or "").strip()
    if not minor.isdigit():
        minor = minor_of(address)
    processes = {}
    for process in element.findall("processes/process_info"):
        pid = (process.findtext("pid") or "").strip()
        if pid.isdigit():
            processes[int(pid)] = mebibytes(process, "used_memory")
    return {
        "index": index,
        "bus": address,
        "name": (element.findtext("product_name") or "").strip()[:80],
        "device": "/dev/nvidia" + minor if minor else None,
        "total_mib": mebibytes(element, "fb_memory_usage/total"),
        "used_mib": mebibytes(element, "fb_memory_usage/used"),
        "driver_lists": processes,
    }


def minor_of(address):
    """The number of the device file, by the kernel module's own table. That spells the addresses in another way."""
    top = PROC + "/driver/nvidia/gpus"
    for name in os.listdir(top) if os.path.isdir(top) else ():
        match = re.search(r"Device Minor:\s*(\d+)", text(os.path.join(top, name, "information")))
        if address and bus(name) == address and match:
            return match.group(1)
    return ""


def holders():
    """The device files of GPUs that each process holds open, and how many processes we may not look into."""
    found, closed = {}, 0
    for entry in filter(str.isdigit, os.listdir(PROC)):
        directory = "{}/{}/fd".format(PROC, entry)
        try:
            names = os.listdir(directory)
        except PermissionError:
            closed += 1
            continue
        except OSError:
            continue
        for name in names:
            try:
                target = os.readlink(os.path.join(directory, name))
            except OSError:
                continue
            if re.fullmatch(r"/dev/nvidia\d+", target):
                found.setdefault(int(entry), set()).add(target)
    return found, closed


def described(pid, job, mib):
    try:
        uid = os.stat("{}/{}".format(PROC, pid)).st_uid
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = str(uid)
    except OSError:
        user = "?"
    return {
        "pid": pid,
        "start_ticks": ticks(pid),
        "name": text("{}/{}/comm".format(PROC, pid)).strip(),
        "user": user,
        "owner": "ours" if job else "not ours",
        "job": job["job"] if job else None,
        "home": job["home"] if job else None,
        "mib": mib,
    }


def report(jobs):
    """Whose the memory of each GPU is, as far as that can be seen from here."""
    gpus = driver()
    held, closed = holders()
    owned = owners(jobs, living())
    for one in gpus:
        listed = one.pop("driver_lists")
        # If the device file is unknown, any GPU that a process holds may be this one.
        here = sorted(
            p for p, files in held.items() if one["device"] is None or one["device"] in files
        )
        one["processes"] = [described(pid, owned.get(pid), listed.get(pid)) for pid in here]
        counts = {"ours": 0, "not ours": 0}
        for process in one["processes"]:
            counts[process["owner"]] += process["mib"] or 0
        one["ours_mib"], one["not_ours_mib"] = counts["ours"], counts["not ours"]
        used = one["used_mib"]
        left = None if used is None else max(0, used - sum(counts.values()))
        one["nobody_visible_mib"] = left
        one["unseen_pids"] = sorted(pid for pid in listed if pid not in here)
        one["words"] = words(one, closed)
    return {
        "ok": True,
        "gpus": gpus,
        "jobs": [
            {"job": j["job"], "home": j["home"], "pid": j["pid"], "alive": ours(j)} for j in jobs
        ],
        "not_looked_into": closed,
        "words": " ".join("GPU {}: {}".format(one["index"], one["words"]) for one in gpus)
        or "the driver reports no GPU",
    }


def words(one, closed):
    if one["used_mib"] is None:
        return "the driver does not say how much memory is used."
    said = ["{:,} MiB used.".format(one["used_mib"])]
    if one["ours_mib"]:
        said.append("{:,} MiB are our jobs'.".format(one["ours_mib"]))
    if one["not_ours_mib"]:
        said.append("{:,} MiB belong to processes that are not ours.".format(one["not_ours_mib"]))
    unknown = [process for process in one["processes"] if process["mib"] is None]
    if one["nobody_visible_mib"] and unknown:
        said.append(
            "{:,} MiB are attributed to no process: the driver does not say how much of them the {} "
            "listed here without a figure have (in a container it only knows the host's numbers).".format(
                one["nobody_visible_mib"], len(unknown)
            )
        )
    elif one["nobody_visible_mib"]:
        said.append(
            "{:,} MiB are held by nobody who can be seen from here: the driver's own part (some hundred "
            "MiB at most), a process outside this container, or what a dead one left. Nothing here may be "
            "ended for it: restart the container, or take another box.".format(
                one["nobody_visible_mib"]
            )
        )
    if closed:
        said.append(
            "{} processes of other users could not be looked into, and may hold it.".format(closed)
        )
    return " ".join(said)


# --- ending one ---------------------------------------------------------------------------------


def ours(job):
    """Whether the process of that record is alive, and its number was not given to another."""
    return (
        bool(job["start_ticks"]) and not restarted(job) and ticks(job["pid"]) == job["start_ticks"]
    )


def end(pid, jobs, grace_s):
    """The process is gone. It was the one that a caretaker of ours had started under this number.

    Raises:
        Refusal: NOT_OURS, NO_SUCH_PROCESS, STILL_ALIVE.
    """
    if pid <= 1 or pid == os.getpid():
        raise Refusal("BAD_REQUEST", "{} is no process of a job".format(pid))
    job = next((job for job in jobs if job["pid"] == pid and ours(job)), None)
    if job is None:
        table = living()
        if pid not in table:
            raise Refusal(
                "NO_SUCH_PROCESS", "no living process here bears the number {}".format(pid)
            )
        member = owners(jobs, table).get(pid)
        if member:
            raise Refusal(
                "NOT_OURS",
                "{} belongs to job {}, but no record says that it was started by its number: "
                "`caretaker.py --home DIR stop --job {}` ends the whole job".format(
                    pid, member["job"], member["job"]
                ),
                job=member["job"],
                home=member["home"],
            )
        raise Refusal(
            "NOT_OURS",
            "{} bears neither the number nor the start time of anything a caretaker of ours started; "
            "it was left alone{}".format(pid, "" if jobs else " (no --home was named)"),
        )
    # If the system can, a descriptor holds the process: then it does no harm if its number is given to another.
    try:
        handle = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except OSError:  # an old kernel, or a container that forbids it
        handle = None
    sent = []
    for signum, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
        if not ours(job):
            break
        try:
            if handle is not None:
                signal.pidfd_send_signal(handle, signum)
            else:
                os.kill(pid, signum)
        except ProcessLookupError:
            break
        except PermissionError:
            raise Refusal("NOT_OURS", "{} may not be signalled by this user".format(pid)) from None
        sent.append(signum.name)
        give_up = time.monotonic() + wait_s
        while ours(job) and time.monotonic() < give_up:
            time.sleep(0.05)
    if ours(job):
        raise Refusal(
            "STILL_ALIVE", "{} outlived SIGKILL: it hangs in the driver".format(pid), sent=sent
        )
    return {"ok": True, "ended": pid, "job": job["job"], "home": job["home"], "sent": sent}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
