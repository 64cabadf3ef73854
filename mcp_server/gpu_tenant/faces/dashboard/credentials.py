"""Lets the owner set on the page where each platform's key is kept, and tests the key."""

from pydantic import Field

from gpu_tenant.app import connect
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest, SecretRefused, TenantError
from gpu_tenant.domain.model import Profile
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.wording import some
from gpu_tenant.files.config_edit import write_settings
from gpu_tenant.providers.credentials import find_credential, resolve
from gpu_tenant.service import Tenancy

_SCHEMES = ("env", "file", "keyring")
"""The kinds of references that the page accepts. `cmd:` runs a program, so the owner must write it in the file."""
_NOWHERE = {
    "env": "the dashboard's own environment has no variable of that name",
    "file": "there is no file at that path that can be read here",
    "keyring": "the keyring of this computer has no such entry, or is not installed",
}
_LONGEST = 400


class Keyed(Record):
    """Whether a platform's key is found. The key itself is never in it."""

    needed: bool
    found: bool
    reference: str | None
    usual_env: tuple[str, ...]


class Platform(Record):
    """One platform in the page's list."""

    id: str
    title: str
    kind: str
    lease: str
    checked_on: str
    trap: str
    stops: str
    stops_the_meter: str
    credential: Keyed
    connected: bool = Field(description="whether this program itself keeps the list of boxes there")


class Tested(Record):
    """Whether the provider accepted a key."""

    ok: bool
    words: str


class CredentialResult(Record):
    """The reference that was written into the configuration, and the test of its key."""

    written: str
    test: Tested


def platforms(tenancy: Tenancy) -> list[Platform]:
    """Return all platforms. No provider is asked."""
    return [_platform(profile, tenancy) for profile in tenancy.profiles.values()]


def _platform(profile: Profile, tenancy: Tenancy) -> Platform:
    place = profile.credential
    found = find_credential(profile, tenancy.home.configuration, tenancy.context.environ)
    return Platform(
        id=profile.id,
        title=profile.title,
        kind=profile.kind,
        lease=profile.lease,
        checked_on=profile.checked_on.isoformat(),
        trap=profile.trap,
        stops=profile.stops,
        stops_the_meter=profile.stops_the_meter,
        credential=Keyed(
            needed=place is not None,
            found=found is not None,
            reference=found.source if found else None,
            usual_env=place.env if place else (),
        ),
        connected=profile.id in tenancy.context.connected,
    )


async def try_key(tenancy: Tenancy, provider: str) -> Tested:
    """Ask the platform for its boxes, with the key that is found now.

    Raises:
        BadRequest: there is no such platform, or it needs no key.
    """
    profile = _with_key(tenancy, provider)
    try:
        connector = connect(profile, tenancy.home, tenancy.context.environ, tenancy.clock)
        if (
            connector is None
            or find_credential(profile, tenancy.home.configuration, tenancy.context.environ) is None
        ):
            return Tested(ok=False, words=f"no key of {profile.title} is found")
        boxes = await connector.list_boxes()
    except TenantError as trouble:
        return Tested(ok=False, words=f"{trouble.message}; {trouble.remedy}")
    count = some(len(boxes), "box")
    return Tested(ok=True, words=f"{profile.title} answered: {count} in the account")


async def keep_reference(tenancy: Tenancy, provider: str, reference: str) -> CredentialResult:
    """Write into the configuration where the key is, and test the key. The rest of the configuration is unchanged.

    Raises:
        BadRequest: it is not a reference that the page takes, or leads nowhere; nothing was
            written.
        SecretRefused: it looks like the key itself; nothing was written, and it is not
            repeated.
        LocalTrouble: the configuration cannot be read or written.
    """
    profile = _with_key(tenancy, provider)
    scheme, colon, rest = reference.strip().partition(":")
    if not colon or scheme not in (*_SCHEMES, "cmd", "text"):
        raise SecretRefused(
            "that is no reference, and may be the key itself: it was neither written nor shown",
            remedy="keep the key in a file that only you read, and write `file:PATH`; or `env:NAME`, or "
            "`keyring:SERVICE/USER`; a key that was pasted into a page is better taken back",
        )
    if scheme not in _SCHEMES or len(rest) > _LONGEST or not rest.isprintable() or not rest:
        raise BadRequest(
            f"a reference of the form {scheme}: is not taken here",
            remedy=f"env:NAME, file:PATH or keyring:SERVICE/USER; anything else goes into "
            f"{tenancy.home.configuration} by an editor",
        )
    try:
        resolve(f"the key of {profile.title}", f"{scheme}:{rest}", environ=tenancy.context.environ)
    except BadRequest:
        # The text after the scheme may be the key itself, so the message does not repeat it.
        raise BadRequest(
            _NOWHERE[scheme],
            remedy="see that it is there for the program that is the dashboard, and write where it is; "
            "nothing was written",
        ) from None
    write_settings(tenancy.home.configuration, "credentials", {provider: f"{scheme}:{rest}"})
    return CredentialResult(written=f"{scheme}:{rest}", test=await try_key(tenancy, provider))


def _with_key(tenancy: Tenancy, provider: str) -> Profile:
    profile = tenancy.profiles.get(provider)
    if profile is None or profile.credential is None:
        raise BadRequest(
            f"{provider!r} is no platform that needs a key",
            remedy=f"{Command('profiles')} lists them",
        )
    return profile
