"""Lets a person log in to the boxes of leases with their own ssh client."""

from pathlib import Path

from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.model import LocalAddress, PodAddress
from gpu_tenant.domain.record import Record
from gpu_tenant.leases.context import Context
from gpu_tenant.leases.readiness import must_run, reach
from gpu_tenant.leases.ssh_access import enterable, owner_ssh, reachable, refresh_hosts
from gpu_tenant.leases.ssh_config import Inclusion, entry, inclusion, ssh_config


class Login(Record):
    """How to log in to a box with this computer's ssh client."""

    lease: str
    config: str
    entry: str
    directory: str


async def login(context: Context, lease: str) -> Login:
    """Write the configuration with which `ssh LEASE` reaches the box, and pin the box's host key.

    The box counts as used from now on, because the ledger does not see what a person does there.

    Raises:
        BadRequest: the box is this computer.
        Refused: the lease has no box (any more), or its box is parked.
        HostKeyChanged, BoxUnreachable: the box cannot be reached.
    """
    found = await must_run(context, lease)
    if isinstance(found.address, LocalAddress):
        home = Path(found.address.directory)
        raise BadRequest(
            f"the box of {found.id} is this computer: there is nothing to log in to",
            remedy=f"`cd {home / found.work_directory}`",
        )
    if isinstance(found.address, PodAddress):
        at = found.address
        raise BadRequest(
            f"the box of {found.id} is a pod, and only its cluster's own client can enter it",
            remedy=f"`kubectl --context {at.context} -n {at.namespace} exec -it {at.pod} -- sh`",
        )
    if isinstance(context.locate(found), LocalAddress):
        raise BadRequest(
            f"{found.id} is rehearsed, and a rehearsed box takes ssh only where this computer has an sshd",
            remedy=f"{Command('exec', found.id, then='COMMAND')}, or install openssh-server, and rehearse again",
        )
    if not context.home.known_hosts(found.id).exists():
        await reach(context, found)
    box = reachable(context, found)
    if box is None:
        raise BadRequest(
            f"the box of {found.id} has no address", remedy=f"{Command('leases')} looks again"
        )
    context.ledger.touch(found.id, at=context.clock.now())
    context.ledger.note(found.id, timeline.LoggedIn(), at=context.clock.now())
    refresh_hosts(context)
    return Login(
        lease=found.id,
        config=str(ssh_config(context.home)),
        entry=entry(box, context.home, owner_ssh()),
        directory=found.work_directory,
    )


def inclusion_of(context: Context) -> Inclusion:
    """Return what plain `ssh LEASE` needs in the owner's own ssh configuration.

    This function does not change that file. The boxes that can be reached in this way count as used from now on. A box
    that is rented later is searched for traces of use when this matters.
    """
    refresh_hosts(context)
    for lease in enterable(context):
        context.ledger.touch(lease.id, at=context.clock.now())
        context.ledger.note(lease.id, timeline.LoggedIn(), at=context.clock.now())
    return inclusion(context.home, owner_ssh())
