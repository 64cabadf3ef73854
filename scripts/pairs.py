#!/usr/bin/env python3
"""Whether machines that are to train together can talk: their interfaces, and every way between two tried out.

    pairs.py list
    pairs.py meet < REQUEST

Python 3.7 or newer, standard library only. One JSON object on the last line; exit status 0, 2 for a wrong request.

`meet` is begun on all of them at about the same time, with one request that differs in `me` alone:

    {"secret": HEX, "me": "a", "nodes": {"a": "10.0.0.1", "b": "10.0.0.2"}, "ports": [29400, 41000]}

Each listens at its own address on every port, and goes to every other one on every port. Who answers must know the
secret, and says who it is, so that a stranger's answer, or one of our own at an address that several share, is not
taken for the machine that was meant. It ends by itself, and nothing listens then: when all is known, or at the limit.
"""

import argparse
import array
import fcntl
import hmac
import ipaddress
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

PATIENCE_S = 8.0  # the others may be begun so much later
WITHIN_S = 3.0  # a machine on one network answers sooner
DRAINS_WITHIN_S = 10.0  # what was sent in SENDS_S, over a slow link
SENDS_S = 0.5
QUIET_S = 1.0  # who was just here goes on at another port
MOST_BYTES = 1 << 28
LINE = 1024
ROUNDS = 5
CONNECTIONS = 64
LAST_S = 90  # whatever hangs: the kernel ends us then

SIOCGIFCONF = 0x8912
SIOCGIFNETMASK = 0x891B


def answer(reply, status):
    print(json.dumps(reply), flush=True)
    sys.exit(status)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        answer({"ok": False, "code": "BAD_REQUEST", "message": message + "; see --help"}, 2)


# What there is


def text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as opened:
            return opened.read().strip()
    except OSError:
        return ""


def number(path):
    said = text(path)
    return int(said) if said.lstrip("-").isdigit() else None


def addresses_v4():
    """Every IPv4 address, with the name of its interface and the length of its network's prefix."""
    size = struct.calcsize("16s16sQ")  # struct ifreq: a name, and a union as long as the longest
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        room = array.array("B", bytes(size * 256))
        place, _ = room.buffer_info()
        asked = struct.pack("iP", len(room), place)
        used = struct.unpack("iP", fcntl.ioctl(probe.fileno(), SIOCGIFCONF, asked))[0]
        raw = room.tobytes()[:used]
        for at in range(0, used, size):
            label = raw[at : at + 16].split(b"\0")[0]
            mask = fcntl.ioctl(probe.fileno(), SIOCGIFNETMASK, struct.pack("256s", label))[20:24]
            prefix = bin(int.from_bytes(mask, "big")).count("1")
            name = label.decode("utf-8", "replace").split(":")[0]
            yield name, socket.inet_ntoa(raw[at + 20 : at + 24]), prefix


def addresses_v6():
    """Every IPv6 address that another machine can reach."""
    for line in text("/proc/net/if_inet6").splitlines():
        raw, _, prefix, scope, _, name = line.split()
        if scope == "00":
            yield name, str(ipaddress.IPv6Address(int(raw, 16))), int(prefix, 16)


def interfaces():
    found = {}
    for name, address, prefix in [*addresses_v4(), *addresses_v6()]:
        here = "/sys/class/net/" + name
        entry = found.setdefault(
            name,
            {
                "name": name,
                "addresses": [],
                "mtu": number(here + "/mtu"),
                "mbit_s": number(here + "/speed"),
            },
        )
        entry["addresses"].append("{}/{}".format(address, prefix))
    return list(found.values())


def gpus():
    """How many GPUs this machine, or container, was given."""
    try:
        said = subprocess.run(
            ["nvidia-smi", "-L"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            timeout=20,
        ).stdout.decode("utf-8", "replace")
        return len(re.findall(r"^GPU \d+:", said, re.MULTILINE))
    except (OSError, subprocess.SubprocessError):
        try:
            return sum(1 for name in os.listdir("/dev") if re.match(r"nvidia\d+$", name))
        except OSError:
            return 0


def infiniband():
    """The adapters with an active port that a process here may open."""
    try:
        if not any(name.startswith("uverbs") for name in os.listdir("/dev/infiniband")):
            return []
        found = []
        for adapter in sorted(os.listdir("/sys/class/infiniband")):
            ports = "/sys/class/infiniband/{}/ports".format(adapter)
            if any("ACTIVE" in text("{}/{}/state".format(ports, n)) for n in os.listdir(ports)):
                found.append(adapter)
    except OSError:
        return []
    return found


def ephemeral_ports():
    said = text("/proc/sys/net/ipv4/ip_local_port_range").split()
    return [int(said[0]), int(said[1])] if len(said) == 2 else [32768, 60999]


# Who is who


class Words:
    """What is proved by knowing the secret, and lines of JSON over a connection."""

    def __init__(self, secret):
        self.secret = secret

    def proof(self, *said):
        message = "|".join(str(word) for word in said).encode()
        return hmac.new(self.secret, message, "sha256").hexdigest()

    def holds(self, proof, *said):
        return isinstance(proof, str) and hmac.compare_digest(
            proof.encode("utf-8", "replace"), self.proof(*said).encode()
        )


def send_line(link, said):
    link.sendall(json.dumps(said).encode() + b"\n")


def read_line(link):
    """One JSON object; None where no such line comes."""
    line = b""
    while not line.endswith(b"\n"):
        more = link.recv(1)
        if not more or len(line) >= LINE:
            return None
        line += more
    try:
        said = json.loads(line.decode("utf-8"))
    except ValueError:
        return None
    return said if isinstance(said, dict) else None


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


# Those who come


class Host:
    """What listens here, until everybody has said goodbye."""

    def __init__(self, request, words):
        self.me, self.words = request["me"], words
        self.expected = set(request["nodes"]) - {self.me}
        self.gone = threading.Event()
        self.lock = threading.Lock()
        self.room = threading.Semaphore(CONNECTIONS)
        self.guests = 0
        self.seen_at = 0.0
        self.listening = {}
        self.listeners = []
        address = request["nodes"][self.me]
        for port in request["ports"]:
            listener = socket.socket(family(address), socket.SOCK_STREAM)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((address, port))
                listener.listen(CONNECTIONS)
            except OSError as error:
                listener.close()
                self.listening[port] = error.strerror or str(error)
                continue
            self.listening[port] = "yes"
            self.listeners.append(listener)
            threading.Thread(target=self.accept, args=(listener, port), daemon=True).start()
        if not self.expected:
            self.gone.set()

    def accept(self, listener, port):
        while True:
            try:
                link, source = listener.accept()
            except OSError:
                return
            if not self.room.acquire(blocking=False):
                link.close()
                continue
            threading.Thread(target=self.talk, args=(link, port, source[0]), daemon=True).start()

    def talk(self, link, port, source):
        with self.lock:
            self.guests += 1
        try:
            with link:
                link.settimeout(WITHIN_S)
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                hello = read_line(link) or {}
                who, challenge = hello.get("from"), hello.get("challenge")
                if not self.words.holds(hello.get("proof"), "hello", who, port, challenge):
                    return  # whoever scans these ports learns nothing here
                proof = self.words.proof("answer", self.me, port, challenge)
                send_line(link, {"from": self.me, "proof": proof, "source": source})
                self.serve(link, who)
        except (OSError, ValueError):
            pass
        finally:
            with self.lock:
                self.guests -= 1
                self.seen_at = time.monotonic()
            self.room.release()

    def serve(self, link, who):
        """Pings come back, bytes are counted, a goodbye is heard."""
        while True:
            asked = link.recv(1)
            if asked == b"p":
                link.sendall(b"p")
            elif asked == b"r":
                link.settimeout(DRAINS_WITHIN_S)
                got = 0
                while got < 2 * MOST_BYTES:
                    more = link.recv(1 << 18)
                    if not more:
                        break
                    got += len(more)
                send_line(link, {"got": got})
                return
            elif asked == b"b":
                with self.lock:
                    self.expected.discard(who)
                    if not self.expected:
                        self.gone.set()
                return
            else:
                return

    def stay(self, until):
        """All have said goodbye; or it is that late, and nobody is here or was a moment ago."""
        while not self.gone.wait(0.05):
            with self.lock:
                quiet = not self.guests and time.monotonic() - self.seen_at > QUIET_S
            if quiet and time.monotonic() > until:
                return

    def close(self):
        for listener in self.listeners:
            listener.close()


# Going to the others


class Guest:
    """This machine on its way to each of the others."""

    def __init__(self, request, words, begun):
        self.me, self.words, self.begun = request["me"], words, begun
        self.patience_s = float(request.get("patience_s", PATIENCE_S))
        self.source = request["nodes"][self.me]
        self.sending = threading.Lock()  # one at a time, or they would share what is measured
        self.pairs = []

    def visit(self, name, address, ports):
        first = None
        for port in ports:
            found = {"to": name, "port": port}
            try:
                self.meet(found, name, address, port, first is None)
            except OSError as error:
                found["outcome"], found["said"] = outcome_of(error), str(error)
            self.pairs.append(found)
            first = first or found
            if found["outcome"] != "talks":
                break
        if first["outcome"] == "talks":
            self.goodbye(name, address, ports[0])

    def meet(self, found, name, address, port, is_first):
        with self.connected(address, port, self.begun + self.patience_s if is_first else 0) as link:
            reply = self.greet(link, port)
            if reply is None:
                found["outcome"] = "stranger"
                return
            if reply["from"] != name:
                found["outcome"], found["who"] = "other", reply["from"]
                return
            found["source"] = reply.get("source")
            if is_first:
                found["rtt_ms"] = self.round_trip_ms(link)
                with self.sending:
                    try:
                        found["mb_s"] = self.rate_mb_s(link)
                    except (OSError, ValueError) as error:
                        found["outcome"], found["said"] = "stalls", str(error)
                        return
            found["outcome"] = "talks"

    def connected(self, address, port, until):
        """A connection, tried again until then: the other side may not have begun to listen."""
        while True:
            link = socket.socket(family(address), socket.SOCK_STREAM)
            link.settimeout(WITHIN_S)
            try:
                link.bind((self.source, 0))  # on the chosen interface, whatever the routes prefer
                link.connect((address, port))
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:
                link.close()
                if time.monotonic() >= until:
                    raise
                time.sleep(0.2)
            else:
                return link

    def greet(self, link, port):
        """Who answers, where it knows the secret; else None."""
        challenge = os.urandom(16).hex()
        proof = self.words.proof("hello", self.me, port, challenge)
        send_line(link, {"from": self.me, "challenge": challenge, "proof": proof})
        reply = read_line(link)
        if reply is None:
            return None
        known = self.words.holds(reply.get("proof"), "answer", reply.get("from"), port, challenge)
        return reply if known else None

    def round_trip_ms(self, link):
        best = None
        for _ in range(ROUNDS):
            asked = time.monotonic()
            link.sendall(b"p")
            if link.recv(1) != b"p":
                raise OSError("it hung up")
            took = time.monotonic() - asked
            best = took if best is None else min(best, took)
        return round(best * 1000, 3)

    def rate_mb_s(self, link):
        block = bytes(1 << 18)
        link.settimeout(DRAINS_WITHIN_S)
        began = time.monotonic()
        link.sendall(b"r")
        sent = 0
        while sent < MOST_BYTES and time.monotonic() - began < SENDS_S:
            link.sendall(block)
            sent += len(block)
        link.shutdown(socket.SHUT_WR)
        reply = read_line(link) or {}
        if reply.get("got") != sent:
            raise OSError("of {} bytes {} arrived".format(sent, reply.get("got")))
        return round(sent / (time.monotonic() - began) / 1e6, 1)

    def goodbye(self, name, address, port):
        try:
            with self.connected(address, port, 0) as link:
                if self.greet(link, port) is not None:
                    link.sendall(b"b")
                    link.shutdown(socket.SHUT_WR)
                    link.recv(1)
        except OSError:
            pass  # it waits for its limit then


def outcome_of(error):
    if isinstance(error, socket.timeout):
        return "silent"
    if isinstance(error, ConnectionRefusedError):
        return "refused"
    if isinstance(error, ConnectionError):
        return "stranger"  # somebody took the connection, and hung up on us
    return "no_way"


def meet(request):
    words = Words(bytes.fromhex(request["secret"]))
    begun = time.monotonic()
    host = Host(request, words)
    guest = Guest(request, words, begun)
    ports = [int(port) for port in request["ports"]]
    visits = [
        threading.Thread(target=guest.visit, args=(name, address, ports), daemon=True)
        for name, address in request["nodes"].items()
        if name != request["me"]
    ]
    for visit in visits:
        visit.start()
    for visit in visits:
        visit.join(LAST_S)
    host.stay(begun + guest.patience_s)
    host.close()
    return {
        "ok": True,
        "me": request["me"],
        "listening": host.listening,
        "pairs": guest.pairs,
        "seconds": round(time.monotonic() - begun, 2),
    }


def main():
    """What was asked is on stdout."""
    parser = Parser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("verb", choices=["list", "meet"])
    verb = parser.parse_args().verb
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(LAST_S + 10)
    if verb == "list":
        here = {"interfaces": interfaces(), "gpus": gpus(), "infiniband": infiniband()}
        answer({"ok": True, "ports": ephemeral_ports(), **here}, 0)
    try:
        request = json.loads(sys.stdin.read())
        reply = meet(request)
    except KeyError as error:
        answer({"ok": False, "code": "BAD_REQUEST", "message": "it names no {}".format(error)}, 2)
    except (TypeError, ValueError) as error:
        answer({"ok": False, "code": "BAD_REQUEST", "message": str(error)}, 2)
    answer(reply, 0)


if __name__ == "__main__":
    main()
