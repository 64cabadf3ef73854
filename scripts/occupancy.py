#!/usr/bin/env python3
"""Who stands on a box, and whether anybody has used it: the mark of a lease, and a look at what happened since.

    occupancy.py --home DIR where --request -    which of `places` is this box's own and can be used; nothing is left
    occupancy.py --home DIR mark --request -     this lease stands here; with `look`, also what was done here
    occupancy.py --home DIR leave --request -    it does not any more

DIR is the `--home` that a caretaker is given, `PLACE/gpu-tenant/LEASE/caretaker`; PLACE is `~`, or a place of the
platform's that outlives more. One JSON object of arguments on
stdin, one as the answer on the last line; exit status 0, 1 (not done, with a code), 2 (a wrong request).
Linux, Python 3.7 or newer, standard library only, no root.

The mark is two files: DIR/mark.json is written once, with a number that only its ledger knows, and tells this
box from any other; DIR/until.json says until when the lease runs. `mark` answers with a state: `put` (now),
`ours` (before), `copied` (by another copy of the same ledger), `lacks` or `other` (this is another box),
`taken` (another lease stands here). A look lists, and changes nothing: files below `roots` that changed at
`since_ns` or later, the directories of other leases, who is logged in, and what runs. No content is read.
"""

import argparse
import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import sys
import time

MARK, UNTIL = "mark.json", "until.json"
LEASE = re.compile(r"[a-z][a-z0-9_]*-[a-z0-9]+").fullmatch
SCRIPT = re.compile(r"[a-z]+-([0-9a-f]{16})\.py").fullmatch
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
MOST_SHOWN = 10
QUIET_BYTES = 1 << 20
"""A file of the image's own services is small. Whatever is larger is somebody's work."""
APART_NS = 300 * 10**9
"""If two clocks differ by more, they cannot be compared: a time of the one means nothing by the other."""
SAMPLE_S = 0.3
BUSY_CORES = 0.1
DOORS = {"sshd", "sshd-session", "sshd-auth", "dropbear"}
RESTING = {  # what a person leaves open; unless it computes, nothing is lost with it
    "bash",
    "sh",
    "dash",
    "zsh",
    "fish",
    "tmux",
    "tmux: server",
    "tmux: client",
    "screen",
    "sftp-server",
    "less",
    "more",
    "top",
    "htop",
    "nvtop",
    "btop",
    "watch",
    "ssh-agent",
    "nvidia-smi",
    "tail",
}
EDITORS = re.compile(r"/\.(?:vscode|cursor|windsurf|vscodium)-server/")


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
        code = "DISK_FULL" if error.errno in NO_ROOM else "OS_ERROR"
        reply = Refusal(code, ascii(str(error))[1:-1]).reply
    except (KeyError, TypeError, ValueError) as error:
        reply = Refusal("BAD_REQUEST", "the request: " + ascii(repr(error))[1:-1]).reply
    print(json.dumps(reply), flush=True)
    return 0 if reply["ok"] else 2 if reply["code"] == "BAD_REQUEST" else 1


def answer(argv):
    """What was asked for."""
    parser = Parser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--home", required=True, metavar="DIR", help="the caretaker's home")
    parser.add_argument("verb", choices=("where", "mark", "leave"))
    parser.add_argument("--request", choices=["-"], required=True, help="arguments on stdin")
    asked = parser.parse_args(argv)
    request = json.loads(sys.stdin.buffer.read().decode() or "{}")
    # By its real path: a login home may be a link.
    home = os.path.realpath(os.path.expanduser(asked.home))
    if asked.verb == "where":
        rehearsed = request.get("rehearsed") is True
        found = usable(request["places"], rehearsed)
        return dict(found, volumes=mounted_volumes(request.get("volumes", []), rehearsed))
    if asked.verb == "leave":
        return left(home)
    reply = marked(home, request)
    if "look" in request and reply["state"] in ("put", "ours", "copied"):
        reply["look"] = looked(home, reply, dict(request["look"], beside=request.get("beside", ())))
    return reply


# --- the place ----------------------------------------------------------------------------------


def usable(places, rehearsed):
    """The first of these places that is a disk of this box, and why the others are not.

    What the platform says of a place holds for the disk that it mounts there: not for a directory of that name on
    the container's own disk, not for a link to somewhere else, and not for a disk that other boxes may share.
    """
    others = stand_ins() if rehearsed else {}
    why = []
    for place in places:
        at = others.get(place) if rehearsed else place
        reason = "this rehearsal has none" if at is None else unusable(at, rehearsed)
        if reason is None:
            return {"path": place, "at": at, "why": ""}
        why.append("{}: {}".format(place, reason))
    return {"path": "", "at": "", "why": "; ".join(why)}


def mounted_volumes(paths, rehearsed):
    """How each of these paths is reached at which a disk is mounted now. Other boxes may share that disk."""
    others = stand_ins() if rehearsed else {}
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        mountinfo = file.read()
    found = {}
    for path in paths:
        at = others.get(path) if rehearsed else path
        if at is None or not os.path.isdir(at):
            continue
        system = mounted_at(path, mountinfo) or "none"
        if rehearsed or (os.path.realpath(path) == path and system not in NO_VOLUME):
            found[path] = os.path.realpath(at)
    return found


NO_VOLUME = ("none", "tmpfs", "ramfs", "overlay", "proc", "sysfs")


def stand_ins():
    """By place, what stands for it in a rehearsal. No real path may be taken for it there.

    Anybody on a box can write that file. So only the tenant says whether it counts.
    """
    marker = os.path.join(os.path.expanduser("~"), ".rehearsal.json")
    found = (read_json(marker) or {}).get("places")
    return found if isinstance(found, dict) else {}


def unusable(place, rehearsed):
    """Why no lease may have its directory there; None if one may."""
    if not os.path.isdir(place):
        return "it is not there"
    if not rehearsed:
        if os.path.realpath(place) != place:
            return "it is a link to {}".format(ascii(os.path.realpath(place))[1:-1])
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            system = mounted_at(place, file.read())
        if system is None:
            return "no disk is mounted there"
        if SHARED(system):
            return "it is a {}, which other boxes may share".format(ascii(system)[1:-1])
        if system in ("tmpfs", "ramfs"):
            return "it lies in memory"
    part = os.path.join(place, ".gpu-tenant-place-{}".format(os.getpid()))
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, b"gpu-tenant")
            os.fsync(fd)
        finally:
            os.close(fd)
            os.unlink(part)
    except OSError as error:
        return "it cannot be written ({})".format(error.strerror)
    return None


SHARED = re.compile(
    r"nfs|cifs|smb|fuse|mfs|ceph|lustre|gluster|beegfs|gpfs|weka|9p|virtiofs|afs"
).match


def mounted_at(place, mountinfo):
    """The type of the file system that is mounted at that very place; None if none is."""
    found = None
    for line in mountinfo.splitlines():
        mount, _, system = line.partition(" - ")
        fields = mount.split()
        if len(fields) > 4 and system:
            at = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m.group(1), 8)), fields[4])
            if at == place:
                found = system.split()[0]  # the last one mounted there covers the others
    return found


# --- the mark -----------------------------------------------------------------------------------


def read_json(path):
    """The object in that file; None if none can be read."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def write_json(path, record):
    part = "{}.{}".format(path, os.getpid())
    try:
        with open(
            os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8"
        ) as file:
            file.write(json.dumps(record))
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError:
        if os.path.lexists(part):
            os.unlink(part)
        raise


def renew(home, until):
    """Write until when the lease runs, if there is room.

    A full disk takes nobody else's mark either. So the lease may stand here with an older time, and its box can be
    looked at and ended.
    """
    path = os.path.join(home, UNTIL)
    try:
        write_json(path, {"until": until})
    except OSError as error:
        if error.errno not in NO_ROOM or not os.path.lexists(path):
            raise


def leases_below(top):
    """The names of the leases that have a directory there."""
    try:
        names = sorted(name for name in os.listdir(top) if LEASE(name))
    except OSError:
        return []
    return [name for name in names if os.path.isdir(os.path.join(top, name))]


def tops_of(top, request):
    """All directories in which leases of this box may have theirs, that of this lease first."""
    beside = map(os.path.realpath, map(os.path.expanduser, request.get("beside", ())))
    return list(dict.fromkeys([top, *beside]))


def others(tops, lease, request):
    """The other leases whose marks hold."""
    found, now = [], time.time()
    passed_over = set(request.get("over", ()))
    ended = set(request.get("ended", ()))
    for name, top in {name: at for at in tops for name in leases_below(at)}.items():
        home = os.path.join(top, name, "caretaker")
        mark, until = read_json(os.path.join(home, MARK)), read_json(os.path.join(home, UNTIL))
        if name == lease or mark is None:
            continue
        deployment = str(mark.get("deployment", ""))
        over_at = until.get("until", 0) if until else 0
        if not isinstance(over_at, (int, float)):
            over_at = 0
        if {name, deployment} & passed_over:
            continue
        if deployment == request["deployment"] and name in ended:
            continue
        if over_at + request["lapse_s"] > now:
            found.append({"lease": name, "deployment": deployment, "until": over_at})
    return found


def marked(home, request):
    """Whether the lease stands here, by its mark. The mark is put here if it may be."""
    lease = request["lease"]
    if not LEASE(lease) or os.path.basename(os.path.dirname(home)) != lease:
        raise Refusal("BAD_REQUEST", "DIR is not the caretaker's home of that lease")
    top = os.path.dirname(os.path.dirname(home))
    os.makedirs(top, mode=0o700, exist_ok=True)
    tops, locks = tops_of(top, request), []
    try:
        # In one order, so that two leases never wait for each other.
        for directory in sorted(place for place in tops if os.path.isdir(place)):
            locks.append(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            fcntl.flock(locks[-1], fcntl.LOCK_EX)
        return marked_alone(home, tops, request)
    finally:
        for lock in locks:
            os.close(lock)


def marked_alone(home, tops, request):
    lease, path = request["lease"], os.path.join(home, MARK)
    standing = others(tops, lease, request)
    mark = read_json(path)
    if mark is None and os.path.lexists(path):
        return told("other", path, standing)
    if mark is not None and mark.get("nonce") == request["nonce"]:
        state = "ours"
    elif mark is not None:
        same = mark.get("deployment") == request["deployment"] and mark.get("lease") == lease
        state = "other" if request["known"] or not same else "copied"
    elif request["known"] or (request["directory"] and not os.path.isdir(home)):
        state = "lacks"
    elif request["first"] and standing:
        state = "taken"
    else:
        state = "put"
        since_ns = counts_from(request)
        os.makedirs(home, mode=0o700, exist_ok=True)
        record = {"deployment": request["deployment"], "lease": lease, "nonce": request["nonce"]}
        record["since_ns"] = since_ns
        write_json(path, record)
    if state in ("put", "ours", "copied"):
        renew(home, request["until"])
        point_to(home)
    found = told(state, path, standing)
    if state == "ours" and "made" in request:
        found["since_ns"] = min(found["since_ns"], counts_from(request))
    return found


def pointer_to(home):
    """The path below the login home by which every lease is found; None if the lease's directory is there itself."""
    top, lease = os.path.split(os.path.dirname(home))
    plain = os.path.join(os.path.realpath(os.path.expanduser("~")), "gpu-tenant")
    return None if os.path.realpath(plain) == top else os.path.join(plain, lease)


def point_to(home):
    """Whoever looks for leases in the login home finds this one, too, by a link."""
    pointer = pointer_to(home)
    if pointer is None or os.path.lexists(pointer):
        return
    try:
        os.makedirs(os.path.dirname(pointer), mode=0o700, exist_ok=True)
        os.symlink(os.path.dirname(home), pointer)
    except OSError:
        pass  # a home that cannot be written takes nobody else's lease either


def counts_from(request):
    """From when on written files count, by this box's clocks: from now on, or since the box was `made`.

    `made` is by another clock. If one of ours differs from it by too much, all that there is counts.
    """
    clocks = [time.time_ns(), *(clock_of(place) for place in request.get("roots", ()))]
    clocks = [clock for clock in clocks if clock]
    made = request.get("made")
    if made is None:
        return min(clocks)
    if any(abs(clock - made["now_ns"]) > APART_NS for clock in clocks):
        return 1
    return max(1, min(made["made_ns"], *clocks))


def told(state, path, standing):
    mark = read_json(path) or {}
    try:
        seen = os.stat(path)
        identity = "{}:{}".format(seen.st_ino, seen.st_ctime_ns)
        since_ns = min(int(mark.get("since_ns", seen.st_ctime_ns)), seen.st_ctime_ns)
    except OSError:
        identity, since_ns = "", 0
    return {
        "state": state,
        "nonce": str(mark.get("nonce", "")),
        "identity": identity,
        "since_ns": since_ns,
        "others": standing[:20],
    }


def clock_of(place):
    """What time the file system there has, which may be another machine's; 0 if that is unknown."""
    place = os.path.expanduser(place)
    try:
        if os.stat(place).st_dev == os.stat(os.path.expanduser("~")).st_dev:
            return 0
        path = os.path.join(place, ".gpu-tenant-clock-{}".format(os.getpid()))
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            return os.fstat(fd).st_ctime_ns
        finally:
            os.close(fd)
            os.unlink(path)
    except OSError:
        return 0


def left(home):
    """The lease stands here no more: its mark is gone. Whatever else it left is as it was."""
    pointer = pointer_to(home)
    links = [pointer] if pointer is not None and os.path.islink(pointer) else []
    for path in (*(os.path.join(home, name) for name in (UNTIL, MARK)), *links):
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
    return {"state": "left"}


# --- the look -----------------------------------------------------------------------------------


def looked(home, mark, request):
    """What was done here since, by this lease's ledger or by anybody else."""
    top = os.path.dirname(os.path.dirname(home))
    lease = os.path.basename(os.path.dirname(home))
    ours = set(request["ours"]) if "ours" in request else None
    people, at_work = busy(home, request.get("scope", "home"), ours)
    since_ns = min(mark["since_ns"], request.get("since_ns") or mark["since_ns"])
    seen = files_since(home, since_ns, request, ours)
    seen.update(
        leases=sorted({n for at in tops_of(top, request) for n in leases_below(at)} - {lease}),
        jobs=sorted(n for n in listed(os.path.join(home, "jobs")))[:MOST_SHOWN],
        people=people[:MOST_SHOWN],
        at_work=at_work[:MOST_SHOWN],
    )
    return seen


def listed(directory):
    try:
        return os.listdir(directory)
    except OSError:
        return []


def files_since(home, since_ns, request, ours):
    """What has changed below the roots since, directories apart, and what is ours or the image's own."""
    login = os.path.realpath(os.path.expanduser("~"))
    quiet = [os.path.join(login, name) for name in request.get("quiet", ())]
    top = os.path.dirname(os.path.dirname(home))
    skip = {home, pointer_to(home), "/proc", "/sys", "/dev"}
    # What the system itself keeps elsewhere is not looked at, but only places where work would be lost.
    pending = [os.path.realpath(os.path.expanduser(root)) for root in request.get("roots", ())]
    count, size, shown, unreadable, walked = 0, 0, [], 0, set()
    while pending:
        path = pending.pop()
        if path in skip or path in walked:
            continue
        walked.add(path)
        try:
            seen = os.lstat(path)
            if stat.S_ISDIR(seen.st_mode):
                below = [os.path.join(path, name) for name in os.listdir(path)]
                shared = seen.st_mode & stat.S_ISVTX and seen.st_mode & stat.S_IWOTH
                pending += [p for p in below if not shared or is_mine(p)]
                continue
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError:
            unreadable += 1
            continue
        if seen.st_ctime_ns < since_ns or is_script(path, top, ours):
            continue
        if seen.st_size <= QUIET_BYTES and any(is_at(path, place) for place in quiet):
            continue
        count, size = count + 1, size + seen.st_size
        shown.append((seen.st_size, path))
    shown.sort(key=lambda item: (-item[0], item[1]))
    return {
        "files": count,
        "bytes": size,
        "largest": [ascii(path)[1:-1] for _, path in shown[:MOST_SHOWN]],
        "unreadable": unreadable,
    }


def is_mine(path):
    """Whether this user can have made it, in a place where everybody may write. Root can have made any file."""
    try:
        return os.geteuid() in (0, os.lstat(path).st_uid)
    except OSError:
        return False


def is_at(path, place):
    return path.startswith(place) if place.endswith("/") else path == place


def is_script(path, top, ours):
    """Whether it is a script of the tenant's.

    It has the hash of its content in its name. Anybody can name a file so: if the tenant has said which are
    `ours`, it is one of these, too.
    """
    named = SCRIPT(os.path.basename(path)) if os.path.dirname(path) == top else None
    if named is None or not os.path.isfile(path) or os.path.islink(path):
        return False
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for part in iter(lambda: file.read(1 << 20), b""):
                digest.update(part)
    except OSError:
        return False
    found = digest.hexdigest()
    return found.startswith(named.group(1)) and (ours is None or found in ours)


def raw(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def stat_of(pid):
    """The name, the parent, the terminal and the CPU seconds of a living process; None if there is no such process."""
    head, _, rest = raw("/proc/{}/stat".format(pid)).rpartition(b")")
    fields = rest.split()
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    return {
        "name": head.partition(b"(")[2].decode("utf-8", "replace"),
        "parent": int(fields[1]),
        "terminal": int(fields[4]),
        "cpu_s": (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
    }


def busy(home, scope, ours):
    """Who is logged in, and what runs that no ledger of this lease has started.

    A login has the door that it came in by in its environment, and so has all that it leaves running (nohup,
    setsid, tmux). What the system and its image start by themselves has not. A machine may be several boxes,
    each a home with a door of its own. So only what came in by our door, or works in our home, counts.
    """
    if scope == "none":
        return [], []
    login = os.path.realpath(os.path.expanduser("~"))
    table = {int(n): stat_of(int(n)) for n in os.listdir("/proc") if n.isdigit()}
    table = {pid: seen for pid, seen in table.items() if seen}
    apart, pid = set(), os.getpid()
    while pid in table:  # who asks, and on whose behalf
        apart.add(pid)
        pid = table[pid]["parent"]
    found = {}
    for pid, seen in table.items():
        words = whose(pid, seen, table, home, login, scope, ours)
        if words is not None and pid not in apart:
            found[pid] = words
    if found:
        time.sleep(SAMPLE_S)
    people, at_work = [], []
    for pid, words in sorted(found.items()):
        later = stat_of(pid)
        if later is None:
            continue
        computes = later["cpu_s"] - table[pid]["cpu_s"] >= BUSY_CORES * SAMPLE_S
        line = raw("/proc/{}/cmdline".format(pid)).decode("utf-8", "replace")
        rests = table[pid]["name"] in RESTING or EDITORS.search(line)
        shown = "{} (process {}){}".format(ascii(table[pid]["name"])[1:-1], pid, words)
        (people if rests and not computes and not words else at_work).append(shown)
    return people, at_work


def door(named):
    """The end of a login's connection that is the box's own."""
    return named.get(b"SSH_CONNECTION", b"").split()[2:]


def script_run_by(words, directories):
    """The file that a Python process runs, by its command line; None where that is no file.

    A relative name is looked for in each of `directories`: a daemon no longer stands where it was begun.

    What stands elsewhere on the line is an argument: any program can be given the name of a script of ours.
    """
    if not os.path.basename(words[0]).startswith("python"):
        return None
    for word in words[1:]:
        if word in ("-c", "-m", "-"):
            return None
        if word and not word.startswith("-"):
            paths = [os.path.join(directory, word) for directory in directories]
            path = next((path for path in paths if os.path.lexists(path)), paths[0])
            return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
    return None


def whose(pid, seen, table, home, login, scope, ours):
    """None if the process is ours or the system's; else what is to be said of it besides its name."""
    environ = raw("/proc/{}/environ".format(pid)).split(b"\0")
    if seen["name"] in DOORS or environ == [b""]:
        return None
    named = dict(e.partition(b"=")[::2] for e in environ if b"=" in e)
    try:
        below = os.readlink("/proc/{}/cwd".format(pid)) + "/"
    except OSError:
        below = ""
    our_door = os.environb.get(b"SSH_CONNECTION", b"").split()[2:]
    here = named.get(b"HOME") == os.fsencode(login) or below.startswith(login + "/")
    if not here and (not our_door or door(named) != our_door):
        return None
    words = raw("/proc/{}/cmdline".format(pid)).decode("utf-8", "replace").split("\0")
    top = os.path.dirname(os.path.dirname(home))
    script = script_run_by(words, (below, os.path.dirname(top)))
    if script is not None and is_script(script, top, ours):
        return None
    caretaker = named.get(b"GPU_TENANT_CARETAKER")
    if caretaker is not None:
        # The seal tells of this lease's own jobs.
        return None if caretaker == os.fsencode(home) else ", a job of another lease"
    entered = any(name in named for name in (b"SSH_CONNECTION", b"SSH_CLIENT", b"SSH_TTY"))
    entered = entered or 136 <= (seen["terminal"] >> 8) & 0xFFF <= 143
    while seen["parent"] in table:
        pid, seen = seen["parent"], table[seen["parent"]]
    entered = entered or (seen["parent"] == 0 and pid not in (1, 2))
    return "" if entered or scope == "home" else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
