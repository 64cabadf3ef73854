"""Audits a box before it is used: a script, the probe, observes on the box, and this computer judges what it saw."""

import json
import os
import re
from collections.abc import AsyncIterator
from time import monotonic
from typing import Literal

from gpu_tenant.box.audit import Audit, Needs, no_python
from gpu_tenant.box.audit import audit as judged
from gpu_tenant.box.audit.burn_checks import judge_burnt, read_burnt
from gpu_tenant.box.audit.checks import worst_first
from gpu_tenant.box.audit.findings import Finding, Rented, ok, warning
from gpu_tenant.box.session import Session
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BoxTrouble, BoxUnreachable
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.ports import Clock
from gpu_tenant.domain.survival import reached_path
from gpu_tenant.domain.waiting import wait_for
from gpu_tenant.files.skill_files import script

_PROBE_WITHIN_S = 60
# With -I -S, Python does not import modules from the login directory, such as a `json.py` there.
_ISOLATED = ("python3", "-I", "-S", "-")
_HOME_S, _HOME_BYTES = 6.0, 4_000_000
_ANSWER_S = 3.0
"""This many seconds are reserved for the start and the answer of the load, besides the load itself."""
_LEAST_LOAD_S = 10.0
_NOT_PAID_FOR = re.compile(
    r"rented gpus|burn (gpu|link) .*|gpu \d+ (card|size|ecc|xid .*)"
).fullmatch
"""Matches the subjects of findings that show a box which is not what was paid for.

Faults that only matter for the job are not among them.
"""

REACHED_FOR = ("package-index", "huggingface.co")
"""The package index and the model hub: the sites that jobs most often need."""


class Audited(Audit):
    """The result of an audit of one lease's box."""

    lease: str
    next: str


async def audit(
    session: Session,
    needs: Needs,
    *,
    clock: Clock,
    burn_s: float = 0,
    lease_is: Literal["real", "rehearsed"] = "real",
) -> Audited:
    """Audit the box for a job with those needs. Nothing on the box is changed.

    With `burn_s`, its GPUs are also tested under load. The whole audit then takes at most this many seconds.

    Raises:
        BoxUnreachable: the box did not answer.
        BoxTrouble: the probe ran, but gave no observation.
    """
    lease = session.lease
    asked_at = clock.now()
    argv = [*_ISOLATED, "--reach", *REACHED_FOR]
    caps = {
        reached_path(place.path, lease.place): place.inode_cap
        for place in session.profile.places
        if place.path != "/"
    }
    # If the lease's directory is outside the home directory, the job uses another disk than the home directory's.
    argv += ["--work", lease.work_directory] if lease.place and lease.place.at else []
    argv += ["--place", *caps] if caps else []
    argv += ["--count", *(path for path, cap in caps.items() if cap)]
    wait_for(
        f"the box of {lease.id} looks at itself",
        ends=f"{_PROBE_WITHIN_S:g} s",
        usd_h=lease.price_usd_h,
    )
    finished = await session.transport.run(
        argv, stdin=script("probe.py").read_bytes(), timeout_s=_PROBE_WITHIN_S
    )
    answered_at = clock.now()
    if finished.exit_status == 127:
        blind = {"gpus": (), "driver": None, "cuda": None, "cpus": None, "ram_gib": None}
        return _answer(
            lease,
            Audit.model_validate(
                {
                    **blind,
                    "disk_free_gib": None,
                    "findings": (no_python(),),
                    "blockers": 1,
                    "warnings": 0,
                }
            ),
        )
    try:
        # The observation is the last line. A login script may have printed lines before it.
        observed = json.loads(finished.stdout.splitlines()[-1])
    except (IndexError, ValueError, RecursionError):
        observed = None
    if not isinstance(observed, dict):
        raise BoxTrouble(
            f"the probe ended with status {finished.exit_status} and no observation",
            remedy=f"look at the box yourself, then {Command('audit', lease.id)} again",
        )
    rented = _rented_gpu(lease)
    audit = judged(
        observed,
        needs=needs,
        caps=caps,
        rented=rented,
        asked_at=asked_at,
        answered_at=answered_at,
    )
    if not burn_s:
        return _answer(lease, audit)
    left_s = burn_s - (answered_at - asked_at).total_seconds()
    found = [*await _burn(session, rented, left_s, lease_is), *audit.findings]
    return _answer(
        lease,
        audit.model_copy(
            update={
                "findings": worst_first(found),
                "blockers": sum(finding.level == "blocker" for finding in found),
                "warnings": sum(finding.level == "warning" for finding in found),
            }
        ),
    )


async def _burn(
    session: Session, rented: Rented | None, left_s: float, lease_is: Literal["real", "rehearsed"]
) -> list[Finding]:
    """Test the GPUs under load, and the link between the box and this computer, within `left_s` seconds."""
    load_s = left_s - _HOME_S - _ANSWER_S
    if load_s < _LEAST_LOAD_S:
        seen = f"not measured: {max(left_s, 0):.0f} s were left after the look"
        return [warning("burn", seen, "nothing is known of its speed: it did not pass")]
    lease = session.lease
    wait_for(f"the GPUs of {lease.id} work", ends=f"{left_s:.0f} s", usd_h=lease.price_usd_h)
    home = [finding async for finding in _way_home(session)]
    argv = [*_ISOLATED, "--seconds", f"{load_s:.1f}"]
    try:
        finished = await session.transport.run(
            argv, stdin=script("burn.py").read_bytes(), timeout_s=load_s + _ANSWER_S
        )
        answer = json.loads(finished.stdout.splitlines()[-1])
    except BoxUnreachable as silent:
        answer = {"error": silent.message}
    except (IndexError, ValueError, RecursionError):
        answer = {"error": f"the load ended with status {finished.exit_status} and no figures"}
    judged_load = judge_burnt(read_burnt(answer), rented, lease_is=lease_is)
    return [*judged_load, *home]


async def _way_home(session: Session) -> AsyncIterator[Finding]:
    """Measure how fast bytes go to the box and come back. There is only a warning if a transfer is very slow.

    A lower speed is never a fault of the box, because it also depends on this computer's own link.
    """
    ways = (
        ("to the box", ["sh", "-c", "cat >/dev/null"], os.urandom(_HOME_BYTES)),
        ("from the box", ["head", "-c", str(_HOME_BYTES), "/dev/urandom"], b""),
    )
    for way, argv, sent in ways:
        began = monotonic()
        try:
            await session.transport.run(argv, stdin=sent, timeout_s=_HOME_S / 2)
        except BoxUnreachable:
            seen = f"less than {_HOME_BYTES / 1e6 / (_HOME_S / 2):.2g} MB/s"
            yield warning(f"link {way}", seen, "what is pushed and collected will take long")
        else:
            yield ok(f"link {way}", f"{_HOME_BYTES / 1e6 / (monotonic() - began):.3g} MB/s")


def _rented_gpu(lease: Lease) -> Rented | None:
    """Return the GPUs that were paid for. None if the box was not rented by a quote, or has no GPU."""
    if lease.quote is None or lease.quote.offer.gpu_count < 1:
        return None
    offer = lease.quote.offer
    return Rented(gpu=offer.gpu, count=offer.gpu_count, vram_gib=offer.vram_gib)


def _next_step(lease: Lease, audit: Audit) -> str:
    if not audit.blockers:
        return str(Command("push", "DIR", lease.id))
    if lease.quote is None:
        return "remove the blockers before anything is launched on this box, or take another box"
    back = Command("teardown", lease.id)
    faults = [finding.subject for finding in audit.findings if finding.level == "blocker"]
    lies = any(map(_NOT_PAID_FOR, faults)) or not audit.gpus
    if lies and lease.touched_at is None:
        return f"this box is not what was paid for: {back} gives it back unused; then {Command('offers')}"
    if lease.touched_at is None:
        return f"remove the blockers, or give the box back unused: {back}, then {Command('offers')}"
    return f"remove the blockers, or keep what is on the box and give it back: {Command('collect', lease.id)}, then {back}"


def _answer(lease: Lease, audit: Audit) -> Audited:
    step = _next_step(lease, audit)
    return Audited.model_validate({**dict(audit), "lease": lease.id, "next": step})
