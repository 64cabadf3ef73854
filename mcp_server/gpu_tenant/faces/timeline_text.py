"""A lease's timeline in sentences for a person, one for each kind of event."""

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal, InvalidOperation

from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.domain.wording import size, some, span
from gpu_tenant.ledger import Event

Detail = Mapping[str, object]

_NAMED = 5
_LONGEST = 300


def told(kind: str, detail: Detail) -> str:
    """That line of the timeline as a sentence. For an unknown kind or detail, as much as can be said."""
    words = _WORDS.get(kind)
    return words(detail) if words else f"{_text(kind)}."


# What each kind says


def _intended(detail: Detail) -> str:
    return f"Written down before there was a box: {_agreed(detail)}."


def _bound(detail: Detail) -> str:
    return f"The box {_of(detail, 'box')} is under this lease, and its meter counts."


def _ready(_: Detail) -> str:
    return "The box let us in."


def _marking(_: Detail) -> str:
    return "The box is to carry this lease's mark."


def _marked(_: Detail) -> str:
    return "The box carries this lease's mark, which tells it from any other."


def _looked(_: Detail) -> str:
    return "The box was looked at: nobody has used it."


def _takes_over(detail: Detail) -> str:
    return f"A person has this lease stand in the place of {_of(detail, 'over')}."


def _brokered(detail: Detail) -> str:
    tool, name = _of(detail, "broker"), _of(detail, "name")
    return f"The box is rented by {tool}, which calls it {name} and ends its bill."


def _parking(detail: Detail) -> str:
    how = "by its own command" if detail.get("how") == "in_box" else "by its owner, in the console"
    return f"The box is to be parked {how}."


def _runs_on(_: Detail) -> str:
    return "The box was to be parked, and runs on."


def _resuming(_: Detail) -> str:
    return "The box is to be started again."


def _parked(_: Detail) -> str:
    return "The box is parked: it does not run, and its disk may bill on."


def _resumed(_: Detail) -> str:
    return "The box was started again, and has yet to let us in."


def _terms(detail: Detail) -> str:
    return f"New terms: {_agreed(detail)}."


def _price(detail: Detail) -> str:
    return f"Its price changed from {_usd_h(detail.get('from'))} to {_usd_h(detail.get('to'))}."


def _billed(detail: Detail) -> str:
    if detail.get("usd") is None:
        return "Its provider was asked for the bill, and does not say."
    by = f", by {_of(detail, 'words')}" if detail.get("words") else ""
    return f"Its provider has billed {_usd(detail['usd'])} until {_when(detail.get('until'))}{by}."


def _notice(detail: Detail) -> str:
    return _sentence(_of(detail, "words"))


def _taken(detail: Detail) -> str:
    if detail.get("fate") is None:
        return "What had taken the box is over: it runs again."
    fate = _FATES.get(str(detail["fate"]), f"The box was taken ({_of(detail, 'fate')})")
    return f"{fate}: {_of(detail, 'words')}." if detail.get("words") else f"{fate}."


def _recovered(detail: Detail) -> str:
    if detail.get("from") is not None:
        lead = f"The work of {_of(detail, 'from')} goes on here"
    else:
        lead = f"Its work goes on under {_of(detail, 'to')}"
    parts = []
    if _number(detail.get("restored_files")):
        files = some(round(_number(detail["restored_files"]) or 0), "file")
        parts.append(f"from {files}, {size(_number(detail.get('restored_bytes')))}")
    if (lost_s := _number(detail.get("lost_s"))) is not None:
        lost_usd = detail.get("lost_usd")
        cost = "" if lost_usd is None else f", {_usd(lost_usd)}"
        parts.append(f"{span(lost_s)} of work are lost{cost}")
    return f"{'; '.join([lead, *parts])}."


def _absent(_: Detail) -> str:
    return "Its provider did not list the box."


def _overwritten(detail: Detail) -> str:
    files = detail.get("files")
    named = f", by name: {', '.join(files)}" if isinstance(files, dict) else ""
    return f"A push replaced what was saved nowhere{named}."


def _pushed(detail: Detail) -> str:
    tree = detail.get("tree")
    where = f" of {_of(tree, 'directory')}" if isinstance(tree, Mapping) else ""
    return f"Pushed {_files(detail)}{where}: what had changed."


def _preparing(detail: Detail) -> str:
    return f"An environment is being made{_by_job(detail)}."


def _prepared(detail: Detail) -> str:
    match detail.get("state"):
        case "ready":
            return f"The environment is ready{_by_job(detail)}."
        case "done":
            return f"All that the environment asks for is installed{_by_job(detail)}."
        case "failed":
            return f"The environment could not be made{_by_job(detail)}."
        case _:
            return f"The environment: {_of(detail, 'state')}{_by_job(detail)}."


def _guarded(detail: Detail) -> str:
    return f"The guard on the box: {_of(detail, 'words')}."


def _launched(detail: Detail) -> str:
    jobs = detail.get("jobs")
    if isinstance(jobs, list):
        return (
            f"{some(len(jobs), 'cell')} of {_of(detail, 'sweep')} went to the box: {_named(jobs)}."
        )
    command = f": {_of(detail, 'command')}" if detail.get("command") else ""
    return f"The job {_of(detail, 'job')} was launched{command}."


def _gang(detail: Detail) -> str:
    leases = detail.get("leases")
    boxes = some(len(leases), "box") if isinstance(leases, list | tuple) else "several boxes"
    return f"The job {_of(detail, 'job')} is one over {boxes}, begun by {_of(detail, 'launcher')}."


def _progress(detail: Detail) -> str:
    lead = f"The job {_of(detail, 'job')}: {_of(detail, 'state')}"
    fraction = _number(detail.get("fraction"))
    done, total = _number(detail.get("done")), _number(detail.get("total"))
    parts = [] if fraction is None else [f"{fraction:.0%}"]
    if done is not None:
        parts.append(f"{done:g} of {total:g}" if total is not None else f"{done:g}")
    return f"{', '.join([lead, *parts])}."


def _stopped(detail: Detail) -> str:
    return f"The job {_of(detail, 'job')} was stopped: asked first, and killed after the grace."


def _job_ended(detail: Detail) -> str:
    why = f": {_of(detail, 'why')}" if detail.get("why") else ""
    return f"The job {_of(detail, 'job')} has ended: {_of(detail, 'state')}{why}."


def _lingers(detail: Detail) -> str:
    return f"The command of the job {_of(detail, 'job')} has ended, and left processes that run on."


def _hold(detail: Detail) -> str:
    return f"More work is coming: not ended for being done before {_when(detail.get('until'))}."


def _accepted(detail: Detail) -> str:
    return f"A person accepted what is wrong with {_of(detail, 'sweep')}."


def _done(detail: Detail) -> str:
    match detail.get("outcome"):
        case "refused":
            return f"Its work is done, and it was not ended for that: {_of(detail, 'words')}."
        case "failed":
            return f"Its end did not come about, and is tried again: {_of(detail, 'words')}."
        case _:
            return f"Its work is done: {_of(detail, 'words')}."


def _snapshot(detail: Detail) -> str:
    for what, words in _PRUNED.items():
        checkpoints = detail.get(what)
        if isinstance(checkpoints, list):
            return f"{words}: {_named(checkpoints) or 'none'}."
    names = detail.get("names")
    named = f": {_named(names)}" if isinstance(names, list) and names else ""
    return f"While it ran, {_files(detail)} were copied here{named}."


def _claimed(detail: Detail) -> str:
    kept, lost = detail.get("artifacts"), detail.get("discard")
    parts = []
    if isinstance(kept, list) and kept:
        parts.append(f"to be kept, too: {_named(kept)}")
    if isinstance(lost, list) and lost:
        parts.append(f"given up by name: {_named(lost)}")
    return f"Said after launch: {'; '.join(parts) or 'nothing'}."


def _sealed(detail: Detail) -> str:
    return f"The box was sealed: {_count(detail, 'files')} to be kept, seal {_short(detail, 'digest')}."


def _collected(detail: Detail) -> str:
    return f"Collected: {_files(detail)} of seal {_short(detail, 'seal')} are here."


def _stored(detail: Detail) -> str:
    missing = round(_number(detail.get("missing")) or 0)
    lacks = f"; {some(missing, 'file')} could not be stored" if missing else ""
    return f"Stored: {_files(detail)} were re-read from {_of(detail, 'store')}{lacks}."


def _verified(detail: Detail) -> str:
    return f"What is kept was re-read from its storage, against seal {_short(detail, 'digest')}."


def _refused(detail: Detail) -> str:
    return f"A teardown was refused: {_of(detail, 'words')}."


def _waived(detail: Detail) -> str:
    losses = detail.get("losses")
    lost = f": {_named(losses)}" if isinstance(losses, list) and losses else ""
    return f"{_who(detail, 'by')} signed for the loss of what could not be proved{lost}."


def _waived_ahead(detail: Detail) -> str:
    return f"{_who(detail, 'by')} signed ahead for what cannot be saved by its end."


def _ending(detail: Detail) -> str:
    if detail.get("term") == "teardown":
        return "A teardown that was cut short is tried again."
    return f"It is being ended: {_of(detail, 'words')}."


def _permitted(detail: Detail) -> str:
    match detail.get("ground"):
        case "verified":
            return f"Leave to destroy the box: all was verified, seal {_short(detail, 'seal')}."
        case "never_used":
            return "Leave to destroy the box: it was never used."
        case "waived":
            return f"Leave to destroy the box: {_who(detail, 'signed_by')} signed for the loss."
        case _:
            return f"Leave to destroy the box: {_of(detail, 'ground')}."


def _unseen(detail: Detail) -> str:
    return f"It may have cost less than is counted: {_of(detail, 'words')}."


def _destroy(detail: Detail) -> str:
    match detail.get("outcome"):
        case "asked":
            return "Its provider was asked to destroy the box."
        case "taken":
            return "Its provider said that it destroys the box."
        case "refused":
            return "Its provider refused to destroy the box."
        case _:
            return "Whether its provider destroys the box was not to be heard."


def _attested(detail: Detail) -> str:
    return f"{_who(detail, 'by')} said that the box was ended in its console."


def _receipt(detail: Detail) -> str:
    ground = str(detail.get("ground", "unknown")).replace("_", " ")
    return f"The receipt is filed: its provider lists no such box, seen twice. Ground: {_text(ground)}."


def _came_back(_: Detail) -> str:
    return "Its provider lists the box again: it was never gone, and the lease goes on."


def _ended(detail: Detail) -> str:
    match detail.get("state"):
        case "void":
            return "It ended without a box: its provider listed none, seen twice."
        case "lost":
            return "Its provider lists the box no more, seen twice, and nobody here ended it."
        case _:
            return f"It ended: {_of(detail, 'state')}."


_FATES = {
    "preempted": "Its provider took the box back",
    "outbid": "Somebody bid more for the box",
    "host_lost": "The box was lost with its host",
    "balance_zero": "The account ran dry, and its provider stopped the box",
    "walltime": "The time that the box was given for is over",
    "stopped_by_provider": "Its provider stopped the box",
}

_PRUNED = {
    "pruned_here": "Checkpoints that the owner's policy no longer wants were removed here",
    "prunes_box": "Checkpoints that the owner's policy no longer wants are to be removed from the box",
    "pruned_on_box": "Checkpoints that the owner's policy no longer wants were removed from the box",
}

_WORDS: dict[str, Callable[[Detail], str]] = {
    Event.INTENDED: _intended,
    Event.BOUND: _bound,
    Event.READY: _ready,
    Event.MARKING: _marking,
    Event.MARKED: _marked,
    Event.LOOKED: _looked,
    Event.TAKES_OVER: _takes_over,
    Event.BROKERED: _brokered,
    Event.PARKING: _parking,
    Event.RUNS_ON: _runs_on,
    Event.PARKED: _parked,
    Event.RESUMING: _resuming,
    Event.RESUMED: _resumed,
    Event.TERMS: _terms,
    Event.PRICE: _price,
    Event.BILLED: _billed,
    Event.NOTICE: _notice,
    Event.TAKEN: _taken,
    Event.RECOVERED: _recovered,
    Event.ABSENT: _absent,
    Event.PUSHED: _pushed,
    Event.OVERWRITTEN: _overwritten,
    Event.PREPARING: _preparing,
    Event.PREPARED: _prepared,
    Event.GUARDED: _guarded,
    Event.LAUNCHED: _launched,
    Event.GANG: _gang,
    Event.PROGRESS: _progress,
    Event.STOPPED: _stopped,
    Event.JOB_ENDED: _job_ended,
    Event.LINGERS: _lingers,
    Event.HOLD: _hold,
    Event.ACCEPTED: _accepted,
    Event.DONE: _done,
    Event.SNAPSHOT: _snapshot,
    Event.CLAIMED: _claimed,
    Event.SEALED: _sealed,
    Event.COLLECTED: _collected,
    Event.STORED: _stored,
    Event.VERIFIED: _verified,
    Event.REFUSED: _refused,
    Event.WAIVED: _waived,
    Event.WAIVED_AHEAD: _waived_ahead,
    Event.ENDING: _ending,
    Event.PERMITTED: _permitted,
    Event.UNSEEN: _unseen,
    Event.DESTROY: _destroy,
    Event.ATTESTED: _attested,
    Event.RECEIPT: _receipt,
    Event.ENDED: _ended,
    Event.CAME_BACK: _came_back,
}


# The parts of a sentence


def _agreed(terms: Detail) -> str:
    said = [f"until {_when(terms.get('deadline_at'))}"]
    if terms.get("max_price_usd_h") is not None:
        said.append(f"at most {_usd_h(terms['max_price_usd_h'])}")
    if terms.get("budget_usd") is not None:
        said.append(f"{_usd(terms['budget_usd'])} in all")
    if (idle_h := _number(terms.get("idle_h"))) is not None:
        does = "told" if terms.get("when_idle") == "alarm" else "ended"
        said.append(f"{does} when idle for {idle_h:g} h")
    if terms.get("when_done") in ("end", "park"):
        said.append(
            f"{'parked' if terms['when_done'] == 'park' else 'ended'} when its work is done"
        )
    if terms.get("store"):
        said.append(f"copies go to {_of(terms, 'store')} too")
    return ", ".join(said)


def _files(detail: Detail) -> str:
    return f"{_count(detail, 'files')}, {size(_number(detail.get('bytes')))}"


def _count(detail: Detail, name: str) -> str:
    number = _number(detail.get(name))
    return "an unknown number of files" if number is None else some(round(number), "file")


def _by_job(detail: Detail) -> str:
    return f" by {_of(detail, 'job')}" if detail.get("job") else ""


def _named(names: list[object]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(_text(name) for name in names[:_NAMED]) + more


def _of(detail: Detail, name: str) -> str:
    value = detail.get(name)
    return "unknown" if value is None else _text(value).rstrip(".")


def _who(detail: Detail, name: str) -> str:
    return "Somebody" if detail.get(name) is None else _of(detail, name)


def _short(detail: Detail, name: str) -> str:
    return _of(detail, name)[:12]


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def _text(value: object) -> str:
    """The value in one line, without characters that could mislead the eye."""
    said = " ".join(plain(str(value)).split())
    return said if len(said) <= _LONGEST else f"{said[: _LONGEST - 1]}…"


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _usd(value: object) -> str:
    """A sum for a person: rounded to the cent from 1 USD up, and exact below."""
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
