"""Passkeys on the page: the only kind of signature that a program which runs as the owner cannot give.

A passkey belongs to a host name and not to an IP address. So the page is opened under the name `localhost`. A
signature of the browser's key is checked with the public key in the ledger, and is kept there.
"""

import json
import secrets
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

from webauthn import (
    generate_authentication_options,
    generate_registration_options,
    options_to_json,
    verify_authentication_response,
    verify_registration_response,
)
from webauthn.helpers import base64url_to_bytes, bytes_to_base64url
from webauthn.helpers.exceptions import WebAuthnException
from webauthn.helpers.structs import (
    AuthenticatorSelectionCriteria,
    PublicKeyCredentialDescriptor,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from gpu_tenant.domain.errors import Refused
from gpu_tenant.domain.signature import Passkey, SignatureRequest

_NAME = "localhost"
_REQUIRED = UserVerificationRequirement.REQUIRED


@dataclass(slots=True)
class Passkeys:
    """The challenges that were sent to the browser. Each is valid for one answer."""

    origin: str
    _for: dict[str, bytes] = field(default_factory=dict)
    made: dict[str, tuple[str, str]] = field(default_factory=dict)
    """The id and public key of new keys that wait for a signature, by the code of the request."""

    def to_set_up(self, user: str, deployment: str, known: list[Passkey]) -> str:
        """Return the options with which the browser makes a new key."""
        challenge = self._for["new"] = secrets.token_bytes(32)
        return options_to_json(
            generate_registration_options(
                rp_id=_NAME,
                rp_name="gpu-tenant",
                user_name=user,
                user_id=deployment.encode(),
                challenge=challenge,
                exclude_credentials=_descriptors(known),
                authenticator_selection=AuthenticatorSelectionCriteria(
                    resident_key=ResidentKeyRequirement.PREFERRED, user_verification=_REQUIRED
                ),
            )
        )

    def set_up(self, credential: str) -> tuple[str, str]:
        """Return the new key's id and public key.

        Raises:
            Refused: the answer does not fit the challenge.
        """
        try:
            made = verify_registration_response(
                credential=credential,
                expected_challenge=self._for.pop("new", b""),
                expected_rp_id=_NAME,
                expected_origin=self.origin,
                require_user_verification=True,
            )
        except (WebAuthnException, ValueError) as error:
            raise _refusal(error) from error
        return bytes_to_base64url(made.credential_id), bytes_to_base64url(
            made.credential_public_key
        )

    def to_sign(self, asked: SignatureRequest, known: list[Passkey]) -> str:
        """Return the options with which the browser signs exactly this request, once, by a known key."""
        challenge = self._for[asked.code] = secrets.token_bytes(32) + _user_handle(asked)
        return options_to_json(
            generate_authentication_options(
                rp_id=_NAME,
                challenge=challenge,
                allow_credentials=_descriptors(known),
                user_verification=_REQUIRED,
            )
        )

    def must_fit(self, asked: SignatureRequest, credential: str, known: list[Passkey]) -> str:
        """Check that one of the known keys has signed exactly this request, and return the proof.

        Raises:
            Refused: no known key has signed it.
        """
        challenge = self._for.pop(asked.code, b"")
        try:
            said = json.loads(credential)
            chosen = said["id"]
        except (ValueError, KeyError, TypeError) as error:
            raise _refusal(error) from error
        key = next((key for key in known if key.id == chosen), None)
        if key is None or not challenge.endswith(_user_handle(asked)):
            raise _refusal("the signature belongs to another key, or to another list")
        try:
            verify_authentication_response(
                credential=credential,
                expected_challenge=challenge,
                expected_rp_id=_NAME,
                expected_origin=self.origin,
                require_user_verification=True,
                credential_public_key=base64url_to_bytes(key.public_key),
                # The counter is not checked: many keys have none, and each challenge is valid only
                # once.
                credential_current_sign_count=0,
            )
        except (WebAuthnException, ValueError) as error:
            raise _refusal(error) from error
        return json.dumps({"challenge": bytes_to_base64url(challenge), "credential": said})


By = Literal["passkey", "terminal", "none"]
"""The ways to sign on this page."""


def _user_handle(asked: SignatureRequest) -> bytes:
    return sha256(
        "\0".join((asked.code, asked.kind, asked.subject, asked.digest, asked.shown)).encode()
    ).digest()


def _descriptors(known: list[Passkey]) -> list[PublicKeyCredentialDescriptor]:
    return [PublicKeyCredentialDescriptor(id=base64url_to_bytes(key.id)) for key in known]


def _refusal(error: Exception | str) -> Refused:
    return Refused(
        f"that is no answer of a passkey of this ledger's owner ({error}); nothing was signed",
        remedy="look at the list once more, and sign with the passkey that was set up here",
    )
