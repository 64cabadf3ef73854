"""What the machine or the link does alone: plain TCP, with neither ssh nor hashes."""

import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from links import LOOPBACK, Loopback, free_port
from sshd import wait_until

SENDER = """\
import socket, sys, threading
def feed(end):
    try:
        while True:
            end.sendall(zeros)
    except OSError:
        pass
zeros = bytes(1 << 18)
listener = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=128)
while True:
    threading.Thread(target=feed, args=(listener.accept()[0],), daemon=True).start()
"""


def plain_tcp(link: Loopback, *, seconds: float = 6, warm_s: float = 2) -> float:
    """The bytes in a second that plain TCP brings over the link, by as many sockets as it needs."""
    port = free_port()
    sender = subprocess.Popen(link.within(sys.executable, "-c", SENDER, link.there, str(port)))
    counts = [0] * link.sockets
    over = threading.Event()

    def drain(number: int) -> None:
        block = bytearray(1 << 18)
        with socket.create_connection((link.there, port)) as end:
            end.settimeout(5)
            while not over.is_set():
                counts[number] += end.recv_into(block)

    drains = [threading.Thread(target=drain, args=(n,)) for n in range(link.sockets)]
    try:
        wait_until(lambda: _listens(link.there, port))
        for thread in drains:
            thread.start()
        threading.Event().wait(warm_s)
        before, began = sum(counts), time.perf_counter()
        threading.Event().wait(seconds)
        rate = (sum(counts) - before) / (time.perf_counter() - began)
    finally:
        over.set()
        for thread in drains:
            thread.join()
        sender.kill()
        sender.wait()
    return rate


def plain_copy(source: Path, destination: Path) -> float:
    """The seconds that plain TCP over loopback takes to bring that file into another one."""
    size = source.stat().st_size
    with socket.create_server((LOOPBACK, 0)) as listener:

        def send() -> None:
            client, _ = listener.accept()
            with client, source.open("rb") as file:
                client.sendfile(file)

        sending = threading.Thread(target=send)
        began = time.perf_counter()
        sending.start()
        block = memoryview(bytearray(1 << 20))
        with (
            socket.create_connection(listener.getsockname()) as end,
            destination.open("wb", buffering=0) as file,
        ):
            while count := end.recv_into(block):
                file.write(block[:count])
        sending.join()
    assert destination.stat().st_size == size
    return time.perf_counter() - began


def _listens(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=2).close()
    except OSError:
        return False
    return True
