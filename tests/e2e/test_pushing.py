"""A work tree goes to a box over real ssh, whose client is killed and whose link is cut while it does."""

import asyncio
import os
from contextlib import closing
from pathlib import Path

from e2e.people import HangingUp, Person, ended
from sshd import Sshd, wait_until


async def provisioned(person: Person, target: str) -> str:
    """A lease on that box."""
    async with person.tenancy() as tenancy:
        return (await tenancy.provision("own", target)).lease


def test_a_push_that_is_killed_and_cut_goes_on_from_what_the_box_has(
    person: Person, box: Sshd, tmp_path: Path
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "weights.bin").write_bytes(os.urandom(24_000_000))
    (tree / "train.py").write_text("print('hello')\n", encoding="utf-8")
    with HangingUp(box.port) as relay, closing(relay):
        lease = asyncio.run(provisioned(person, relay.target))
        before = relay.sent_by_client

        pushing = person.begin("push", str(tree), lease, "--limit", "10M")
        wait_until(lambda: relay.sent_by_client > before + 6_000_000)
        pushing.kill()
        ended(pushing)
        relay.cut_after_client(client_bytes=8_000_000)
        # New connections are welcome: where it found some in time it went on over those.
        cut = person.gpu_tenant("push", str(tree), lease)
        assert cut.status == 0 or "error: BOX_UNREACHABLE" in cut.err, cut
        went = person.gpu_tenant("push", str(tree), lease, "--json")
        sent = relay.sent_by_client - before

    assert went.status == 0, went
    work = box.home / "gpu-tenant" / lease / "work"
    assert (work / "weights.bin").read_bytes() == (tree / "weights.bin").read_bytes()
    assert sorted(path.name for path in work.iterdir()) == ["train.py", "weights.bin"]
    print(f"{sent:,} bytes were sent to push 24,000,000 over a kill and a cut")
    assert sent < 1.5 * 24_000_000
