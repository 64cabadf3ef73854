"""Runs one command so that it sees a read-only system and no home, and leaves no process behind.

This is a program of its own that needs only the standard library. It runs the command in new Linux namespaces.
Usage: `python -I sandbox.py JSON`. The JSON says what the command may see, and names a file descriptor, `says`, for
two lines of output. The first line is `namespaces`, or `namespaces, but WHAT` if the command can still reach something
outside, or `processes: WHY` if the system lets us make no namespaces. In that last case the command runs like any
other program, and only its processes are cleaned up. The second line is written at the end: the peak memory of the
command's largest process, in bytes.
"""

import ctypes
import json
import os
import resource
import signal
import stat
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 1 << 17, 1 << 27, 1 << 28, 1 << 29, 1 << 30
_BIND, _REC, _PRIVATE, _NOSUID, _NODEV, _DETACH = 1 << 12, 1 << 14, 1 << 18, 2, 4, 2
_PDEATHSIG, _SUBREAPER, _NO_NEW_PRIVS = 1, 36, 38
_MOUNT_SETATTR, _AT_RECURSIVE, _RDONLY = 442, 0x8000, 1
_LANDLOCK_CREATE, _LANDLOCK_RESTRICT, _LANDLOCK_VERSION = 444, 446, 1
_SCOPE_ABSTRACT, _ABI_WITH_SCOPES = 1, 6
_RUN = ("/run", "/var/run")
"""Places where programs that run outside keep their sockets.

Through a socket, the command could ask such a program to do what the command itself may not do. So the command gets an
empty place instead, with what it needs for names and for programs.
"""
_SHOWN_IN_RUN = ("/run/opengl-driver", "/run/current-system")
"""On NixOS, these lead to installed libraries and programs. They hold no socket."""
_RESOLVERS = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf")
"""Files that are needed to resolve names. They may be links into `/run`."""
OPEN = "namespaces, but this kernel cannot keep it from abstract sockets of programs outside"


class Lacking(Exception):
    """This system does not offer what the sandbox needs."""


def main() -> int:
    """Run the command, end everything that it started, and return its exit status."""
    said = json.loads(sys.argv[1])
    try:
        if sys.platform != "linux":
            raise Lacking("no Linux")
        libc = ctypes.CDLL(None, use_errno=True)
        is_scoped = said["network"] == "none" or _has_scopes(libc)
        child = _in_namespaces(libc, said)
        how = "namespaces" if is_scoped else OPEN
    except Lacking as lacking:
        how = f"processes: {lacking}"
        child = _as_any_program(said)
    os.write(said["says"], how.encode() + b"\n")
    signal.signal(signal.SIGTERM, lambda *_: _end(child))
    _end_with_parent(said["parent"], child)
    status = _status(os.waitpid(child, 0)[1])
    _end_all()
    with suppress(OSError):  # The program that started this one may have ended.
        os.write(said["says"], b"%d\n" % _peak_bytes())
    return status


def _peak_bytes() -> int:
    """Return the most resident memory that one process of the command had."""
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _end_with_parent(parent: int, child: int) -> None:
    """Make the command end when the program that started this one ends, even if that program is killed."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before the signal was requested
        _end(child)


def _end(child: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


def _status(waited: int) -> int:
    code = os.waitstatus_to_exitcode(waited)
    return code if code >= 0 else 128 - code


# Without namespaces: the command runs like any other program, but its processes are cleaned up


def _as_any_program(said: dict[str, object]) -> int:
    if sys.platform == "linux":
        # As the subreaper, this process inherits every descendant whose parent ends, even one in
        # another session.
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    child = os.fork()
    if not child:
        os.close(int(str(said["says"])))
        _become(said)
    return child


def _end_all() -> None:
    """Kill all our children and their descendants, and wait for their end."""
    while True:
        for pid in _children():
            _end(pid)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> Iterator[int]:
    with suppress(OSError), open(f"/proc/self/task/{os.getpid()}/children") as file:
        yield from map(int, file.read().split())


def _become(said: dict[str, object]) -> None:
    try:
        os.chdir(str(said["work"]))
        os.execve("/bin/sh", ["sh", "-c", str(said["command"])], os.environ)  # noqa: S606 - a shell is what was asked for
    finally:
        os._exit(127)


# With namespaces


def _in_namespaces(libc: ctypes.CDLL, said: dict[str, object]) -> int:
    """Start a process that runs the command in new namespaces and ends when the command ends. Returns its pid.

    Raises:
        Lacking: the system lets us make no namespaces; the command was not started.
    """
    ready, readies = os.pipe()
    child = os.fork()
    if child:
        os.close(readies)
        with os.fdopen(ready) as pipe:
            why = pipe.read()
        if not why:
            return child
        os.waitpid(child, 0)
        raise Lacking(why)
    try:
        os.close(ready)
        os.set_inheritable(readies, False)
        libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _enter(libc, said, readies)
    except Lacking as lacking:
        os.write(readies, str(lacking).encode())
    except BaseException as error:
        os.write(readies, repr(error).encode())
    finally:
        os._exit(127)


def _enter(libc: ctypes.CDLL, said: dict[str, object], readies: int) -> None:
    # Three processes: this one makes the namespaces and waits for `init`. `init` is the first
    # process in the new pid namespace. It prepares the mounts and waits for `command`.
    must = _musts(libc)
    user, group = os.getuid(), os.getgid()
    network = _NEWNET if said["network"] == "none" else 0
    sockets = (
        _sockets()
    )  # Another network namespace lists none of them, but they could be reached from there.
    must("unshare", libc.unshare(_NEWUSER | _NEWNS | _NEWPID | _NEWIPC | network))
    _map(user, group)
    must("mount", libc.mount(None, b"/", None, _REC | _PRIVATE, None))
    init = os.fork()  # Only a child of this process is in the new pid namespace.
    if init:
        os.close(readies)
        os.close(int(str(said["says"])))
        libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os._exit(_status(os.waitpid(init, 0)[1]))
    libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    proc = _look(libc, must, said, sockets)
    if network:
        _loopback_up()
    # In one more user namespace, the command cannot undo these mounts, not even as root.
    must("unshare", libc.unshare(_NEWUSER))
    _map(user, group, f"/proc/self/fd/{proc}/self")
    os.close(proc)
    libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    if _has_scopes(libc):
        _close_abstract_sockets(libc, must)
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)
    os.close(int(str(said["says"])))
    command = os.fork()
    if not command:
        _become(said)
    os.close(readies)
    while True:
        ended, waited = os.wait()
        if ended == command:
            os._exit(_status(waited))  # This process is init, so all others end with it.


def _musts(libc: ctypes.CDLL) -> Callable[[str, int], None]:
    def must(what: str, returned: int) -> None:
        if returned:
            raise Lacking(f"{what}: {os.strerror(ctypes.get_errno())}")

    return must


def _map(user: int, group: int, at: str = "/proc/self") -> None:
    try:
        for name, line in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            with open(f"{at}/{name}", "w") as file:
                file.write(line)
    except OSError as error:
        raise Lacking(f"a user namespace: {error.strerror}") from error


def _look(
    libc: ctypes.CDLL,
    must: Callable[[str, int], None],
    said: dict[str, object],
    sockets: Iterable[bytes],
) -> int:
    """Make the system read-only, its sockets unreachable and the `hidden` directories empty.

    The directory `own` stays as it was.

    Returns a descriptor of a writable `/proc`, which only this program has. The command must not have one: as root, it
    could write to root's files through it.
    """
    own = os.fsencode(str(said["own"]))
    runs = dict.fromkeys(map(os.path.realpath, filter(os.path.isdir, _RUN)))
    hidden = [os.fsencode(x) for x in (*runs, *list(said["hidden"])) if os.path.isdir(x)]  # type: ignore[call-overload]
    needed = [x for x in (*map(os.path.realpath, _RESOLVERS), *_SHOWN_IN_RUN) if _is_below(x, runs)]
    shown = [os.fsencode(x) for x in (*needed, *list(said["shown"])) if os.path.exists(x)]  # type: ignore[call-overload]
    layered = [os.fsencode(x) for x in list(said["layered"]) if os.path.isdir(x)]  # type: ignore[call-overload]
    kept = {path: os.open(path, os.O_PATH) for path in (*shown, *layered, own)}

    def empty(path: bytes, mode: bytes = b"mode=700") -> None:
        must("tmpfs", libc.mount(b"tmpfs", path, b"tmpfs", _NOSUID | _NODEV, mode))

    def again(path: bytes) -> None:
        if os.path.isdir(b"/proc/self/fd/%d" % kept[path]):
            os.makedirs(path, exist_ok=True)
        elif not os.path.exists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        must("bind", libc.mount(b"/proc/self/fd/%d" % kept[path], path, None, _BIND | _REC, None))

    for path in sockets:
        if _is_socket(path):
            must("mask", libc.mount(b"/dev/null", path, None, _BIND, None))
    writable = [own]
    for path in (b"/tmp", b"/var/tmp", b"/dev/shm"):
        if os.path.isdir(path) and not os.path.islink(path):
            empty(path, b"mode=1777")
            writable.append(path)
    for path in hidden:
        if os.path.isdir(path):
            empty(path)
    for path in (*shown, own):
        again(path)
    for number, path in enumerate(layered):
        upper, work = (own + b"/layer-%d-%s" % (number, part) for part in (b"upper", b"work"))
        os.makedirs(path, exist_ok=True)
        os.mkdir(upper)
        os.mkdir(work)
        parts = (
            b"lowerdir=/proc/self/fd/%d" % kept[path],
            b"upperdir=" + upper,
            b"workdir=" + work,
        )
        if libc.mount(b"overlay", path, b"overlay", _NODEV, b",".join((*parts, b"userxattr"))):
            again(path)  # No overlay is possible here, but the cache can at least be read.
        else:
            writable.append(path)
    for path in map(os.fsencode, list(said["masked"])):  # type: ignore[call-overload]
        if os.path.isfile(path):
            must("mask", libc.mount(b"/dev/null", path, None, _BIND, None))
    for opened in kept.values():
        os.close(opened)
    must("proc", libc.mount(b"proc", b"/proc", b"proc", _NOSUID | _NODEV, None))
    must("proc", libc.mount(b"proc", own, b"proc", _NOSUID | _NODEV, None))
    proc = os.open(own, os.O_PATH)
    must("proc", libc.umount2(own, _DETACH))
    must("read-only", _set(libc, b"/", _AT_RECURSIVE, _RDONLY, 0))
    for path in writable:
        must("writable", _set(libc, path, 0, 0, _RDONLY))
    return proc


def _is_below(path: str, places: Iterable[str]) -> bool:
    return any(path.startswith(f"{place}/") for place in places)


def _sockets() -> list[bytes]:
    """Return the paths of the sockets of programs outside, as the system lists them now."""
    with open("/proc/net/unix", "rb") as file:
        lines = file.read().split(b"\n")[1:]
    paths = {line[line.index(b"/") :] for line in lines if b" /" in line}
    return [path for path in sorted(paths) if _is_socket(path)]


def _is_socket(path: bytes) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def _has_scopes(libc: ctypes.CDLL) -> bool:
    """Whether this kernel can keep a process from the abstract sockets of others (Linux 6.12, Landlock)."""
    abi: int = libc.syscall(_LANDLOCK_CREATE, None, 0, _LANDLOCK_VERSION)
    return abi >= _ABI_WITH_SCOPES


def _close_abstract_sockets(libc: ctypes.CDLL, must: Callable[[str, int], None]) -> None:
    """Let this process and its descendants reach only those abstract sockets that are their own."""
    rules = struct.pack("QQQ", 0, 0, _SCOPE_ABSTRACT)
    opened: int = libc.syscall(_LANDLOCK_CREATE, rules, ctypes.c_size_t(len(rules)), 0)
    must("landlock", int(opened < 0))
    must("landlock", libc.syscall(_LANDLOCK_RESTRICT, opened, 0))
    os.close(opened)


def _set(libc: ctypes.CDLL, path: bytes, flags: int, given: int, taken: int) -> int:
    attributes = struct.pack("QQQQ", given, taken, 0, 0)
    returned: int = libc.syscall(_MOUNT_SETATTR, -100, path, flags, attributes, len(attributes))
    return returned


def _loopback_up() -> None:
    """Bring up the loopback interface, so that `127.0.0.1` answers as on any computer."""
    import fcntl
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh22x", b"lo", 0x1 | 0x40))


if __name__ == "__main__":
    sys.exit(main())
