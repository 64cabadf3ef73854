"""The identity of the cluster that the leases are in. A complete list from another cluster proves nothing."""

import asyncio
import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import CredentialRefused, ProviderTrouble
from gpu_tenant.domain.record import Record
from gpu_tenant.providers.kubernetes.client import Calls


class Identity(Record):
    """A namespace of a cluster, as much of it as a login may see."""

    server: str
    authority: str | None
    """The SHA-256 of the certificates that vouch for the server. None for those of the system."""
    namespace: str
    uid: str | None
    """The namespace's uid, which is unique across clusters. None if the login may not read it."""

    def is_one_with(self, other: "Identity") -> bool:
        """Whether both are the same namespace.

        The server may move and its certificates may change. The uid stays.
        """
        if self.uid and other.uid:
            return self.uid == other.uid
        here = (self.server, self.authority, self.namespace)
        return here == (other.server, other.authority, other.namespace)

    def __str__(self) -> str:
        uid = f" (uid {self.uid})" if self.uid else ""
        return f"{self.namespace}{uid} at {self.server}"


async def identity(calls: Calls, namespace: str) -> Identity:
    """What identifies that namespace.

    Raises:
        ProviderTrouble: the cluster does not say, or has no such namespace.
    """
    settings = (await asyncio.to_thread(calls.client)).configuration
    uid = authority = None
    # A login that may create Jobs may still lack the right to read their namespace.
    with contextlib.suppress(CredentialRefused):
        shown = await calls.ask("CoreV1Api", "read_namespace", name=namespace)
        uid = str(shown["metadata"]["uid"])
    if settings.verify_ssl and settings.ssl_ca_cert:
        authority = hashlib.sha256(Path(settings.ssl_ca_cert).read_bytes()).hexdigest()
    return Identity(server=str(settings.host), authority=authority, namespace=namespace, uid=uid)


def must_be_noted(found: Identity, note: Path) -> None:
    """The leases of this state directory are in that namespace, or none is noted yet.

    Raises:
        ProviderTrouble: they are elsewhere, or what is noted cannot be read.
    """
    try:
        noted = Identity.model_validate_json(note.read_bytes())
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise ProviderTrouble(
            f"which cluster the leases are in cannot be read from {note}: {error}",
            remedy="make that file readable, or bring it back from a backup",
        ) from error
    if not noted.is_one_with(found):
        raise ProviderTrouble(
            f"[kubernetes] leads to {found}, and the leases are in {noted}",
            remedy="name that one again (`context`, `namespace`, `kubeconfig` or KUBECONFIG);"
            f" where {Command('leases')} shows none there any more, move {note} away",
        )


def note_once(found: Identity, note: Path) -> None:
    """That namespace is noted durably as the one with the leases, if none was noted.

    Raises:
        ProviderTrouble: as for `must_be_noted`, or it could not be written.
    """
    try:
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=note.parent) as being_written:
            being_written.write(found.model_dump_json().encode())
            being_written.flush()
            os.fsync(being_written.fileno())
            # The link fails if another process was first. Then what that process wrote is there and
            # complete.
            os.link(being_written.name, note)
    except FileExistsError:
        must_be_noted(found, note)
    except OSError as error:
        raise ProviderTrouble(
            f"which cluster the leases are in could not be written to {note}: {error.strerror}",
            remedy="make room there, then the same command again",
        ) from error
