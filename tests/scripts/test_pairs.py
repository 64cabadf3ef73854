"""Machines that look for each other: who answers is who it says, and afterwards nobody listens."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PAIRS = Path(__file__).parents[2] / "scripts" / "pairs.py"
A, B, C = "127.0.0.2", "127.0.0.3", "127.0.0.4"


def meet(
    nodes: Mapping[str, str], ports: Sequence[int], *, begun: Sequence[str], patience_s: float = 8
) -> dict[str, dict[str, Any]]:
    """What each of those that were begun has to say."""
    request = {"secret": "5e" * 32, "nodes": nodes, "ports": ports, "patience_s": patience_s}
    running = {
        me: subprocess.Popen(
            [sys.executable, "-I", "-S", str(PAIRS), "meet"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for me in begun
    }
    for me, process in running.items():
        assert process.stdin
        process.stdin.write(json.dumps({**request, "me": me}))
        process.stdin.close()
    told = {}
    for me, process in running.items():
        assert process.stdout
        told[me] = json.loads(process.stdout.read().splitlines()[-1])
        assert process.wait(timeout=120) == 0
        process.stdout.close()
    return told


def outcomes(told: dict[str, dict[str, Any]]) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for me, said in told.items():
        for pair in said["pairs"]:
            found.setdefault((me, pair["to"]), set()).add(pair["outcome"])
    return found


def free_ports(count: int) -> list[int]:
    with socket.create_server((A, 0)) as first, socket.create_server((A, 0)) as second:
        return [first.getsockname()[1], second.getsockname()[1]][:count]


def test_those_who_are_there_find_each_other_and_then_nobody_listens() -> None:
    ports = free_ports(2)

    told = meet({"a": A, "b": B, "c": C}, ports, begun="abc")

    assert outcomes(told) == {
        (one, other): {"talks"} for one in "abc" for other in "abc" if one != other
    }
    measured = [
        pair for said in told.values() for pair in said["pairs"] if pair["port"] == ports[0]
    ]
    assert all(pair["rtt_ms"] > 0 and pair["mb_s"] > 1 for pair in measured)
    assert {pair["source"] for pair in told["a"]["pairs"]} == {A}
    assert max(said["seconds"] for said in told.values()) < 8, "it waited for nobody"
    for address in (A, B, C):
        with socket.socket() as probe:
            assert probe.connect_ex((address, ports[0])) != 0


def test_one_of_ours_is_not_taken_for_another_one_of_ours() -> None:
    # What a bridge makes of it that every machine has: b's address leads a to itself.
    told = meet({"a": A, "b": A}, free_ports(1), begun="a", patience_s=0.5)

    (pair,) = told["a"]["pairs"]
    assert (pair["outcome"], pair["who"]) == ("other", "a")


@contextmanager
def stranger(port: int, says: bytes) -> Iterator[list[bytes]]:
    """Somebody at B, who answers whatever is asked."""
    heard: list[bytes] = []
    with socket.create_server((B, port)) as listener:

        def answer() -> None:
            while True:
                try:
                    link, _ = listener.accept()
                except OSError:
                    return
                with link:
                    heard.append(link.recv(1024))
                    link.sendall(says)

        threading.Thread(target=answer, daemon=True).start()
        yield heard
        listener.shutdown(socket.SHUT_RDWR)


def test_whoever_answers_without_the_secret_is_not_believed() -> None:
    port = free_ports(1)
    proof = "0" * 64
    with stranger(port[0], json.dumps({"from": "b", "proof": proof}).encode() + b"\n") as heard:
        told = meet({"a": A, "b": B}, port, begun="a", patience_s=0.5)

    assert outcomes(told) == {("a", "b"): {"stranger"}}
    assert b"5e5e" not in b"".join(heard), "the secret stays here"


def test_who_is_not_there_is_told_of_in_time() -> None:
    ports = free_ports(2)

    told = meet({"a": A, "b": B, "c": C}, ports, begun="ab", patience_s=1)

    assert outcomes(told)["a", "b"] == {"talks"}
    assert outcomes(told)["a", "c"] == {"refused"}
    assert max(said["seconds"] for said in told.values()) < 15


def test_a_port_that_is_taken_is_named() -> None:
    port = free_ports(1)
    with stranger(port[0], b""):
        told = meet({"a": A, "b": B}, port, begun="b", patience_s=0.1)

    assert told["b"]["listening"] == {str(port[0]): "Address already in use"}
