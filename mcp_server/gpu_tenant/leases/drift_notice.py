"""Tells a person, once, that a provider answers in a way that this program does not know."""

from datetime import timedelta

from gpu_tenant.domain.alarm import Level
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.wording import some
from gpu_tenant.leases.context import Context
from gpu_tenant.providers.drift import DriftFile, read_drift

_NEWS = timedelta(hours=12)
_DRIFT = "drift "
_NAMED = 3


def note_drift(context: Context) -> None:
    """Raise a notice for each provider of which something new was kept, and end those that are old."""
    ledger, now = context.ledger, context.clock.now()
    if ledger.is_copy:
        return
    for found in read_drift(context.home.root):
        # What is kept is never less, so its number tells what was named already.
        key = f"{_DRIFT}{found.provider} {len(found.seen)}"
        if found.provider in context.profiles and found.seen and not ledger.was_raised(key):
            title = context.profiles[found.provider].title
            words = f"{title} {drift_words(found)}"
            ledger.raise_alarm(key, words, level=Level.NOTICE, lease_id=None, at=now)
    for alarm in ledger.open_alarms():
        if alarm.key.startswith(_DRIFT) and now - alarm.since > _NEWS:
            ledger.end_alarm(alarm.key, lease_id=None, at=now)


def drift_words(found: DriftFile) -> str:
    """Say what a provider answers that is not known, the newest first, and what to do about it."""
    newest = [drifted.words for drifted in reversed(found.seen)]
    named = "; ".join(newest[:_NAMED])
    more = f"; and {some(len(newest) - _NAMED, 'other thing')}" if len(newest) > _NAMED else ""
    return (
        f"answers in a way that this program does not know: {named}{more}; nothing was concluded from it; "
        f"{Command('doctor', report=True)} writes a file without keys and names, for the program's maintainers"
    )
