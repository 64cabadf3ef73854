"""The composition root: the environment is read here, once, and the parts are put together."""

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path

from gpu_tenant.clock import WallClock
from gpu_tenant.ledger import Ledger
from gpu_tenant.model import Lease, LocalAddress, SshAddress
from gpu_tenant.ports import Connector, Transport
from gpu_tenant.profiles import load_profiles
from gpu_tenant.service import Tenancy
from gpu_tenant.skill import skill_directory
from gpu_tenant.store import Home


def open_tenancy(
    environ: Mapping[str, str] | None = None, *, tell: Callable[[str], None] = lambda words: None
) -> Tenancy:
    """The one user's tenancy of this computer; `tell` hears what a person should know on the way.

    Raises:
        LedgerBusy, LedgerTooNew, LedgerCorrupt: the ledger cannot be believed.
    """
    environ = os.environ if environ is None else environ
    home = Home.of(environ)
    home.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    profiles = load_profiles(skill_directory() / "profiles")
    connectors: dict[str, Connector] = {}
    for slug in profiles:
        connector = _connector(slug, home)
        if connector is not None:
            connectors[slug] = connector
    return Tenancy(
        home=home,
        ledger=Ledger(home.ledger),
        clock=WallClock(),
        profiles=profiles,
        connectors=connectors,
        open_transport=lambda lease: _transport(lease, home, tell),
        environ=environ,
    )


def _connector(slug: str, home: Home) -> Connector | None:
    """The connector of `connectors/<slug>.py`; a platform without an API has none."""
    if not (Path(__file__).parent / "connectors" / f"{slug}.py").is_file():
        return None
    connector: Connector = import_module(f"gpu_tenant.connectors.{slug}").connect(home.root)
    return connector


def _transport(lease: Lease, home: Home, tell: Callable[[str], None]) -> Transport:
    match lease.address:
        case LocalAddress(directory=directory):
            from gpu_tenant.transports.local import LocalTransport

            return LocalTransport(Path(directory))
        case SshAddress() as address:
            # asyncssh costs a quarter of a second to import, and local boxes never need it.
            from gpu_tenant.transports.ssh import SshTransport, ensure_key

            return SshTransport(
                address,
                known_hosts=home.known_hosts(lease.id),
                client_key=ensure_key(home.client_key),
                tell=tell,
            )
        case None:
            raise ValueError(f"{lease.id} has no address")
