"""The long link that transfers are measured on is as slow and as far as it says."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from parts import lacks, required, root_required

SENT = 1_000_000
RTT_S, RATE_MBIT = 0.06, 20
FAR_END = f"""
import socket
with socket.create_server(("", 0)) as server:
    print(server.getsockname()[1], flush=True)
    server.accept()[0].sendall(bytes({SENT}))
"""


def test_a_long_link_takes_its_round_trip_and_no_more_than_its_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    required("cc", "ip")
    root_required()
    if not Path("/dev/net/tun").exists():
        lacks("/dev/net/tun", "modprobe tun")
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    from links import Long

    with Long(tmp_path, rate_mbit=RATE_MBIT, rtt_ms=RTT_S * 1000) as link:
        command = link.within(sys.executable, "-c", FAR_END)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as far_end:
            assert far_end.stdout
            address = (link.there, int(far_end.stdout.readline()))
            began = time.monotonic()
            with socket.create_connection(address, timeout=60) as line:
                connected = time.monotonic()
                came = sum(len(chunk) for chunk in iter(lambda: line.recv(1 << 16), b""))
            ended = time.monotonic()
        wire_bytes = link.wire_bytes() or 0

    assert connected - began >= RTT_S
    assert came == SENT
    assert ended - connected >= SENT * 8 / (RATE_MBIT * 1e6)
    assert SENT < wire_bytes < 2 * SENT
