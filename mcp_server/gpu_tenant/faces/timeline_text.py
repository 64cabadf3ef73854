"""Writes the events of a lease's timeline as sentences for a person."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation

from pydantic import JsonValue

from gpu_tenant.domain import timeline
from gpu_tenant.domain.labels import Labels
from gpu_tenant.domain.terms import Terms
from gpu_tenant.domain.trackers import link_words
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.domain.wording import size, some, span

_NAMED = 5
_LONGEST = 300

_FATES = {
    "preempted": "Its provider took the box back",
    "outbid": "Somebody bid more for the box",
    "host_lost": "The box was lost with its host",
    "balance_zero": "The account ran dry, and its provider stopped the box",
    "walltime": "The time that the box was given for is over",
    "stopped_by_provider": "The box was stopped",
}

_MADE = {
    "ready": "The environment is ready",
    "done": "All that the environment asks for is installed",
    "failed": "The environment could not be made",
}

_OUTCOMES: dict[str | None, str] = {
    "asked": "Its provider was asked to destroy the box.",
    "taken": "Its provider said that it destroys the box.",
    "refused": "Its provider refused to destroy the box.",
}


def describe(event: timeline.Event) -> str:
    """Write the event as a sentence. If the event cannot be read completely, say what is known."""
    match event:
        case timeline.Intended():
            return f"Written down before there was a box: {_terms_words(event)}."
        case timeline.Bound(box=box):
            return f"The box {_text(box)} is under this lease, and its meter counts."
        case timeline.Ready():
            return "The box let us in."
        case timeline.Placed(path=path, why=why):
            at = "the login home" if path == "~" else _text(path)
            return f"Its directory on the box is in {at}{f': {_text(why)}' if why else ''}."
        case timeline.Marking():
            return "The box is to carry this lease's mark."
        case timeline.Marked():
            return "The box carries this lease's mark, which tells it from any other."
        case timeline.Audited():
            found = f"{some(event.blockers, 'blocker')}, {some(event.warnings, 'warning')}"
            return f"The box was audited: {found}; {machine_words(event)}."
        case timeline.Looked():
            return "The box was looked at: nobody has used it."
        case timeline.TakesOver(over=over):
            return f"A person decided that this lease takes the place of {_text(over)}."
        case timeline.Brokered(broker=tool, name=name):
            return f"The box is rented by {_text(tool)}, which calls it {_text(name)} and ends its bill."
        case timeline.Parking(how=how):
            by = {"in_box": "by its own command", "api": "by its provider"}.get(
                how or "", "by its owner, in the console"
            )
            return f"The box is to be parked {by}."
        case timeline.RunsOn():
            return "The box was to be parked, and runs on."
        case timeline.Parked():
            return "The box is parked: it does not run, and its disk may bill on."
        case timeline.Resuming():
            return "The box is to be started again."
        case timeline.Resumed():
            return "The box was started again, and has yet to let us in."
        case timeline.NewTerms():
            return f"New terms: {_terms_words(event)}."
        case timeline.Tested(smoke=smoke):
            return f"Rented with the smoke test {_text(smoke)}."
        case timeline.Labelled():
            words = Labels(project=event.project, name=event.name, tags=event.tags).words
            return (
                f"The lease is called {_text(words)}."
                if words
                else "The lease has no name any more."
            )
        case timeline.Priced(was=was, now=now):
            return f"Its price changed from {_usd_h(was)} to {_usd_h(now)}."
        case timeline.Billed(usd=None):
            return "Its provider was asked for the bill, but does not show it."
        case timeline.Billed(usd=usd, until=until, words=words):
            by = f", by {_clause(words)}" if words else ""
            return f"Its provider has billed {_usd(usd)} until {_when(until)}{by}."
        case timeline.StoppedByGuard(words=words):
            return f"Its guard stopped its box: {_clause(words)}."
        case timeline.Noticed(words=words):
            said = _clause(words)
            return f"{said[:1].upper()}{said[1:]}."
        case timeline.Taken(fate=fate, words=words):
            if fate is None:
                return "The box runs again: what had stopped it is over."
            return f"{_FATES[fate]}: {_clause(words)}." if words else f"{_FATES[fate]}."
        case timeline.Forewarned(jobs=jobs, ended=ended, stored_files=stored):
            asked = f"; asked to save: {_names_words(jobs)}" if jobs else "; nothing ran"
            done = ", which has ended" if jobs and ended else ""
            copied = f"; in the store: {some(stored, 'file')}" if stored else ""
            return f"The box heard that its platform takes it back{asked}{done}{copied}."
        case timeline.Recovered():
            return _describe_recovered(event)
        case timeline.Absent():
            return "Its provider did not list the box."
        case timeline.Overwritten(files=files):
            named = f", by name: {', '.join(map(_text, files))}" if files else ""
            return f"A push replaced files that were saved nowhere else{named}."
        case timeline.Pushed(tree=tree):
            where = f" of {_text(tree.get('directory'))}{_commit(tree)}" if tree else ""
            return f"Pushed {_files(event)}{where}: what had changed."
        case timeline.LoggedIn():
            return "Somebody was given a login, to work on the box by hand."
        case timeline.Tracked(job=job, links=links):
            named = ", ".join(link_words(_text(link)) for link in links)
            return f"The log of {_text(job)} names {named or 'no page of a tracker'}."
        case timeline.Executed(command=command):
            return f"A quick look on the box: {_clause(command)}."
        case timeline.SettingUp(job=job, commands=commands):
            return f"The box is being set up by {_text(job)}: {some(len(commands), 'command')}."
        case timeline.SetUp(job=job, state="done", filed=filed, unfiled=unfiled):
            made = f"; on record of what it made: {some(filed, 'file')}" if filed else ""
            return f"The box was set up by {_text(job)}{made}{_unfiled_words(unfiled)}."
        case timeline.SetUp(job=job, why=why):
            because = f": {_clause(why)}" if why else ""
            return f"The box could not be set up by {_text(job)}{because}."
        case timeline.Preparing(job=job):
            return f"An environment is being made by {_text(job)}."
        case timeline.Prepared(state=state, job=job):
            by = f" by {_text(job)}" if job else ""
            what = _MADE.get(state)
            return f"{what}{by}." if what else f"The environment: {_text(state)}{by}."
        case timeline.Guarded(words=words):
            return f"The guard on the box: {_clause(words)}."
        case timeline.Launched(jobs=None, job=job, command=command):
            line = f": {_clause(command)}" if command else ""
            return f"The job {_text(job)} was launched{line}."
        case timeline.Launched(jobs=jobs, sweep=sweep):
            cells = jobs or ()
            return f"{some(len(cells), 'cell')} of {_text(sweep)} went to the box: {_names_words(cells)}."
        case timeline.Together(job=job, leases=leases, launcher=launcher):
            boxes = some(len(leases), "box")
            return f"The job {_text(job)} is one job over {boxes}, begun by {_text(launcher)}."
        case timeline.Progressed():
            return _progress_words(event)
        case timeline.Stopped(job=job, term=str(), words=why):
            asked = f"The job {_text(job)} was stopped with its lease: asked first, and killed after the grace"
            return f"{asked}: {_clause(why)}." if why else f"{asked}."
        case timeline.Stopped(job=job):
            return f"The job {_text(job)} was stopped: asked first, and killed after the grace."
        case timeline.JobEnded(job=job, state=state, why=why):
            because = f": {_clause(why)}" if why else ""
            return f"The job {_text(job)} has ended: {_text(state)}{because}."
        case timeline.Lingers(job=job):
            return f"The command of the job {_text(job)} has ended, and left processes that run on."
        case timeline.AwaitsWork(until=until):
            return (
                f"More work is coming: until {until:%Y-%m-%d %H:%M} UTC, the lease is not ended although "
                "its work is done."
            )
        case timeline.Accepted(sweep=sweep):
            return f"A person accepted what is wrong with {_text(sweep)}."
        case timeline.Done(outcome="refused", words=words):
            return f"Its work is done, but the lease was not ended: {_clause(words)}."
        case timeline.Done(outcome="failed", words=words):
            return f"Its end failed, and is tried again: {_clause(words)}."
        case timeline.Done(words=words):
            return f"Its work is done: {_clause(words)}."
        case timeline.Snapped():
            return _snapshot_words(event)
        case timeline.Claimed(artifacts=kept, discard=lost):
            parts = [f"to be kept, too: {_names_words(kept)}"] if kept else []
            parts += [f"given up by name: {_names_words(lost)}"] if lost else []
            return f"Said after launch: {'; '.join(parts) or 'nothing'}."
        case timeline.Sealed(digest=digest, files=files):
            return f"The box was sealed: {_count(files)} to be kept, seal {_short(digest)}."
        case timeline.Collected(seal=seal):
            return f"Collected: {_files(event)} of seal {_short(seal)} are here."
        case timeline.Stored(store=store, missing=missing):
            lacks = f"; {some(missing, 'file')} could not be stored" if missing else ""
            return f"Stored: {_files(event)} were re-read from {_text(store)}{lacks}."
        case timeline.Reread(digest=digest):
            return f"What is kept was re-read from its storage, against seal {_short(digest)}."
        case timeline.ReadAtStop():
            return "The whole box was read right before its stop: it held nothing that is not kept here."
        case timeline.ReadInNotice():
            return "The whole box was read before its platform took it: it held nothing that is not kept here."
        case timeline.Refused(words=words):
            return f"A teardown was refused: {_clause(words)}."
        case timeline.Waived(by=who, losses=losses):
            what = f": {_names_words(losses)}" if losses else ""
            return f"{_text(who)} signed for the loss of what could not be proved{what}."
        case timeline.WaivedAhead(by=who):
            return f"{_text(who)} signed ahead for what cannot be saved by its end."
        case timeline.Ending(term="teardown"):
            return "A teardown that was cut short is tried again."
        case timeline.Ending(words=words):
            return f"The lease is being ended: {_clause(words)}."
        case timeline.Permitted():
            return _describe_permitted(event)
        case timeline.Unseen(words=words):
            return f"It may have cost less than is counted: {_clause(words)}."
        case timeline.ClockOffset(ahead_s=ahead_s, words=words):
            if words:
                return f"Its cost is uncertain: {_clause(words)}."
            return (
                f"This computer's clock differs from its provider's by {abs(ahead_s) / 60:.0f} min."
            )
        case timeline.Destroyed(outcome=outcome):
            return _OUTCOMES.get(outcome, "Its provider did not say whether it destroys the box.")
        case timeline.Attested(by=who):
            return f"{_text(who)} said that the box was ended in its console."
        case timeline.Receipted(ground=ground):
            on = (ground or "unknown").replace("_", " ")
            return f"The receipt is filed: its provider lists no such box, seen twice. Ground: {_text(on)}."
        case timeline.Ended(state="void"):
            return "It ended without a box: its provider listed none, seen twice."
        case timeline.Ended(state="lost"):
            return "Its provider lists the box no more, seen twice, and nobody here ended it."
        case timeline.Ended(state=state):
            return f"It ended: {_text(state)}."
        case timeline.CameBack():
            return "Its provider lists the box again: it was never gone, and the lease goes on."
        case timeline.Unread(was=was):
            return f"{_text(was)}."


# The sentences of some kinds


def machine_words(seen: timeline.Audited) -> str:
    """Return the GPUs and the driver that an audit saw, in one line."""
    counts = Counter(map(_text, seen.gpus))
    gpus = " and ".join(f"{name} x{count}" for name, count in counts.items()) or "no GPU"
    driver = f", driver {_text(seen.driver)}" if seen.driver else ""
    cuda = f", CUDA up to {_text(seen.cuda)}" if seen.cuda else ""
    return f"{gpus}{driver}{cuda}"


def _unfiled_words(why: str | None) -> str:
    return f"; {_clause(why)}" if why else ""


def _commit(tree: Mapping[str, JsonValue]) -> str:
    """Say in words which commit a pushed tree was at. Empty if unknown."""
    commit = tree.get("commit")
    if not isinstance(commit, str):
        return ""
    is_clean = tree.get("is_clean")
    changed = "" if is_clean else ", with changes that no commit has"
    if is_clean is None:
        changed = ", and whether it was changed since is unknown"
    return f", at commit {_text(commit[:12])}{changed}"


def _describe_recovered(event: timeline.Recovered) -> str:
    lead = (
        f"Its work goes on under {_text(event.by)}"
        if event.of is None
        else f"The work of {_text(event.of)} goes on here"
    )
    parts = []
    if event.trust is not None:
        parts.append(f"its provider calls the host {_text(event.trust)}")
    if event.restored_files:
        parts.append(f"from {some(event.restored_files, 'file')}, {size(event.restored_bytes)}")
    if event.lost_s is not None:
        cost = "" if event.lost_usd is None else f", {_usd(event.lost_usd)}"
        parts.append(f"{span(event.lost_s)} of work are lost{cost}")
    return f"{'; '.join([lead, *parts])}."


def _progress_words(event: timeline.Progressed) -> str:
    lead = f"The job {_text(event.job)}: {_text(event.state)}"
    parts = [] if event.fraction is None else [f"{event.fraction:.0%}"]
    if event.done is not None:
        of = "" if event.total is None else f" of {event.total:g}"
        parts.append(f"{event.done:g}{of or ' done'}")
    return f"{', '.join([lead, *parts])}."


def _snapshot_words(event: timeline.Snapped) -> str:
    what = "Checkpoints that the owner's policy no longer wants"
    if event.pruned_here is not None:
        return f"{what} were removed here: {_names_words(event.pruned_here) or 'none'}."
    if event.prunes_box is not None:
        return f"{what} are to be removed from the box: {_names_words(event.prunes_box) or 'none'}."
    if event.pruned_on_box is not None:
        return f"{what} were removed from the box: {_names_words(event.pruned_on_box) or 'none'}."
    named = f": {_names_words(event.names)}" if event.names else ""
    return f"While it ran, {_files(event)} were copied here{named}."


def _describe_permitted(event: timeline.Permitted) -> str:
    match event.ground:
        case "verified":
            return f"Permission to destroy the box: all was verified, seal {_short(event.seal)}."
        case "never_used":
            return "Permission to destroy the box: it was never used."
        case "waived":
            who = "Somebody" if event.signed_by is None else _text(event.signed_by)
            return f"Permission to destroy the box: {who} signed for the loss."
        case ground:
            return f"Permission to destroy the box: {_text(ground)}."


# The parts of a sentence


def _terms_words(terms: Terms) -> str:
    said = [f"until {terms.deadline_at:%Y-%m-%d %H:%M} UTC"]
    if terms.max_price_usd_h is not None:
        said.append(f"at most {_usd_h(terms.max_price_usd_h)}")
    if terms.budget_usd is not None:
        said.append(f"{_usd(terms.budget_usd)} in all")
    if terms.idle_h is not None:
        does = "told" if terms.when_idle == "alarm" else "ended"
        said.append(f"{does} when idle for {terms.idle_h:g} h")
    if terms.when_done in ("end", "park"):
        does = "parked" if terms.when_done == "park" else "ended"
        said.append(f"{does} when its work is done")
    if terms.store:
        said.append(f"copies go to {_clause(terms.store)} too")
    return ", ".join(said)


def _files(
    event: timeline.Pushed | timeline.Snapped | timeline.Collected | timeline.Stored,
) -> str:
    return f"{_count(event.files)}, {size(event.bytes)}"


def _count(files: int | None) -> str:
    return "an unknown number of files" if files is None else some(files, "file")


def _names_words(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(map(_text, names[:_NAMED])) + more


def _clause(words: str | None) -> str:
    """Return the words without the full stop, for use within a sentence."""
    return _text(words).rstrip(".")


def _short(digest: str | None) -> str:
    return _text(digest)[:12]


def _text(value: object) -> str:
    """Return the value in one line, without invisible or misleading characters."""
    if value is None:
        return "unknown"
    said = " ".join(plain(str(value)).split())
    return said if len(said) <= _LONGEST else f"{said[: _LONGEST - 1]}…"


def _usd(value: object) -> str:
    """Write a sum for a person. From 1 USD on it is rounded to the cent; below, it is exact."""
    try:
        amount = Decimal(str(value))
    except InvalidOperation:
        return "an unknown sum"
    if not amount.is_finite():
        return "an unknown sum"
    return f"{amount:.2f} USD" if abs(amount) >= 1 else f"{amount.normalize():f} USD"


def _usd_h(value: object) -> str:
    return "an unknown rate" if value is None else f"{_usd(value)}/h"


def _when(value: object) -> str:
    try:
        return f"{datetime.fromisoformat(str(value)):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return "an unknown time"
