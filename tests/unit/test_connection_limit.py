"""Kept connections are bounded: what nobody uses is closed, and dialed again when it is needed."""

import asyncio
from pathlib import Path

import pytest
from sshd import Sshd, make_key, wait_until

from gpu_tenant.domain.model import SshAddress
from gpu_tenant.transports import connection_limit
from gpu_tenant.transports.connection_limit import Lines
from gpu_tenant.transports.ssh import SshTransport


class Counted:
    closed = 0

    def hang_up(self) -> None:
        self.closed += 1


async def test_beyond_the_bound_the_newest_idle_connection_is_closed_and_dialed_again(
    tmp_path: Path,
) -> None:
    key = make_key(tmp_path / "id")
    with Sshd(tmp_path / "box", authorized=key.with_suffix(".pub")) as box:
        kept = Lines(most=2)
        ways = [
            SshTransport(
                SshAddress(target=box.target),
                known_hosts=tmp_path / f"known{n}",
                client_key=key,
                tell=lambda words: None,
                owner_ssh=tmp_path / "none",
                lines=kept,
            )
            for n in range(3)
        ]

        for _ in range(2):
            for way in ways:
                assert (await way.run(["true"], timeout_s=20)).exit_status == 0
        slow = asyncio.create_task(ways[2].run(["sleep", "0.2"], timeout_s=20))
        await ways[0].run(["true"], timeout_s=20)

        assert (await slow).exit_status == 0, "one in use is not closed"
        wait_until(lambda: box.logins == 5)
        for way in ways:
            await way.aclose()


def test_one_that_has_been_idle_for_long_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten, used, new = Counted(), Counted(), Counted()
    now = [0.0]
    monkeypatch.setattr(connection_limit.time, "monotonic", lambda: now[0])
    kept = Lines(most=2)
    kept.idle(forgotten)
    kept.idle(used)
    now[0] = 3600
    kept.note_used(used)
    kept.idle(used)

    kept.idle(new)

    assert [line.closed for line in (forgotten, used, new)] == [1, 0, 0]
