"""Puts the parts together: the environment is read here, once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from gpu_tenant.domain.choices import Purpose
from gpu_tenant.domain.clock import WallClock
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import (
    BoxUnreachable,
    LedgerBusy,
    LedgerCorrupt,
    LedgerTooNew,
    LocalTrouble,
)
from gpu_tenant.domain.model import (
    Address,
    Lease,
    LeaseId,
    LocalAddress,
    PodAddress,
    Profile,
    SlurmAddress,
    SshAddress,
)
from gpu_tenant.domain.ports import Clock, Connector, Setting, Transport
from gpu_tenant.files.disk_reserve import give_up_reserve, is_full, is_read_only
from gpu_tenant.files.rehearsal_marker import Rehearsal, rehearsal_of, require_real
from gpu_tenant.files.skill_files import skill_directory
from gpu_tenant.files.state_dir import Home
from gpu_tenant.providers.credentials import find_credential, only_rehearsed, read_table
from gpu_tenant.providers.profiles import load_profiles

# What only a tenancy needs is imported when one is opened. Platforms are also shown without one.
if TYPE_CHECKING:
    from gpu_tenant.ledger import Ledger
    from gpu_tenant.service import Tenancy


def open_tenancy(
    environ: Mapping[str, str] | None = None,
    *,
    tell: Callable[[str], None] = lambda words: None,
    tending: Literal["on", "off"] = "on",
    purpose: Purpose = "work",
) -> Tenancy:
    """Return the tenancy of this computer's one user. `tell` is called with what a person should know meanwhile.

    With `tending="off"`, looking at a sweep begins nothing and moves nothing: it only reports what is on record.
    If the disk takes no writes, a `look` reads a copy of the ledger, which is thrown away afterwards. A `watch` and an
    `end` free the room on the disk that was reserved for them.

    Raises:
        LedgerBusy, LedgerTooNew, LedgerCorrupt: the ledger cannot be trusted.
        BadRequest: a variable would turn a real ledger into a rehearsal, or point to an API elsewhere.
        LocalTrouble: this is a rehearsal that is over.
    """
    from gpu_tenant.leases.context import Context
    from gpu_tenant.service import Tenancy

    environ = os.environ if environ is None else environ
    home = Home.of(environ)
    home.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    profiles = known_platforms(home)
    rehearsal = rehearsal_of(home.root)
    stage = rehearsal.url if rehearsal else None
    clock = _clock(stage)
    ledger, unrecorded = _open_ledger(home, clock, purpose)
    if unrecorded is not None:
        tell(f"{unrecorded.message}; {unrecorded.remedy}")
    try:
        _require_agreed(rehearsal, ledger, home, environ, purpose)
        clock.now()  # If this is a rehearsal that is over, say so at once.
    except BaseException:
        ledger.close()
        raise
    connectors: dict[str, Connector] = {}
    for slug, profile in profiles.items():
        # In a rehearsal no real provider is asked: its clock is a different one, and its money is
        # real.
        if rehearsal and profile.credential and slug != rehearsal.provider:
            continue
        connector = connect(profile, home, environ, clock, tell=tell)
        if connector is not None:
            connectors[slug] = connector
    context = Context(
        home=home,
        ledger=ledger,
        profiles=profiles,
        connectors=connectors,
        open_transport=lambda lease: _transport(lease, home, stage, tell),
        locate=lambda lease: _locate(lease, stage),
        public_key=lambda: _public_key(home),
        introduce=lambda lease, password: _introduce(lease, password, home, tell),
        environ=environ,
        tending="off" if unrecorded else tending,
        unrecorded=unrecorded,
    )
    return Tenancy(context)


def _open_ledger(home: Home, clock: Clock, purpose: Purpose) -> tuple[Ledger, LocalTrouble | None]:
    """Open the ledger.

    If a `look` finds that the disk takes no writes, open a copy instead. Return the ledger. If it is a copy, or
    what is left of a damaged ledger, also return the trouble that says why.
    """
    from gpu_tenant.ledger import Ledger

    if purpose == "salvage":
        left, rows = Ledger.salvage(home.ledger, clock)
        return left, LedgerCorrupt(
            f"{home.ledger} is damaged: {rows} records of it can be read and are shown, and each provider was "
            "asked which boxes it has; nothing of this look is recorded",
            remedy="these boxes may be billing: end them at their provider, or write them down; "
            f"{Command('doctor')} says how to mend the ledger",
        )
    is_there = home.ledger.is_file()
    if purpose == "look" and is_there and takes_no_writes(home.root):
        return Ledger.copy_of(home.ledger, clock), _unrecorded_look(home)
    if purpose in ("watch", "end"):
        give_up_reserve(home.root, purpose)
    try:
        return Ledger(home.ledger, clock), None
    except (LedgerBusy, LedgerTooNew, LedgerCorrupt):
        raise
    except LocalTrouble:
        # A full quota shows only when something is written.
        if purpose != "look" or not is_there:
            raise
        return Ledger.copy_of(home.ledger, clock), _unrecorded_look(home)


def takes_no_writes(directory: Path) -> bool:
    """Whether that state directory is read-only or its disk is full."""
    return is_read_only(directory) or is_full(directory)


def _unrecorded_look(home: Home) -> LocalTrouble:
    """Return what a look tells the person when it cannot record anything."""
    from gpu_tenant.ledger.database import disk_is_full

    if not is_read_only(home.root):
        return disk_is_full(home.root, "nothing of this look is recorded")
    return LocalTrouble(
        f"{home.root} takes no writes; nothing of this look is recorded",
        remedy="see that it is yours and not mounted read-only (`ls -ld`, `mount`): until then nothing can be "
        "done about a lease from here",
    )


def known_platforms(home: Home | None = None) -> Mapping[str, Profile]:
    """Return every platform's profile by its slug. No platform is asked.

    If `home` is given, what was found valid is noted there, so that the next process need not check it again.
    """
    return load_profiles(skill_directory() / "profiles", home.valid_profiles if home else None)


def connect(
    profile: Profile,
    home: Home,
    environ: Mapping[str, str],
    clock: Clock,
    *,
    tell: Callable[[str], None] = lambda words: None,
) -> Connector | None:
    """Return the connector from `providers/<slug>/connector.py`.

    If a person rents in a console, we keep the list of boxes. None for a platform without boxes, and for a platform
    whose key cannot be found. The connector of a platform that nobody has configured is not even imported.
    """
    from gpu_tenant.providers.console.connector import Both, ByHand

    by_hand = (
        ByHand(profile, home.root / "by_hand" / profile.id)
        if profile.lease in ("adopted", "either") and profile.destroy == "deletes"
        else None
    )
    if not (Path(__file__).parent / "providers" / profile.id / "connector.py").is_file():
        return by_hand
    credential = None
    if profile.credential is not None:
        credential = find_credential(profile, home.configuration, environ)
        if credential is None:
            return by_hand
    elif profile.lease == "either" and not _is_used(profile, home):
        return by_hand
    rehearsal = rehearsal_of(home.root)
    if rehearsal and credential:
        credential = only_rehearsed(credential, home.root)
    setting = Setting(
        rehearsed_at=rehearsal.url if rehearsal and rehearsal.provider == profile.id else None,
        named_at=_named_at(profile, home),
        profile=profile,
        state=home.root,
        environ=environ,
        clock=clock,
        credential=credential,
        public_key=lambda: _public_key(home),
        shell_at=lambda at: _shell(profile.id, at, home, tell),
    )
    connector: Connector | None = import_module(
        f"gpu_tenant.providers.{profile.id}.connector"
    ).connect(setting)
    if connector is None:
        return by_hand
    return Both(connector, by_hand) if by_hand else connector


def _is_used(profile: Profile, home: Home) -> bool:
    """Whether the owner uses a platform that takes no key.

    They do if the configuration names it, or if leases were begun there.
    """
    try:
        named = read_table(home.configuration, profile.id)
    except LocalTrouble:
        return True  # the connector says what is wrong
    return bool(named) or (home.root / profile.id).exists()


def _public_key(home: Home) -> str:
    public = home.client_key.with_suffix(".pub")
    if not public.exists():
        from gpu_tenant.transports.ssh import ensure_key

        ensure_key(home.client_key)
    return public.read_text(encoding="utf-8").strip()


def _require_agreed(
    rehearsal: Rehearsal | None,
    ledger: Ledger,
    home: Home,
    environ: Mapping[str, str],
    purpose: Purpose,
) -> None:
    """Require that the state directory and its ledger agree: both are real, or both are rehearsed.

    A damaged ledger may no longer say which of the two it is. It is shown nevertheless, which is safe because a
    rehearsal sends no key of a real account.

    Raises:
        BadRequest: a variable says otherwise.
        LocalTrouble: one of the two says otherwise.
    """
    if rehearsal is None:
        if ledger.is_rehearsed:
            raise LocalTrouble(
                (
                    f"{home.ledger} belongs to a rehearsal, and nothing says at which address that rehearsal "
                    "answers"
                ),
                remedy=f"open a new shell, or start another one: {Command('rehearse', 'PROVIDER')}",
            )
        require_real(home.root, environ)
    elif purpose != "salvage" and not ledger.is_rehearsed and not ledger.be_rehearsed():
        raise LocalTrouble(
            f"{home.root} says that it is a rehearsal, and its ledger has real leases",
            remedy=f"remove {home.root / 'rehearsal.json'}: a rehearsal has a state directory of its own",
        )


def _named_at(profile: Profile, home: Home) -> str | None:
    """Return the address of this provider's API that the owner wrote below `[api]`. None if there is none.

    Raises:
        LocalTrouble: a key would travel there in clear.
    """
    said = read_table(home.configuration, "api").get(profile.id)
    if said is None:
        return None
    at = urlsplit(str(said))
    if at.scheme != "https" or not at.hostname or at.username or at.query or at.fragment:
        raise LocalTrouble(
            f"{home.configuration}: the API of {profile.id} is not at an https address",
            remedy=f'write `{profile.id} = "https://HOST"` under `[api]`, or leave it out',
        )
    return str(said).rstrip("/")


def _clock(stage: str | None) -> Clock:
    if stage is None:
        return WallClock()
    from gpu_tenant.emulators.rehearsal_client import RehearsalClock

    return RehearsalClock(stage)


def _transport(
    lease: Lease, home: Home, stage: str | None, tell: Callable[[str], None]
) -> Transport:
    match _address(lease, stage):
        case LocalAddress() as here:
            from gpu_tenant.transports.local import LocalTransport

            return LocalTransport(Path(here.directory), programs=here.programs)
        case SshAddress() as address:
            # Nobody can know the key of a box that was just rented, so that its first sight is no news.
            is_known = lease.quote is None
            return _over_ssh(lease.id, address, home, tell if is_known else lambda words: None)
        case SlurmAddress() as allocation:
            from gpu_tenant.transports.slurm import SlurmTransport

            login = _shell(lease.provider, allocation.login, home, tell)
            return SlurmTransport(allocation, login)
        case PodAddress() as pod:
            from gpu_tenant.providers.kubernetes.exec import PodTransport

            return PodTransport(pod)


def _shell(slug: str, at: str | None, home: Home, tell: Callable[[str], None]) -> Transport:
    """A machine that all of a provider's leases share. Its host key is pinned under the provider's slug."""
    if at is not None:
        return _over_ssh(LeaseId(slug), SshAddress(target=at), home, tell)
    from gpu_tenant.transports.local import LocalTransport

    return LocalTransport(Path.home())


def _over_ssh(
    name: LeaseId, address: SshAddress, home: Home, tell: Callable[[str], None]
) -> Transport:
    # asyncssh costs a quarter of a second to import, and local boxes never need it.
    from gpu_tenant.leases.ssh_config import Reachable, entry
    from gpu_tenant.transports.openssh import OpenSsh
    from gpu_tenant.transports.ssh import SshTransport, ensure_key

    owner_ssh = home.ssh_of(name, Path.home() / ".ssh")
    return SshTransport(
        address,
        known_hosts=home.known_hosts(name),
        client_key=ensure_key(home.client_key),
        tell=tell,
        owner_ssh=owner_ssh,
        openssh=OpenSsh.find_client(
            name, lambda: entry(Reachable(name, address), home, owner_ssh), home.channels(name)
        ),
    )


async def _introduce(lease: Lease, password: str, home: Home, tell: Callable[[str], None]) -> None:
    from gpu_tenant.transports.ssh import ensure_key, introduce

    assert isinstance(lease.address, SshAddress)
    await introduce(
        lease.address,
        password,
        known_hosts=home.known_hosts(lease.id),
        client_key=ensure_key(home.client_key),
        tell=tell,
    )


def _address(lease: Lease, stage: str | None) -> Address:
    if lease.address is None:
        raise BoxUnreachable(
            f"the box of {lease.id} has no address yet", remedy=f"{Command('leases')} looks again"
        )
    located = _locate(lease, stage)
    if located is None:
        assert isinstance(lease.address, SshAddress)
        raise BoxUnreachable(
            f"nobody answers at {lease.address.target} in this rehearsal",
            remedy=f"{Command('leases')} shows the state of {lease.id}",
        )
    return located


def _locate(lease: Lease, stage: str | None) -> Address | None:
    """Return the address of the lease's box, inside a rehearsal or outside. None if it has no address now."""
    if stage is None or not isinstance(lease.address, SshAddress) or _is_real(lease):
        return lease.address
    from gpu_tenant.emulators.rehearsal_client import really_at

    return really_at(stage, lease.address.target)


def _is_real(lease: Lease) -> bool:
    """Whether the address is a real one, which a person gave.

    This is so if the address also names the box, or if the box has no name yet.
    """
    return lease.provider == "own" or lease.box_id is None or lease.goes_by_address
