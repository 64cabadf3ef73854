"""Every error that can be shown: a code, an exit status, and the next command to run.

TenantError
├── BadRequest            2   the call itself is wrong
│   ├── UnknownLease      2
│   └── SecretRefused     2
├── Refused               3   the law or the owner's terms forbid it; nothing was changed
│   ├── Unverified        3   a teardown without a ground
│   ├── NotSaved          3   files on the box would be replaced that are nowhere else
│   ├── JobRunning        3
│   ├── SweepOpen         3   a sweep on the box is not done
│   ├── SignatureWanted   3   a person has to sign first
│   ├── StillWanted       3   more work came while the lease was ended because its work was done
│   ├── BoxTaken          3   a live lease already has this box
│   ├── QuoteUsed         3   a live lease was already rented by this quote
│   ├── HostLeftOut       3   the offer's host failed before
│   └── Limit             3   the owner's limits leave no room
├── BoxTrouble            4   the box did not do what was asked
│   ├── BoxUnreachable    4   unknown, which is not dead
│   ├── BoxStopped        4   the box was stopped unasked
│   ├── HostKeyChanged    4
│   ├── AnotherBox        4   the box that answers is not the lease's
│   ├── NotReady          4   it was rented, but is broken, or did not let us in in time
│   │   └── StillBoots    4   it boots, which is no fault
│   ├── BoxDiskFull       4   nothing more can be written there
│   └── CaretakerFailed   4
├── ProviderTrouble       5   the provider did not do what was asked
│   ├── ProviderSilent    5   no answer, or none that can be trusted: unknown
│   │   └── PartlyListed  5   a list with unreadable rows: it proves no box gone
│   ├── CredentialRefused 5
│   ├── RateLimited       5
│   ├── NoCapacity        5   nothing like it is free there now; another offer may be
│   ├── NoQuota           5   the account's quota is too small
│   ├── NoFunds           5   the account cannot pay
│   ├── PriceMoved        5   the box would cost more than was agreed
│   ├── OwnerMustAct      5   there is no API for it: a person must act in the console
│   └── Rejected          5   the provider refused in its own words
├── LocalTrouble          6   this computer did not do what was asked
│   ├── DiskFull          6
│   ├── LedgerBusy        6
│   ├── LedgerTooNew      6
│   └── LedgerCorrupt     6
├── LeaseHeld             7   another process is acting on this lease right now
├── PermitForged          8   code tried to destroy without a permit: a bug, never a user's mistake
└── StoreTrouble          9   the durable store did not do what was asked
    └── NotStored         9   the store answered, and has no such file
"""

from collections.abc import Sequence
from typing import ClassVar

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.untrusted_text import sentence

_LOOK_AGAIN = "make the same call again, which looks again"

_LONGEST_MESSAGE = 1400
_LONGEST_REMEDY = 600
_LONGEST_LOG = 1200


class TenantError(Exception):
    """An error that is shown to a caller: what happened, and the next command to run.

    `remedy` is required, because a reader whose box is billing must learn what to do next. `message` and `remedy` are
    one short line each, even if a box or a provider put other text in them. `log` is the fenced end of a box's log, and
    keeps its line breaks.
    """

    code: ClassVar[str] = "TENANT_ERROR"
    exit_status: ClassVar[int] = 1

    def __init__(self, message: str, *, remedy: str, log: str = "") -> None:
        self.message = sentence(message, most=_LONGEST_MESSAGE - min(len(log), _LONGEST_LOG))
        if log and len(log) <= _LONGEST_LOG:
            self.message += f"\n{log}\n"
        self.remedy = sentence(remedy, most=_LONGEST_REMEDY)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.code}: {self.message}; {self.remedy}"


class BadRequest(TenantError):
    """The call itself is wrong; nothing was done."""

    code = "BAD_REQUEST"
    exit_status = 2


class UnknownLease(BadRequest):
    """The ledger has no lease of that name."""

    code = "UNKNOWN_LEASE"


class SecretRefused(BadRequest):
    """A file that looks like a secret would have left this computer."""

    code = "SECRET_REFUSED"


class Refused(TenantError):
    """The law or the owner's terms forbid it; nothing was changed."""

    code = "REFUSED"
    exit_status = 3


class Unverified(Refused):
    """None of the three grounds for a teardown holds."""

    code = "UNVERIFIED"


class NotSaved(Refused):
    """Files on the box that are saved nowhere else would be replaced."""

    code = "NOT_SAVED"


class JobRunning(Refused):
    """A job on the box still runs, or its command ended and left processes."""

    code = "JOB_RUNNING"


class SweepOpen(Refused):
    """A sweep has cells on the box that still run."""

    code = "SWEEP_OPEN"


class SignatureWanted(Refused):
    """A person has to sign first, at a terminal or on the dashboard. Then call again."""

    code = "SIGNATURE_WANTED"

    asked = ""
    """The code under which the request for the signature waits."""


class StillWanted(Refused):
    """More work came while the lease was being ended. Nothing was destroyed."""

    code = "STILL_WANTED"


class BoxTaken(Refused):
    """A live lease already has this box."""

    code = "BOX_TAKEN"


class QuoteUsed(Refused):
    """A live lease, or an open intent, has already used this quote."""

    code = "QUOTE_USED"

    lease_id = ""
    """The lease that was rented by this quote."""


class HostLeftOut(Refused):
    """The offer's host failed here before, and nobody asked for it by name."""

    code = "HOST_LEFT_OUT"


class Limit(Refused):
    """The call would exceed one of the owner's limits, which no tool can raise."""

    code = "LIMIT"

    name, value = "", ""
    """The limit's name and value."""


class BoxTrouble(TenantError):
    """The box answered, and did not do what was asked."""

    code = "BOX_TROUBLE"
    exit_status = 4


class BoxUnreachable(BoxTrouble):
    """The box did not answer. It is unknown, not dead: it may still be working, and billing."""

    code = "BOX_UNREACHABLE"

    def name_lease(self, lease: str, *, verb: str = "") -> None:
        """Write the lease's id into the remedy. The code that talks to a box does not know under which lease it does.

        If the call that failed was an audit itself (`verb`), the remedy is to repeat this call.
        """
        audit = str(Command("audit"))
        if verb == "audit":
            self.remedy = self.remedy.replace(f"run {audit} to look again", _LOOK_AGAIN)
        self.remedy = self.remedy.replace(audit, str(Command("audit", lease)))


class BoxStopped(BoxTrouble):
    """The box was stopped unasked. Its disk may bill on."""

    code = "BOX_STOPPED"


class HostKeyChanged(BoxTrouble):
    """The host key that answered is not the one pinned for this lease. Nothing was sent."""

    code = "HOST_KEY_CHANGED"


class AnotherBox(BoxTrouble):
    """The box that answers is not the lease's box. Nothing was done to either."""

    code = "ANOTHER_BOX"


class NotReady(BoxTrouble):
    """A rented box is broken, or did not let us in within its time."""

    code = "NOT_READY"


class StillBoots(NotReady):
    """It boots, or its work is on its way. Call again."""

    code = "STILL_BOOTS"


class BoxDiskFull(BoxTrouble):
    """Its disk has no room for what was to be written there. What lies on it can be collected."""

    code = "BOX_DISK_FULL"


class CaretakerFailed(BoxTrouble):
    """The caretaker on the box refused or could not run."""

    code = "CARETAKER_FAILED"


class ProviderTrouble(TenantError):
    """The provider refused, failed, or does not know the box."""

    code = "PROVIDER_TROUBLE"
    exit_status = 5


class ProviderSilent(ProviderTrouble):
    """The provider gave no answer that can be trusted: what was asked may have happened."""

    code = "PROVIDER_SILENT"


class PartlyListed(ProviderSilent):
    """Rows in the provider's list are unreadable. What it shows exists; what it omits may exist, too."""

    code = "PARTLY_LISTED"

    def __init__(self, message: str, *, remedy: str, shown: Sequence[object] = ()) -> None:
        super().__init__(message, remedy=remedy)
        self.shown = shown
        """The boxes that could be read."""


class CredentialRefused(ProviderTrouble):
    """The provider does not accept the key, or there is no key."""

    code = "CREDENTIAL_REFUSED"


class RateLimited(ProviderTrouble):
    """The provider wants fewer calls."""

    code = "RATE_LIMITED"


class NoCapacity(ProviderTrouble):
    """The offer is gone, or nothing like it is free now. No box was made."""

    code = "NO_CAPACITY"


class NoQuota(ProviderTrouble):
    """The account's quota does not allow this. No box was made, and waiting will not help."""

    code = "NO_QUOTA"


class NoFunds(ProviderTrouble):
    """The account cannot pay. No box was made."""

    code = "NO_FUNDS"


class PriceMoved(ProviderTrouble):
    """The box would cost more than was agreed. It was not rented, or was given back unused at once."""

    code = "PRICE_MOVED"


class OwnerMustAct(ProviderTrouble):
    """There is no API for this. A person must do it in the platform's console; the message says how."""

    code = "OWNER_MUST_ACT"


class Rejected(ProviderTrouble):
    """The provider refused, in its own words. What was requested was not carried out."""

    code = "REJECTED"

    status = 0
    """The HTTP status."""
    body = ""
    """The answer as it came, for the connector that can interpret it. It is never shown."""


class LocalTrouble(TenantError):
    """This computer could not do its part."""

    code = "LOCAL_TROUBLE"
    exit_status = 6


class DiskFull(LocalTrouble):
    """There is no room here for what is to be kept. What was fetched so far stays."""

    code = "DISK_FULL"


class LedgerBusy(LocalTrouble):
    """Another process has held the ledger's write lock for longer than we wait."""

    code = "LEDGER_BUSY"


class LedgerTooNew(LocalTrouble):
    """The ledger was written by a newer version of this program."""

    code = "LEDGER_TOO_NEW"


class LedgerCorrupt(LocalTrouble):
    """The file cannot be read as a ledger. It was left as it is."""

    code = "LEDGER_CORRUPT"


class LeaseHeld(TenantError):
    """Another process is acting on this lease right now."""

    code = "LEASE_HELD"
    exit_status = 7


class PermitForged(TenantError):
    """Code tried to destroy a box without a permit: a bug here, never the caller's mistake."""

    code = "PERMIT_FORGED"
    exit_status = 8


class StoreTrouble(TenantError):
    """The durable store failed to store or return something. That proves nothing."""

    code = "STORE_TROUBLE"
    exit_status = 9


class NotStored(StoreTrouble):
    """The durable store answered, and has no such file."""

    code = "NOT_STORED"
