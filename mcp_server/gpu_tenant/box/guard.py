"""Starts the guard on a box, and records what it will do.

The guard is a process of ours on the box. It stops the jobs at the deadline, and where the box can end its own bill, it
does this as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from gpu_tenant.box.caretaker import QUIET, Guard
from gpu_tenant.box.guard_record import armed_now, record
from gpu_tenant.box.ownership import home_was_emptied, since_ns
from gpu_tenant.box.seal_request import SealFacts, seal_facts
from gpu_tenant.box.session import Session
from gpu_tenant.domain import timeline
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BoxTrouble
from gpu_tenant.domain.last_start import guarded_until
from gpu_tenant.domain.model import Lease, Profile, SlurmAddress
from gpu_tenant.domain.policy import rescue, running_usd_h
from gpu_tenant.domain.ports import Transport
from gpu_tenant.domain.protection import (
    END_GRACE_S,
    LAST_RESORT_S,
    UNSEEN_DONE_S,
    GuardState,
    stop_keeps_work,
    stops_when_done,
    way_out,
)
from gpu_tenant.domain.survival import accounted_paths, kept_by_a_stop, kept_disks, kept_paths
from gpu_tenant.domain.terms import RESCUE_H
from gpu_tenant.domain.untrusted_text import plain
from gpu_tenant.files.skill_files import script
from gpu_tenant.ledger import Ledger

_COPY_S = 7200
"""The guard may take at most this many seconds after the deadline to copy the artifacts to the store."""

_PROVED_FOR = timedelta(minutes=10)

_WALLTIME = "none: the allocation ends at its wall time, and its jobs are told to save before that"
_LACKING = """\
mkdir -p -m 700 "$1" || exit 1
shift
for place do [ -f "$place" ] || echo "$place"; done
"""
_ENDS = {
    "vastai": "the box stops itself with its own key (proved)",
    "runpod": "the pod ends itself with its own key (proved), as its owner has signed",
    "command": "the box switches itself off (proved)",
}


_COPIES = {True: ", copies what they declared to the store", False: ""}


class _Proved(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    ok: bool = False
    armed: bool = False
    why: str = ""
    message: str = ""


async def arm(
    session: Session,
    *,
    ledger: Ledger,
    store: Mapping[str, JsonValue] | None = None,
    proof: Literal["fresh", "recent"] = "fresh",
) -> GuardState:
    """Arm the guard like `arm_again`, but do not raise an error if that fails.

    Then the returned state is "not armed". If a guard was armed before, it is "armed", with the old instructions.
    """
    try:
        return await arm_again(session, ledger=ledger, store=store, proof=proof)
    except BoxTrouble as trouble:
        held = armed_now(session.lease, ledger)
        if held is not None and held.state == "armed":
            # The guard still enforces its earlier instructions, but does not know of later changes.
            words = (
                f"{held.words}; the guard could not be told about later changes: {trouble.message}"
            )
            return held.model_copy(update={"words": words, "has_old_instructions": True})
        armed = GuardState(
            state="not armed", ends_the_meter=False, words=f"not armed: {trouble.message}"
        )
        record(session.lease, armed, ledger=ledger)
        return armed


async def keep_armed(session: Session, *, ledger: Ledger) -> None:
    """Arm the guard like `arm`, but only if none is armed.

    An armed guard may know a store. This call does not know it, so arming again would make the guard lose it.
    """
    said = armed_now(session.lease, ledger)
    if said is None or said.state != "armed":
        await arm(session, ledger=ledger)


async def arm_again(
    session: Session,
    *,
    ledger: Ledger,
    store: Mapping[str, JsonValue] | None = None,
    proof: Literal["fresh", "recent"] = "fresh",
) -> GuardState:
    """Arm the guard on the box, so that it enforces the lease's deadline and its budget, and return its state.

    First test, as far as possible, what the guard will do. `store` is where the guard copies the artifacts at the
    deadline, in the form that `scripts/keep.py` takes. The box keeps it only in memory. With `proof="recent"`, a test
    that succeeded some minutes ago is not repeated.

    Raises:
        BoxTrouble: the guard could not be told; it still enforces its earlier instructions, if there are any.
    """
    lease, transport = session.lease, session.transport
    until = guarded_until(lease, ledger.events(lease.id), ledger.now())
    if isinstance(lease.address, SlurmAddress):
        # Slurm ends a guard together with the step that started it.
        armed = GuardState(state="not armed", ends_the_meter=False, words=_WALLTIME)
        record(lease, armed, ledger=ledger)
        return armed
    way = way_out(session.profile, lease)
    names = ("activity", *(("leave",) if way else ()), *(("keep",) if store else ()))
    scripts = {name: script(f"{name}.py") for name in names}
    places = await bring(
        {name: at for name, at in scripts.items() if at.is_file()}, transport, lease
    )
    proved = proof == "recent" and _was_proved(lease, ledger=ledger)
    refused = await _refusal(way, places, transport) if way and not proved else ""
    unkept = await _store_refusal(store, places, transport) if store else ""
    left_s = (until - ledger.now()).total_seconds()
    request: dict[str, JsonValue] = {
        "deadline": until.timestamp(),
        "left_s": max(0.0, left_s),
        "grace_s": END_GRACE_S,
        "scripts": {**places},
        "notice": {
            "metadata": session.profile.notice_at_metadata,
            "within_s": session.profile.notice_s,
        },
        "tenant": True,
    }
    if ledger.is_rehearsed:
        # In a rehearsal, the guard's clock may jump. This is never set for a rented box.
        request["rehearsed"] = True
    if way and way["on"] == "keep" and stop_keeps_work(session.profile, lease):
        waived = lease.terms.on_deadline == "waive"
        signed = {"waived_after_s": _rescue_s(lease)} if waived else {}
        request["end"] = {**way, **_left_to_others(lease), "look": _look(session, ledger), **signed}
    elif way and way["on"] == "waive":
        request["end"] = {**way, "after_s": _rescue_s(lease)}
    elif way:
        request["end"] = {**way, **_left_to_others(lease)}
    if lease.terms.idle_h is not None and lease.terms.when_idle == "end":
        request["idle_s"] = lease.terms.idle_h * 3600
    when_done = stops_when_done(session.profile, lease) and bool(store) and not unkept + refused
    if when_done:
        request["when_done"] = _when_done(lease, ledger=ledger)
    if store and not unkept:
        request |= {
            "store": {**store},
            "seal": {"work": lease.work_directory, "bring_bytes": ledger.bring_bytes(lease)},
            "copy_s": min(_COPY_S, max(60, _rescue_s(lease))),
        }

    held = await session.caretaker.ask("guard", request, Guard)
    if held.state != "armed":
        raise BoxTrouble(
            f"the guard on the box says that it is {plain(held.state)}",
            remedy=f"{Command('audit', lease.id)} looks at the box",
        )
    armed = GuardState(
        state="armed",
        ends_the_meter=bool(way) and not refused,
        when_done=when_done,
        until=until,
        words=_words(
            lease,
            session.profile,
            way,
            refused,
            until=until,
            copies="" if unkept else _COPIES[bool(store)],
        ),
    )
    if unkept:
        words = f"{armed.words}; the guard cannot write to the store: {unkept}"
        armed = armed.model_copy(update={"words": words, "is_kept_from_store": True})
    record(lease, armed, ledger=ledger)
    return armed


def does_all(armed: GuardState, profile: Profile) -> bool:
    """Whether the guard does all that a guard at this platform can: nobody has to read its words."""
    return (
        armed.state == "armed"
        and (armed.ends_the_meter or profile.kind == "own")
        and not armed.has_old_instructions
        and not armed.is_kept_from_store
    )


def _look(session: Session, ledger: Ledger) -> dict[str, JsonValue]:
    """Return the request by which the guard finds files that a stop would lose, in the caretaker's form."""
    lease, profile = session.lease, session.profile
    kept, given_up = ledger.declarations(lease.id)
    facts = seal_facts(session, ledger)
    told = facts.request()
    look: dict[str, JsonValue] = {
        "work": lease.work_directory,
        "roots": list(accounted_paths(profile, lease)),
        "kept": list(kept_paths(profile, lease)),
        "kept_disks": list(kept_disks(lease)),
        "artifacts": list(kept),
        "discard": list(given_up),
        # Pushed files are in the work directory, which the stop keeps. Files that a setup made may be elsewhere.
        **({"pushed": made} if (made := _outside_of_work(facts)) else {}),
        **{name: told[name] for name in ("since_ns", "ours") if name in told},
    }
    if lease.was_taken_over:
        look["ever"] = True
    rented_ns = since_ns(session, ledger)
    if rented_ns is not None:
        look |= {"rented_ns": rented_ns, "quiet": [f"~/{name}" for name in QUIET]}
    if home_was_emptied(session, ledger):
        look["restarted"] = True
    return look


def _outside_of_work(facts: SealFacts) -> dict[str, JsonValue]:
    """Return the files that were sent to places outside the work directory, with each version's size and hash."""
    return {
        name: [list(version) for version in versions]
        for name, versions in facts.pushed.items()
        if name.startswith("/")
    }


def _left_to_others(lease: Lease) -> dict[str, JsonValue]:
    return {"left_to_others_s": _left_to_others_s(lease)}


def _left_to_others_s(lease: Lease) -> float:
    """Return how many seconds after the deadline the guard waits for a watchdog to end the lease."""
    return min(LAST_RESORT_S, _rescue_s(lease))


def _when_done(lease: Lease, *, ledger: Ledger) -> dict[str, JsonValue]:
    """Return how long after its last job an unwatched box is stopped, in the form that the guard takes."""
    rule = lease.terms.on_failure
    events = ledger.events(lease.id)
    held = [x.until for _, x in events if isinstance(x, timeline.AwaitsWork) and x.by == "said"]
    held_s = (held[-1] - ledger.now()).total_seconds() if held else 0.0
    return {
        "after_s": UNSEEN_DONE_S,
        "failed_s": None if rule.does == "hold" else max(rule.after_s or 0, UNSEEN_DONE_S),
        "not_before_s": max(0.0, held_s),
    }


def _was_proved(lease: Lease, *, ledger: Ledger) -> bool:
    """Whether a test has shown, recently enough, that the box can end its own bill."""
    for at, event in reversed(ledger.events(lease.id)):
        if isinstance(event, timeline.Guarded):
            fresh = ledger.now() - at < _PROVED_FOR
            return fresh and event.ends_the_meter
        if isinstance(event, timeline.WaivedAhead | timeline.Resumed | timeline.Taken):
            return False  # Since the last test, the box was allowed to do more, or was stopped.
    return False


async def bring(scripts: Mapping[str, Path], transport: Transport, lease: Lease) -> dict[str, str]:
    """Put each script on the box, with its hash in the name, unless it is there. Returns the paths.

    Raises:
        BoxTrouble: the directory for scripts cannot be made.
    """
    places = {
        name: f"{lease.scripts_directory}/{name}-{sha256(at.read_bytes()).hexdigest()[:16]}.py"
        for name, at in scripts.items()
    }
    argv = ["sh", "-c", _LACKING, "look", lease.scripts_directory, *places.values()]
    looked = await transport.run(argv, timeout_s=60)
    if looked.exit_status:
        raise BoxTrouble(
            f"a directory could not be made on the box: {plain(looked.stderr.decode(errors='replace'))[-300:]}",
            remedy=f"{Command('audit', lease.id)} looks at its disks",
        )
    lacking = looked.stdout.decode(errors="replace").splitlines()
    for name, place in places.items():
        if place in lacking:
            await transport.put(scripts[name], place, mode=0o700)
    return places


async def _refusal(
    way: Mapping[str, JsonValue], places: Mapping[str, str], transport: Transport
) -> str:
    """Say why the box could not end its own bill now. Empty if it could."""
    asked = {name: value for name, value in way.items() if name != "on"}
    asked["may"] = "terminate" if way["on"] == "waive" else "stop"
    proved = await _prove(places["leave"], asked, transport)
    return "" if proved.armed else _why(proved)


async def _store_refusal(
    store: Mapping[str, JsonValue], places: Mapping[str, str], transport: Transport
) -> str:
    """Say why the box could not write to the store now. Empty if it could."""
    proved = await _prove(places["keep"], {"store": {**store}, "files": []}, transport)
    return "" if proved.ok else _why(proved)


async def _prove(place: str, asked: Mapping[str, JsonValue], transport: Transport) -> _Proved:
    argv = ["python3", "-I", "-S", place, "prove", "--request", "-"]
    finished = await transport.run(argv, stdin=json.dumps(asked).encode(), timeout_s=120)
    lines = finished.stdout.splitlines()
    try:
        return _Proved.model_validate_json(lines[-1] if lines else b"")
    except ValidationError:
        return _Proved(why=f"its test ended with status {finished.exit_status}")


def _why(proved: _Proved) -> str:
    return plain(proved.why or proved.message)[:300] or "the box does not say why"


def _words(
    lease: Lease,
    profile: Profile,
    way: Mapping[str, JsonValue] | None,
    refused: str,
    *,
    until: datetime,
    copies: str,
) -> str:
    spent = ", when the budget pays only for the end," if until < lease.terms.deadline_at else ""
    holds = f"armed: at {until:%Y-%m-%d %H:%M} UTC{spent} it stops the jobs{copies}"
    if way and not refused:
        waits_h = _rescue_s(lease) / 3600 if way["on"] == "waive" else 0
        then = f"then, {waits_h:.1f} h later," if waits_h else "then"
        ends = _ENDS[str(way["kind"])]
        if way["on"] == "keep" and stop_keeps_work(profile, lease):
            kept = " and ".join(kept_by_a_stop(profile))
            ends = f"the box stops itself with its own key (proved), unless a file that is still needed lies outside of {kept}"
        others_s = _left_to_others_s(lease) if way["on"] == "keep" else 0
        late = (
            f"; while a watchdog is still ending the lease, it waits at most {others_s / 60:.0f} min longer"
            if others_s
            else ""
        )
        return f"{holds}, {then} {ends}{late}"
    if profile.kind == "own":
        bills = running_usd_h(lease)
        return f"{holds}; " + (
            f"only the machine's owner can end its bill of {bills} USD/h"
            if bills
            else "nobody bills for this box"
        )
    only = "armed to stop the jobs only: nothing on this box can end the bill"
    return f"{only} ({refused})" if refused else only


def _rescue_s(lease: Lease) -> float:
    """Return for how many seconds after its deadline the box may bill, so that unverified files can be saved."""
    most, usd_h = rescue(lease), running_usd_h(lease)
    return RESCUE_H * 3600 if most is None or not usd_h else float(most / usd_h) * 3600
