#!/usr/bin/env python3
"""Ends the bill of the box it runs on, with what the box itself holds; and proves beforehand that it could.

    leave.py prove --request -     whether this box could; nothing is changed
    leave.py end --request -       the platform is asked once; whoever calls asks again until the box is gone

The request is one JSON object on stdin, or the same by hand in flags (see --help): `kind` is

    none       nothing on this box ends its bill
    vastai     the instance is stopped with CONTAINER_API_KEY; its disk stays, and bills
    runpod     the pod is stopped with RUNPOD_API_KEY: its volume stays, and bills, and its own disk is emptied, so
               whoever calls has looked at that first. With `may: terminate`, which stands for its owner's signature,
               it is terminated, volume and all
    command    `command` is run as root, such as poweroff; where we are not root, through `sudo -n`

The keys are read from the environment of the container's first process. The reply is one JSON object:
`prove` says `armed`, `how` and `why` not, `end` says `asked`, `how`, `status` and `why` not; no key is in it.
Exit status 0, or 1 and 2 with a code. Python 3.7 or newer, standard library only.

In a rehearsal the box is processes of somebody's computer. There a file .rehearsal.json lies in its home, which
holds the box's environment and the addresses that stand for its platform, and no command is ever run.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

MARKER = ".rehearsal.json"
VAST, RUNPOD = "https://console.vast.ai", "https://api.runpod.io"
USER_AGENT = "gpu-tenant/1"
WITHIN_S = 20
TOO_SOON_S = (0, 2, 4)
"""Waited before each try of a call that comes too soon after another."""
PLACES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
FIELDS = {"kind": ("none", "vastai", "runpod", "command"), "may": ("stop", "terminate")}


class Refusal(Exception):
    """What was asked was not done. `code` tells a program why, and the message tells a person."""

    def __init__(self, code, message, **more):
        super().__init__(message)
        self.reply = dict(more, ok=False, code=code, message=message)


class Cannot(Exception):
    """The box cannot end its bill, for the reason given."""

    status = None


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Refusal("BAD_REQUEST", message + "; see --help")


# --- what must never happen ----------------------------------------------------------------------


def rehearsed():
    """The file that stands for this box's platform in a rehearsal; None on a real box.

    Raises:
        Cannot: there is such a file, but it cannot be read. Then nothing may be done.
    """
    for directory in _around():
        path = os.path.join(directory, MARKER)
        if not os.path.lexists(path):
            continue
        try:
            with open(path, encoding="utf-8") as file:
                said = json.load(file)
            addresses = [urllib.parse.urlsplit(said[name]) for name in ("api", "power_off")]
            whole = dict(said["environ"]) == said["environ"]
        except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
            whole = False
        if not whole or any(address.hostname != "127.0.0.1" for address in addresses):
            raise Cannot("this is a rehearsal, and %s cannot be read" % path)
        return said
    return None


def _around():
    """Our home, the working directory and that of this file, and all directories above these."""
    places, seen = [os.environ.get("HOME"), os.path.expanduser("~"), os.path.dirname(__file__)], []
    try:
        places.append(os.getcwd())
    except OSError:  # the working directory was deleted
        pass
    for place in places:
        directory = os.path.realpath(place or "/")
        while directory not in seen:
            seen.append(directory)
            directory = os.path.dirname(directory)
    return seen


def refused():
    """Why no command may switch this machine off; None if one may."""
    if rehearsed() is not None:
        return "this is a rehearsal"
    if "GPU_TENANT_NO_POWEROFF" in os.environ:
        return "GPU_TENANT_NO_POWEROFF is set"
    if "GPU_TENANT_BOX" in os.environ:
        return "this box is a directory of a computer"
    ends = os.environ.get("SSH_CONNECTION", "").split()
    if len(ends) == 4 and (ends[0] == ends[2] or ends[0].startswith("127.") or ends[0] == "::1"):
        return "whoever logged in is on this machine, too"
    return None


def switch_off(words):
    """The command has ended well.

    Raises:
        Cannot: it may not be run here, or it failed.
    """
    why = refused()
    if why is not None:
        raise Cannot(why)
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=WITHIN_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Cannot("`%s` failed: %s" % (words[-1], type(error).__name__)) from None
    if done.returncode:
        raise Cannot("`%s` ended with status %d" % (words[-1], done.returncode))


# --- the ways to end a bill ------------------------------------------------------------------------


def own(stands):
    """The environment of the box's first process."""
    if stands is not None:
        return {str(name): str(value) for name, value in stands["environ"].items()}
    try:
        with open("/proc/1/environ", "rb") as file:
            pairs = file.read().split(b"\0")
    except OSError as error:
        raise Cannot("the environment of process 1 cannot be read: %s" % error.strerror) from None
    return dict(pair.decode("utf-8", "replace").split("=", 1) for pair in pairs if b"=" in pair)


class Api:
    """One platform's API, asked with the box's own key."""

    def __init__(self, stands, real, name_of_id, name_of_key):
        environ = own(stands)
        self.id, self.key = environ.get(name_of_id, ""), environ.get(name_of_key, "")
        if self.id.startswith("C."):
            self.id = self.id[2:]
        if not self.id or not self.key:
            raise Cannot("this box has no %s and %s" % (name_of_id, name_of_key))
        if not self.id.isalnum():
            raise Cannot("%s is no id" % name_of_id)
        self._base = real if stands is None else stands["api"]
        # A proxy is for the world and not for this computer, and a redirect must not carry the key elsewhere.
        proxies = [] if stands is None else [urllib.request.ProxyHandler({})]
        self._opener = urllib.request.build_opener(_Stay, *proxies)

    def ask(self, method, path, body=None):
        """The status and the JSON object of the answer.

        Raises:
            Cannot: there was no answer.
        """
        headers = {
            "Authorization": "Bearer " + self.key,
            "User-Agent": USER_AGENT,
            "Accept": "application/json",
        }
        content = None
        if body is not None:
            content, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        request = urllib.request.Request(self._base + path, content, headers, method=method)  # noqa: S310
        for pause_s in TOO_SOON_S:
            time.sleep(pause_s)
            try:
                with self._opener.open(request, timeout=WITHIN_S) as answer:
                    status, raw = answer.status, answer.read(1 << 20)
            except urllib.error.HTTPError as error:
                status, raw = error.code, b""
            except (OSError, ValueError) as error:
                reason = getattr(error, "reason", None) or error
                raise Cannot("the platform did not answer: %s" % type(reason).__name__) from None
            if status != 429:
                break
        try:
            said = json.loads(raw.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            said = None
        return status, said if isinstance(said, dict) else {}


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def _answered(status, what):
    error = Cannot("%s was answered with %d" % (what, status))
    error.status = status
    return error


class Vast:
    """An instance is stopped with its own key, which may start, stop and destroy it, and nothing else."""

    def __init__(self, request, stands):
        self._api = Api(stands, VAST, "CONTAINER_ID", "CONTAINER_API_KEY")
        self._own = "/api/v0/instances/%s/" % self._api.id
        self.how = "instance %s stops itself with its own key" % self._api.id

    def prove(self):
        status, said = self._api.ask("GET", self._own)
        shown = said.get("instances")
        if status == 200 and isinstance(shown, dict) and str(shown.get("id")) == self._api.id:
            return
        # The key may have no right to look. But it can start what already runs, and that changes nothing.
        status, said = self._api.ask("PUT", self._own, {"state": "running"})
        if status != 200 or said.get("success") is False:
            raise _answered(status, "the key")

    def end(self):
        status, said = self._api.ask("PUT", self._own, {"state": "stopped"})
        if status != 200 or said.get("success") is False:
            raise _answered(status, "the stop")
        return status


class Runpod:
    """A pod stops itself with its own key, or ends itself, if its owner has signed for what is on it."""

    def __init__(self, request, stands):
        self._action = "terminate" if request.get("may") == "terminate" else "stop"
        self._api = Api(stands, RUNPOD, "RUNPOD_POD_ID", "RUNPOD_API_KEY")
        self._own = "/v2/pods/%s" % self._api.id
        self.how = "pod %s %ss itself with its own key" % (self._api.id, self._action)

    def prove(self):
        status, said = self._api.ask("GET", self._own)
        if status != 200 or said.get("id") != self._api.id:
            raise _answered(status, "the key")

    def end(self):
        status, _ = self._api.ask("POST", self._own + "/action", {"action": self._action})
        if status not in (200, 202, 204):
            raise _answered(status, "the end")
        return status


class Command:
    """The machine is switched off by the platform's command, as root."""

    def __init__(self, request, stands):
        self._stands = stands
        self._words = shlex.split(str(request.get("command") or ""))
        if not self._words:
            raise Cannot("no command was named")
        self.how = "`%s`" % " ".join(self._words)

    def prove(self):
        if self._stands is not None:
            return
        why = refused()
        if why is not None:
            raise Cannot(why)
        words = as_root(self._words, os.geteuid())
        if words[0] == "sudo":
            asked = ["sudo", "-n", "-l", *words[2:]]
            null = subprocess.DEVNULL
            if subprocess.run(
                asked, stdin=null, stdout=null, stderr=null, timeout=WITHIN_S
            ).returncode:
                raise Cannot(
                    "`sudo -n %s` is not allowed without a password" % " ".join(self._words)
                )

    def end(self):
        if self._stands is None:
            switch_off(as_root(self._words, os.geteuid()))
            return None
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stay)
        asked = urllib.request.Request(self._stands["power_off"], b"", method="POST")  # noqa: S310
        try:
            with opener.open(asked, timeout=WITHIN_S) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            raise _answered(error.code, "the power-off") from None
        except OSError as error:
            raise Cannot("the rehearsal did not answer: %s" % type(error).__name__) from None


def as_root(words, euid):
    """The command with the whole path of its program; through sudo if we are not root."""
    path = shutil.which(words[0], path=os.environ.get("PATH", "") + ":" + PLACES)
    if path is None:
        raise Cannot("there is no %s on this box" % words[0])
    found = [path, *words[1:]]
    if euid == 0:
        return found
    if shutil.which("sudo") is None:
        raise Cannot("we are not root, and there is no sudo")
    return ["sudo", "-n", *found]


WAYS = {"vastai": Vast, "runpod": Runpod, "command": Command}


def _way(request):
    stands = rehearsed()
    if request["kind"] == "none":
        raise Cannot("nothing on this box can end the bill")
    return WAYS[request["kind"]](request, stands)


def prove(request):
    """Whether `end` could end the bill of this box; nothing was changed."""
    try:
        way = _way(request)
        way.prove()
    except Cannot as why:
        return {"armed": False, "how": "", "why": str(why), "status": why.status}
    return {"armed": True, "how": way.how, "why": "", "status": None}


def end(request):
    """The platform was asked, once, to end the bill of this box."""
    how = ""
    try:
        way = _way(request)
        how = way.how
        return {"asked": True, "how": how, "why": "", "status": way.end()}
    except Cannot as why:
        return {"asked": False, "how": how, "why": str(why), "status": why.status}


# --- the call --------------------------------------------------------------------------------------


def main(argv):
    """The exit status, after one JSON object was written to stdout."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verb", choices=["prove", "end"])
    parser.add_argument(
        "--request", choices=["-"], help="read the request from stdin, as one JSON object"
    )
    parser.add_argument("--kind", choices=FIELDS["kind"])
    parser.add_argument("--may", choices=FIELDS["may"])
    parser.add_argument("--command", help="what switches this machine off")
    try:
        given = vars(parser.parse_args(argv))
        verb, source = given.pop("verb"), given.pop("request")
        request = _checked(_from_stdin() if source else given)
        reply = dict({"prove": prove, "end": end}[verb](request), ok=True)
    except Refusal as refusal:
        reply = refusal.reply
    except Exception as error:  # noqa: BLE001  a bug too is told as JSON
        reply = Refusal(
            "LEAVE_BROKE", "%s: %s" % (type(error).__name__, ascii(str(error))[1:-1])
        ).reply
    print(json.dumps(reply, separators=(",", ":")))
    return 0 if reply["ok"] else 2 if reply["code"] == "BAD_REQUEST" else 1


def _checked(request):
    request = {name: value for name, value in request.items() if value is not None}
    if request.get("kind") not in FIELDS["kind"] or request.get("may", "stop") not in FIELDS["may"]:
        allowed = tuple(map(", ".join, FIELDS.values()))
        raise Refusal("BAD_REQUEST", "kind is one of %s, may one of %s" % allowed)
    return request


def _from_stdin():
    try:
        request = json.loads(sys.stdin.buffer.read().decode())
    except ValueError:
        request = None
    if not isinstance(request, dict):
        raise Refusal("BAD_REQUEST", "stdin holds no JSON object")
    return request


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
