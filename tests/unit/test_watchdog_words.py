"""Who looks after the leases, in words: the command that is named works where it is read."""

from datetime import UTC, datetime
from pathlib import Path

from gpu_tenant.files.rehearsal_marker import Rehearsal, put_rehearsal
from gpu_tenant.files.state_dir import Home
from gpu_tenant.leases.watchdog_heartbeat import last_watch_words

NOW = datetime(2026, 11, 26, tzinfo=UTC)


def test_a_rehearsal_recommends_a_watchdog_in_a_terminal_because_none_can_be_installed(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path)
    assert "`gpu-tenant install watchdog`" in last_watch_words(home.watchdog, NOW)

    put_rehearsal(home.root, Rehearsal(provider="vastai", url="http://127.0.0.1:9"))

    said = last_watch_words(home.watchdog, NOW)
    assert "`gpu-tenant watchdog` in another terminal" in said
    assert "install" not in said
