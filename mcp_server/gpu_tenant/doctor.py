"""Checks whether this computer is fit for a tenant: state, ledger, key, profiles, tools, boxes."""

import asyncio
import platform
import shlex
import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from pydantic import AwareDatetime, Field

from gpu_tenant import __version__
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import ProviderTrouble, TenantError
from gpu_tenant.domain.fact_life import asks_to_read_again
from gpu_tenant.domain.model import MARK_PREFIX, Box, Profile
from gpu_tenant.domain.ports import Clock, Connector, Funded, Prechecking
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.volumes import VolumeState, sum_usd_h
from gpu_tenant.domain.wording import some
from gpu_tenant.files.installation import extra_line, installed_programs, why_not_started
from gpu_tenant.files.rehearsal_marker import rehearsal_of
from gpu_tenant.files.state_dir import Home
from gpu_tenant.leases.drift_notice import drift_words
from gpu_tenant.leases.passkeys import ways_to_sign
from gpu_tenant.leases.settle import PATIENCE_S
from gpu_tenant.leases.spending_limits import (
    TABLE,
    limits_of,
    signatures_wanted_now,
    since,
    unpriced_leases,
    used_of,
)
from gpu_tenant.leases.watchdog_heartbeat import last_watch_words
from gpu_tenant.ledger import Ledger
from gpu_tenant.notifications.notify import leads_nowhere, read_channels
from gpu_tenant.providers.credentials import find_credential, read_table
from gpu_tenant.providers.drift import DriftFile, read_drift

_TOOLS = {
    "ssh": "you need it to log in to a box by hand",
}
"""What is missing without each of these programs."""


_FACTS_AGE = timedelta(days=90)


class Examined(Record):
    """One thing that was looked at."""

    subject: str
    level: Literal["ok", "warning", "blocker"]
    words: str


class Checkup(Record):
    """Everything that was looked at. `healthy` when nothing blocks."""

    healthy: bool
    findings: tuple[Examined, ...]


class DoctorReport(Record):
    """What a person can send to a maintainer: no key, no name, no address and no path is in it."""

    version: str
    python: str
    system: str
    written_at: AwareDatetime
    findings: tuple[tuple[str, str], ...] = Field(description="each subject with its level")
    drift: tuple[DriftFile, ...]


def report_of(home: Home, checkup: Checkup, *, at: datetime) -> DoctorReport:
    """Return the report: which subjects are well, and what providers answered that is not known."""
    return DoctorReport(
        version=__version__,
        python=sys.version.split()[0],
        system=f"{platform.system()} {platform.machine()}",
        written_at=at,
        # What follows a colon is a word of the owner's, such as the name of a channel.
        findings=tuple((x.subject.partition(":")[0], x.level) for x in checkup.findings),
        drift=read_drift(home.root),
    )


async def examine(
    home: Home,
    *,
    ledger: Ledger,
    profiles: Mapping[str, Profile],
    connectors: Mapping[str, Connector],
    environ: Mapping[str, str],
    patience_s: float = PATIENCE_S,
) -> Checkup:
    """Check everything, and return what was found. Nothing is changed."""
    findings = [_python(), _state(home, ledger), _ledger(home, ledger), _key(home), _agent(environ)]
    findings += [_tool(name, lack) for name, lack in _TOOLS.items()]
    findings += await asyncio.to_thread(_installed, home)
    findings += _channels(home, ledger, environ)
    findings.append(_limits(home, ledger, profiles))
    if rehearsal := rehearsal_of(home.root):
        findings.append(_ok("rehearsal", f"{rehearsal.url}: nothing here is rented"))
    by_hand: list[str] = []
    live = ledger.leases("live")
    to_ask: list[tuple[Profile, str]] = []
    for slug, profile in profiles.items():
        try:
            key = find_credential(profile, home.configuration, environ)
        except TenantError as error:
            findings.append(Examined(subject=slug, level="blocker", words=str(error)))
            continue
        age = ledger.now().date() - profile.checked_on
        if profile.outlived and key is not None:
            words, remedy = asks_to_read_again(profile)
            findings.append(_warning(slug, f"{words}; {remedy}"))
        elif age > _FACTS_AGE and key is not None:
            words = (
                f"we last checked this platform {age.days} days ago: check again what it costs, and what its stop "
                "and delete do"
            )
            findings.append(_warning(slug, words))
        rented = [x.id for x in live if x.provider == slug and not x.goes_by_address]
        if (
            profile.credential is not None
            and key is None
            and (rented or profile.lease == "created")
        ):
            findings.append(_keyless(profile, rented))
        elif profile.lease == "none":
            findings.append(_ok(slug, "a runbook only: it has no box to log in to"))
        elif profile.console is not None and key is None:
            place = f" (its API needs {profile.credential.env[0]})" if profile.credential else ""
            by_hand.append(f"{slug}{place}")
        else:
            source = key.source if key else "needs none"
            to_ask.append((profile, source))
    findings += await _ask_providers(to_ask, connectors, ledger, patience_s)
    findings += [
        _warning(found.provider, f"it {drift_words(found)}")
        for found in read_drift(home.root)
        if found.seen
    ]
    findings.append(
        _ok(
            "consoles",
            f"{', '.join(by_hand)}: rent there by hand, then run {Command('adopt')} to bring the box under a lease",
        )
    )
    findings.append(_watch(home, ledger.clock, rented=any(not x.goes_by_address for x in live)))
    findings += [_ok("signing", words) for words in ways_to_sign(ledger, at=ledger.now())]
    late = [lease.id for lease in live if lease.terms.deadline_at <= ledger.now()]
    findings.append(
        _warning("leases", f"past their deadline: {', '.join(late)}")
        if late
        else _ok("leases", f"{len(live)} live")
    )
    findings.append(_volumes(ledger))
    return Checkup(healthy=all(f.level != "blocker" for f in findings), findings=tuple(findings))


def _python() -> Examined:
    return _ok("python", f"{sys.version.split()[0]} at {sys.executable}")


def _state(home: Home, ledger: Ledger) -> Examined:
    if ledger.is_copy and not ledger.is_salvaged:
        words = f"{home.root} cannot be written, or its disk is full: nothing is recorded"
        return Examined(subject="state", level="blocker", words=words)
    mode = stat.S_IMODE(home.root.stat().st_mode)
    if mode & 0o077:
        return _warning("state", f"{home.root} is open to others: `chmod 700 {home.root}`")
    return _ok("state", f"{home.root}; every agent program (Claude Code, Codex, ...) uses this one")


def _ledger(home: Home, ledger: Ledger) -> Examined:
    if ledger.is_salvaged:
        return _damaged_ledger_lines(home.ledger, ledger)
    try:
        ledger.check()
    except TenantError as error:
        return Examined(subject="ledger", level="blocker", words=str(error))
    return _ok("ledger", f"reads back whole; {some(ledger.count(), 'lease')}")


def _damaged_ledger_lines(path: Path, ledger: Ledger) -> Examined:
    """Say what is left of a damaged ledger, and how it is replaced without losing sight of a box that bills."""
    live = [lease for lease in ledger.leases("live") if lease.box_id is not None]
    named = ", ".join(f"{lease.id} (box {lease.box_id} at {lease.provider})" for lease in live)
    words = (
        f"{path} is damaged, and was left as it is: {some(ledger.count(), 'lease')} of it can be read, "
        f"live ones: {named or 'none, though some may be lost'}; what each provider lists is shown below, and nothing "
        f"is recorded until the ledger is mended. Next: 1. {Command('leases')} shows which boxes may be billing; "
        f"2. end each of them at its provider, or write it down; 3. `cp -p {path} {path}.damaged`; 4. only then put a "
        f"backup in its place: {Command('leases')} then adopts each box of ours that the backup does not know"
    )
    return Examined(subject="ledger", level="blocker", words=words)


def _key(home: Home) -> Examined:
    if not home.client_key.exists():
        return _ok("ssh key", "none yet; it is made when a box is first reached over ssh")
    mode = stat.S_IMODE(home.client_key.stat().st_mode)
    if mode != 0o600:
        return Examined(
            subject="ssh key",
            level="blocker",
            words=f"`chmod 600 {home.client_key}`: others can read it",
        )
    public = home.client_key.with_suffix(".pub")
    return _ok(
        "ssh key",
        f"add this line to a box's authorized_keys: {public.read_text(encoding='utf-8').strip()}",
    )


def _agent(environ: Mapping[str, str]) -> Examined:
    if environ.get("SSH_AUTH_SOCK"):
        return _ok("ssh agent", "its keys are tried too")
    return _ok("ssh agent", "not seen by this process; our own key and your ssh config are used")


def _tool(name: str, lack: str) -> Examined:
    found = shutil.which(name)
    return _ok(name, found) if found else _warning(name, f"not on PATH; {lack}")


def _installed(home: Home) -> list[Examined]:
    """Report whether everything still starts that `gpu-tenant install` wrote into other programs' files."""
    found: list[Examined] = []
    for name, program in installed_programs(home.installed).items():
        subject, shown = f"installed: {name}", shlex.join(program)
        if (why := why_not_started(program)) is None:
            found.append(_ok(subject, f"{shown} starts"))
            continue
        words = (
            f"{shown} does not start: {why}; install gpu-tenant again, and then into {name} again"
        )
        found.append(_warning(subject, words))
    return found


def _limits(home: Home, ledger: Ledger, profiles: Mapping[str, Profile]) -> Examined:
    """Report the owner's overall limits, and how much of each is used."""
    now = ledger.now()
    try:
        limits = limits_of(home.configuration)
        written = read_table(home.configuration, TABLE)
    except TenantError as error:
        return Examined(subject="limits", level="blocker", words=str(error))
    free = {slug for slug, profile in profiles.items() if profile.kind == "own"}
    leases = ledger.leases_since(since(now))
    used = used_of(limits, leases, free=free, now=now)
    told = [use.words for use in used]
    told.append(f"one box up to {limits.box_usd_h:g} USD/h, for {limits.hours:g} h")
    told += signatures_wanted_now(limits).values()
    if not written:
        told.append(
            f"these are the careful defaults: {Command('limits')} at a terminal changes them"
        )
    over = [use.name for use in used if use.used > getattr(limits, use.name)]
    if over:
        return _warning("limits", f"over the limit: {', '.join(over)}; {'; '.join(told)}")
    if unknown := [lease.id for lease in unpriced_leases(leases, free)]:
        words = (
            f"the price of {', '.join(unknown)} is unknown, so no limit in USD includes it: run "
            f"{Command('terms', unknown[0], max_price_usd_h='N')} with the price that the console shows as N; "
        )
        return _warning("limits", words + "; ".join(told))
    return _ok("limits", "; ".join(told))


def _volumes(ledger: Ledger) -> Examined:
    """Report the volumes that bill, as far as the ledger knows. No provider is asked."""
    if ledger.is_salvaged:
        return _warning("volumes", "the ledger is damaged: look in each provider's console")
    volumes = ledger.volumes()
    if not volumes:
        return _ok("volumes", "none of ours is on record")
    now = ledger.now()
    told = "; ".join(f"{volume.words}, {volume.age(now)} old" for volume in volumes)
    words = f"{some(len(volumes), 'volume')} at {sum_usd_h(volumes)} USD/h in all: {told}"
    if open_ends := [v.name for v in volumes if v.state is not VolumeState.ACTIVE]:
        unclear = f"whether {', '.join(open_ends)} exists is unknown: {Command('volumes')} asks the provider"
        return _warning("volumes", f"{unclear}; {words}")
    return _ok("volumes", words)


def _channels(home: Home, ledger: Ledger, environ: Mapping[str, str]) -> list[Examined]:
    """Each channel for alarms, and where its address is kept. Nothing is sent."""
    try:
        channels = read_channels(home.configuration)
    except TenantError as error:
        return [Examined(subject="alarms", level="blocker", words=str(error))]
    if not channels:
        words = f"only {Command('alarms')} shows them: no [notify.NAME] is in {home.configuration}"
        return [_ok("alarms", words)]
    if find_spec("apprise") is None:
        return [_warning("alarms", f"they reach nobody: `{extra_line('notify')}`")]
    failed = {alarm.channel: alarm.words for alarm in ledger.open_alarms()}
    found: list[Examined] = []
    for channel in channels:
        wrong = channel.wrong or leads_nowhere(channel, environ) or failed.get(channel.name)
        quiet = "; in its quiet hours, only urgent ones" if channel.quiet else ""
        words = f"{channel.reference}: sends {channel.least.name.lower()} and worse{quiet}"
        subject = f"alarms: {channel.name}"
        found.append(_warning(subject, wrong) if wrong else _ok(subject, words))
    return found


def _keyless(profile: Profile, rented: Sequence[str]) -> Examined:
    assert profile.credential is not None
    places = " or ".join(profile.credential.env)
    if rented:
        words = f"no key in {places}, and {', '.join(rented)} may be billing there"
        return Examined(subject=profile.id, level="blocker", words=words)
    return _ok(profile.id, f"not set up: no key in {places}; it is not asked for offers")


def _watch(home: Home, clock: Clock, *, rented: object) -> Examined:
    words = last_watch_words(home.watchdog, clock.now())
    hears_all = words.startswith("a watchdog") and "no answer" not in words
    if not rented and not hears_all:
        words = f"nothing is rented that needs one; {words.removeprefix('nobody: ')}"
    return _ok("watchdog", words) if hears_all or not rented else _warning("watchdog", words)


async def _ask_providers(
    providers: Sequence[tuple[Profile, str]],
    connectors: Mapping[str, Connector],
    ledger: Ledger,
    patience_s: float,
) -> list[Examined]:
    """Report what each provider answered. All are asked at once, so that a provider that hangs delays no other."""

    async def ask(one: tuple[Profile, str]) -> Examined:
        profile, source = one
        try:
            async with asyncio.timeout(patience_s):
                return await _provider(profile, connectors[profile.id], ledger, source)
        except TimeoutError:
            words = f"it has not answered within {patience_s:g} s"
        except Exception as error:  # noqa: BLE001 - one provider's surprise must not hide the others
            words = f"its answer was not understood: {error!r}"
        return Examined(subject=profile.id, level="blocker", words=words)

    return list(await asyncio.gather(*map(ask, providers)))


async def _provider(
    profile: Profile, connector: Connector, ledger: Ledger, source: str
) -> Examined:
    try:
        boxes = await connector.list_boxes()
    except ProviderTrouble as error:
        return Examined(subject=profile.id, level="blocker", words=str(error))
    if ledger.is_salvaged:
        return _standing(profile, boxes)
    ours = f"{MARK_PREFIX}{ledger.deployment}:"
    marked = [b for b in boxes if (b.mark or "").startswith(ours)]
    orphans = [b.id for b in marked if not ledger.is_marked(b.mark)]
    if orphans:
        return _warning(
            profile.id,
            f"boxes of ours without a lease: {', '.join(orphans)}; {Command('leases')} adopts them",
        )
    words = f"key: {source}; {some(len(boxes), 'box')} listed"
    if isinstance(connector, Prechecking):
        try:
            missing = await connector.obstacles()
        except TenantError as error:
            return _warning(
                profile.id, f"{words}; whether a box could be reached is unknown: {error}"
            )
        if missing:
            return _warning(profile.id, f"{words}; no box could be reached: {'; '.join(missing)}")
    if isinstance(connector, Funded):
        try:
            balance = await connector.balance()
        except TenantError as error:
            return _warning(profile.id, f"{words}; what the account holds is unknown: {error}")
        holds = "an unknown sum" if balance is None else f"{balance.amount_usd:.2f} USD"
        words = f"{words}; the account holds {holds}"
    return _ok(profile.id, words)


def _standing(profile: Profile, boxes: Sequence[Box]) -> Examined:
    """Report what a provider lists, if the ledger is too damaged to say which boxes are ours.

    Then we do not even know which marks are ours.
    """
    ours = [box.id for box in boxes if (box.mark or "").startswith(MARK_PREFIX)]
    if not ours:
        words = f"{some(len(boxes), 'box')} listed, none with a mark of gpu-tenant's"
        return _ok(profile.id, words)
    words = f"these boxes there carry a mark of gpu-tenant's, and may be billing: {', '.join(ours)}"
    return _warning(profile.id, words)


def _ok(subject: str, words: str) -> Examined:
    return Examined(subject=subject, level="ok", words=words)


def _warning(subject: str, words: str) -> Examined:
    return Examined(subject=subject, level="warning", words=words)
