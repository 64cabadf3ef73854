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
from gpu_tenant.providers.kubernetes.client import KubernetesClient


class Identity(Record):
    """A namespace of a cluster, as far as a login may see it."""

    server: str
    authority: str | None
    """The SHA-256 of the certificates that vouch for the server. None if the system's certificates do."""
    namespace: str
    uid: str | None
    """The namespace's uid, which is unique across clusters. None if the login may not read it."""

    def is_one_with(self, other: "Identity") -> bool:
        """Whether both are the same namespace.

        The server may move and its certificates may change. The uid stays the same.
        """
        if self.uid and other.uid:
            return self.uid == other.uid
        here = (self.server, self.authority, self.namespace)
        return here == (other.server, other.authority, other.namespace)

    def __str__(self) -> str:
        uid = f" (uid {self.uid})" if self.uid else ""
        return f"{self.namespace}{uid} at {self.server}"


async def identity(calls: KubernetesClient, namespace: str) -> Identity:
    """Read what identifies that namespace.

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
    """Require that the leases of this state directory are in that namespace, or that no namespace is noted yet.

    Raises:
        ProviderTrouble: the leases are elsewhere, or the note cannot be read.
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
            f"[kubernetes] now points to {found}, but the leases are in {noted}",
            remedy="name that namespace again (`context`, `namespace`, `kubeconfig` or KUBECONFIG);"
            f" if {Command('leases')} shows no lease and no volume there any more, move {note} away",
        )


def note_once(found: Identity, note: Path) -> None:
    """Note durably that the leases are in that namespace, unless a namespace is already noted.

    Raises:
        ProviderTrouble: another namespace is noted, or the note could not be read or written.
    """
    try:
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=note.parent) as being_written:
            being_written.write(found.model_dump_json().encode())
            being_written.flush()
            os.fsync(being_written.fileno())
            # The link fails if another process was first. Then the note of that process is there and
            # complete.
            os.link(being_written.name, note)
    except FileExistsError:
        must_be_noted(found, note)
    except OSError as error:
        raise ProviderTrouble(
            f"which cluster the leases are in could not be written to {note}: {error.strerror}",
            remedy="free some space there, then run the same command again",
        ) from error
