"""Polls of a metadata server that answers oddly one time in five, and never says that it takes the box."""

import random
import time

from metadata_server import NAMED, Metadata

from box_scripts.caretaker.listening import is_preempted


def poll(seed: int, polls: int) -> tuple[int, int, int, float]:
    """That many polls of a server of their own: how many were answered, or taken for notice, and their processor time."""
    dice = random.Random(seed)
    false_alarms = answered = 0
    cpu_s = 0.0
    odd = (b"", b"true", b"1", b"TRUE!", b"FALSETRUE", b"<html>TRUE</html>", b"\xff" * 9000)
    with Metadata() as metadata:
        for _ in range(polls):
            is_odd = dice.random() < 0.2
            metadata.word = dice.choice(odd) if is_odd else b"FALSE"
            metadata.status = dice.choice((200, 302, 404, 503)) if is_odd else 200
            metadata.fields = dice.choice(({}, NAMED)) if is_odd else NAMED
            before = time.thread_time()
            said = is_preempted(metadata.address)
            cpu_s += time.thread_time() - before
            false_alarms += said is True
            answered += said is False
            metadata.heard.clear()
    return polls, answered, false_alarms, cpu_s
