"""Which durable stores the owner has named, and where their keys are."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import JsonValue, ValidationError

from gpu_tenant.artifacts.stores.locality import ELSEWHERE
from gpu_tenant.artifacts.stores.protocol import DirectoryStore, DurableStore, stored_as
from gpu_tenant.artifacts.stores.rclone import S3_REMOTE, RcloneStore
from gpu_tenant.domain.errors import BadRequest, LocalTrouble, SecretRefused
from gpu_tenant.domain.model import LeaseId
from gpu_tenant.domain.record import Record
from gpu_tenant.providers.credentials import read_table, resolve

_S3 = re.compile(r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:/(?P<prefix>[^\s?#]*))?")
# This matches the name of a remote. A connection string is refused: it could contain a password,
# which would be visible in `ps`.
_RCLONE = re.compile(r"rclone:(?P<remote>[\w.+@][\w.+@ -]*:[^\r\n]*)")
_REFERENCE = re.compile(r"(env|file|keyring|cmd):.+", re.DOTALL)


class Settings(Record):
    """One `[stores.NAME]` of the configuration.

    The four fields for access keys contain references to the keys, for example `env:VARIABLE`.
    """

    url: str
    endpoint: str | None = None
    region: str | None = None
    addressing: Literal["path", "virtual"] = "path"
    access_key_id: str | None = None
    secret_access_key: str | None = None
    box_access_key_id: str | None = None
    box_secret_access_key: str | None = None


def open_store(said: str, *, configuration: Path, environ: Mapping[str, str]) -> DurableStore:
    """Open the store that `said` names. The store is not contacted yet.

    `said` is a directory on this computer, `rclone:REMOTE:path`, `s3://bucket/prefix`, or a name under
    `[stores]` in the configuration. A bucket that is given by its URL is reached with the usual AWS variables
    and files.

    Raises:
        BadRequest: `said` is none of these, its directory does not exist, or a key reference leads nowhere.
        LocalTrouble: the configuration cannot be read.
    """
    name, settings = _settings(said, configuration)
    words = settings.url if name is None else f"{name} ({settings.url})"
    if bucket := _S3.fullmatch(settings.url):
        return _s3(bucket, settings, name, words, configuration, environ)
    if remote := _RCLONE.fullmatch(settings.url):
        return RcloneStore(remote["remote"], words=words, environ=environ)
    directory = Path(settings.url).expanduser()
    if directory.is_absolute() and directory.is_dir():
        return DirectoryStore(directory, words=words)
    if directory.is_absolute():
        raise BadRequest(
            f"the store {settings.url} is not a directory on this computer",
            remedy=f"mount that directory, or make it: `mkdir -p {settings.url}`",
        )
    raise _no_store(said, configuration)


def box_store(
    said: str, lease_id: LeaseId, *, configuration: Path, environ: Mapping[str, str]
) -> dict[str, JsonValue]:
    """Describe the store in the form that `scripts/keep.py` reads, with the key that its owner made for boxes.

    The result contains that key in clear text. It must go to the box on a stream, and must never be shown or
    stored.

    Raises:
        BadRequest: the store cannot be reached from a box, or its owner has made no key for boxes.
        SecretRefused: the key for boxes is the owner's own key.
        LocalTrouble: the configuration cannot be read.
    """
    name, settings = _settings(said, configuration)
    bucket = _S3.fullmatch(settings.url)
    if name is None or bucket is None:
        raise BadRequest(
            f"a box cannot copy to {said}: it can copy only to a bucket with a name and a key for boxes",
            remedy=f'name the bucket in {configuration}: `[stores.archive]`, `url = "s3://bucket/prefix"`, '
            "`endpoint`, `region`, `box_access_key_id`, `box_secret_access_key`",
        )
    key = _key(settings, name, "box_", configuration, environ)
    if key is None:
        raise BadRequest(
            f"[stores.{name}] has no key for boxes",
            remedy="make a key that can only write and read below the prefix in that store's `url`, then add "
            f"box_access_key_id and box_secret_access_key, as env: or file:, in {configuration}",
        )
    own = _key(settings, name, "", configuration, environ)
    if own is not None and (key[0] == own[0] or key[1] == own[1]):
        raise SecretRefused(
            f"the key for boxes of [stores.{name}] is the same as your own key",
            remedy="make a key that can only write and read below the prefix in that store's `url`",
        )
    region = settings.region or "us-east-1"
    prefix = (bucket["prefix"] or "").strip("/")
    return {
        "kind": "s3",
        "endpoint": settings.endpoint or _aws(region),
        "region": region,
        "addressing": settings.addressing,
        "bucket": bucket["bucket"],
        "prefix": "/".join(part for part in (prefix, stored_as(lease_id, "")[:-1]) if part),
        "access_key_id": key[0],
        "secret_access_key": key[1],
    }


def _s3(
    bucket: re.Match[str],
    settings: Settings,
    name: str | None,
    words: str,
    configuration: Path,
    environ: Mapping[str, str],
) -> RcloneStore:
    key = None if name is None else _key(settings, name, "", configuration, environ)
    # A store with a key of its own uses only that key, whatever else is in this environment.
    ours = {"RCLONE_"} if key is None else {"RCLONE_", "AWS_"}
    surroundings = {
        variable: value
        for variable, value in environ.items()
        if variable == "AWS_CA_BUNDLE" or not variable.startswith(tuple(ours))
    }
    spoken = {
        "type": "s3",
        "provider": "Other" if settings.endpoint else "AWS",
        "region": settings.region or environ.get("AWS_REGION") or "us-east-1",
        "no_check_bucket": "true",
        # rclone would ask the store for size and checksum. We read the bytes back instead.
        "no_head": "true",
        "force_path_style": "true" if settings.addressing == "path" else "false",
        # Our names are plain text already, and `scripts/keep.py` also writes them without an encoding.
        "encoding": "None",
        "env_auth": "true" if key is None else "false",
    }
    if settings.endpoint:
        spoken["endpoint"] = settings.endpoint
    if key is not None:
        spoken["access_key_id"], spoken["secret_access_key"] = key
    variables = {f"RCLONE_CONFIG_{S3_REMOTE}_{k}".upper(): v for k, v in spoken.items()}
    prefix = (bucket["prefix"] or "").strip("/")
    return RcloneStore(
        f"{S3_REMOTE}:{bucket['bucket']}/{prefix}",
        words=words,
        # The owner's rclone configuration may be locked by a password, and is not needed here.
        environ={**surroundings, **variables, "RCLONE_CONFIG": "/nowhere"},
        secrets=key or (),
        where=ELSEWHERE,
    )


def _aws(region: str) -> str:
    return f"https://s3.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")


def _settings(said: str, configuration: Path) -> tuple[str | None, Settings]:
    """Return a store's name under `[stores]` and its settings. The name is None if `said` is a URL or a path."""
    if "/" in said or ":" in said or not said:
        return None, Settings(url=said)
    named = read_table(configuration, "stores")
    if said not in named:
        raise _no_store(said, configuration, tuple(named))
    try:
        return said, Settings.model_validate(named[said])
    except ValidationError as error:
        # Leave the input out of the message, because it may contain a key in clear text.
        first = error.errors(include_input=False, include_url=False)[0]
        raise LocalTrouble(
            f"{configuration}: [stores.{said}] is wrong at {'.'.join(map(str, first['loc']))}: {first['msg']}",
            remedy=f"correct that file; the section takes {', '.join(Settings.model_fields)}",
        ) from None


def _key(
    settings: Settings,
    name: str,
    whose: Literal["", "box_"],
    configuration: Path,
    environ: Mapping[str, str],
) -> tuple[str, str] | None:
    """Return the id and the secret of a key of `[stores.NAME]`. None if neither is given."""
    halves = (f"{whose}access_key_id", f"{whose}secret_access_key")
    references = [getattr(settings, half) for half in halves]
    if references == [None, None]:
        return None
    values = []
    for half, reference in zip(halves, references, strict=True):
        # The value may be the key itself and not a reference, so it is not repeated in the message.
        if reference is None or not _REFERENCE.fullmatch(reference):
            raise BadRequest(
                f"{half} of [stores.{name}] is not a reference to the place of the key",
                remedy=f'write {half} = "env:VARIABLE", "file:PATH", "keyring:SERVICE/USER" or '
                f'"cmd:COMMAND" in {configuration}',
            )
        try:
            value = resolve(f"{half} of [stores.{name}]", reference, environ=environ).strip()
        except BadRequest as error:
            raise BadRequest(
                error.message,
                remedy=f"set that value, or correct [stores.{name}] in {configuration}",
            ) from None
        if not re.fullmatch(r"[!-~]{1,4096}", value):
            raise BadRequest(
                f"{half} of [stores.{name}] does not lead to a key: the value there is empty or has unusual characters",
                remedy="put the key in that place",
            )
        values.append(value)
    return values[0], values[1]


def _no_store(said: str, configuration: Path, named: tuple[str, ...] = ()) -> BadRequest:
    known = f" (named: {', '.join(sorted(named))})" if named else ""
    return BadRequest(
        f"{said!r} is not a store{known}",
        remedy="write /a/directory, rclone:REMOTE:path, s3://bucket/prefix, or a name under "
        f"[stores] in {configuration}",
    )
