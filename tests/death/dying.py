"""A tenant at a rehearsal, killed at some moment of a lease; and what its provider billed from the deadline on."""

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal
from urllib.request import Request, urlopen

from signed import signs

from gpu_tenant import app
from gpu_tenant.box import guard
from gpu_tenant.box.guard import arm
from gpu_tenant.box.guard_record import last_armed
from gpu_tenant.domain.errors import NotReady, TenantError
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.protection import GuardState, Protection, protection
from gpu_tenant.emulators.rehearsal_client import RehearsalClock
from gpu_tenant.emulators.server import Stage
from gpu_tenant.files.skill_files import skill_directory
from gpu_tenant.files.state_dir import Home
from gpu_tenant.jobs import launch
from gpu_tenant.leases.end import ask_ahead
from gpu_tenant.ledger import Ledger
from gpu_tenant.providers.profiles import load_profiles

PROFILES = load_profiles(skill_directory() / "profiles")
When = Literal["before", "after"]
LEFT_S = 6
"""So long before its deadline a box lets its tenant in, about: guards keep real time."""
RENTED_H = 0.2
LOOKED_AT_S = 120
JOB = (
    "trap 'echo done > out/final; exit 0' TERM; mkdir -p out; i=0; while :; do i=$((i+1));"
    " echo checkpoint $i > .new; mv .new out/ckpt-$i; sleep 0.05; done"
)


@dataclass(frozen=True)
class Platform:
    """One way to rent, and what its owner has signed for."""

    provider: str
    signed: str = "keep"

    @property
    def name(self) -> str:
        return self.provider if self.signed == "keep" else f"{self.provider}, signed for"


PLATFORMS = (
    Platform("vastai"),
    Platform("gcp"),
    Platform("autodl"),
    Platform("runpod", "waive"),
    Platform("runpod"),
    Platform("lambda_cloud"),
    Platform("digitalocean"),
)
GUARDED = PLATFORMS[:4]
"""Those whose box ends its own bill."""


@dataclass(frozen=True)
class Death:
    """What came of one."""

    platform: Platform
    died_s: float
    """After the tenant had begun."""
    boxes: int
    armed: bool
    beyond_s: float
    """So long the GPU was billed beyond the deadline, looked at two minutes after it."""
    bills_still: bool
    made: int
    lost: int
    """Files that were complete on the box, and are now neither there nor in the store."""
    named: Protection


def die(
    platform: Platform, directory: Path, seed: int, when: When, left_s: float = LEFT_S
) -> Death:
    """One tenant begins, is killed on the way to its launch or after it, and somebody looks later."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    chance = random.Random(seed)
    with _staged(platform.provider, directory) as (url, environment):
        begun, launched = time.monotonic(), b"!"
        told, tell = os.pipe()
        tenant = os.fork()
        if not tenant:
            try:
                os.close(told)
                _live(platform, {**environment, "HOME": str(directory)}, directory, tell, left_s)
            finally:
                os._exit(1)  # whatever happened: there is one harness, and this is not it
        os.close(tell)
        if when == "before":
            give_up = time.monotonic() + 30
            while not _things(directory) and time.monotonic() < give_up:
                time.sleep(0.02)  # noqa: TID251
            time.sleep(chance.uniform(0, 2.5))  # noqa: TID251
        else:
            launched = os.read(told, 1)
            time.sleep(chance.uniform(0, 2.5))  # noqa: TID251
        os.kill(tenant, signal.SIGKILL)
        os.waitpid(tenant, 0)
        os.close(told)
        died_s = time.monotonic() - begun
        if launched != b"!" and left_s < 100:
            # This computer has much else to do: the deadline passed on the way.
            return die(platform, directory.with_name(f"{directory.name}+"), seed, when, 3 * left_s)
        lease, told_armed = _lease(directory)
        armed = told_armed or any(g["state"] in ("armed", "fired") for g in _guards(directory))
        made = _checkpoints(directory)
        deadline = lease.terms.deadline_at.timestamp() if lease else _now(url) + LEFT_S
        _pass_until(url, directory, deadline)
        boxes = [t for t in _things(directory).values() if t["kind"] == "box"]
        now = _now(url)
        spans = [
            s for box in boxes for s in box["spans"] if s["component"] not in ("disk", "address")
        ]
        beyond_s = sum(max(0.0, (s["until"] or now) - max(s["since"], deadline)) for s in spans)
        found = _checkpoints(directory)
        profile = PROFILES[platform.provider]
        return Death(
            platform,
            died_s,
            len(boxes),
            armed,
            beyond_s,
            any(s["until"] is None for s in spans),
            len(made),
            sum(found.get(name) != content for name, content in made.items()),
            protection(profile, _promised(platform, lease), None),
        )


# --- the tenant ----------------------------------------------------------------------------------


def _live(
    platform: Platform, environ: Mapping[str, str], directory: Path, tell: int, left_s: float
) -> None:
    """This process is the tenant's."""
    said = os.open(directory / "said", os.O_RDWR | os.O_CREAT, 0o600)
    for fd in range(3):
        os.dup2(said, fd)
    kept = {n: v for n, v in os.environ.items() if n in ("PATH", "LANG", "GPU_TENANT_NO_POWEROFF")}
    os.environ.clear()
    os.environ.update({**kept, **environ})
    app._clock = lambda stage: RehearsalClock(str(stage), really_s=0.02)  # type: ignore[assignment]
    if platform.signed == "waive":
        store = {"kind": "directory", "path": str(directory / "store")}
        (directory / "store").mkdir()

        async def arms(*words: Any, **more: Any) -> GuardState:
            """As the program does; a directory stands for the bucket that a box could reach."""
            return await arm(*words, **{**more, "store": store})

        launch.arm = guard.arm = arms
    try:
        asyncio.run(_rents(platform, directory, tell, left_s))
    except Exception:  # noqa: BLE001 - the process ends here, and says why
        traceback.print_exc()


async def _rents(platform: Platform, directory: Path, tell: int, left_s: float) -> None:
    tenancy = app.open_tenancy(os.environ)
    (directory / "tree").mkdir()
    (directory / "tree" / "train.py").write_text("print('hello')\n", encoding="utf-8")
    quote = (await tenancy.find_offers(provider=platform.provider, hours=0.05)).cheapest
    assert quote
    rented = partial(
        tenancy.provision,
        smoke="none",
        quotes=[quote],
        hours=RENTED_H,
        unguarded="accept",
        rescue_usd=Decimal(0) if platform.signed == "waive" else None,
    )
    # No box is rented with a deadline as near as this. So it boots, unseen, until its deadline is near.
    with contextlib.suppress(NotReady):
        await rented(wait_s=1)
    (lease,) = tenancy.ledger.leases()
    left = lease.terms.deadline_at - tenancy.clock.now()
    await tenancy.clock.sleep(max(0.0, left.total_seconds() - left_s))
    await rented(wait_s=900)
    if platform.signed == "waive":
        signature = signs(tenancy, ask_ahead(tenancy.context, lease.id).code, by="its owner")
        tenancy.ledger.sign_ahead(lease.id, signature, at=tenancy.clock.now())
    try:
        await tenancy.push(lease.id, str(directory / "tree"))
        launched = await tenancy.launch_detached(lease.id, JOB, ["out/"], ["./.new"])
        print(launched.guard, flush=True)
        os.write(tell, b"!")
    except TenantError as error:
        print(error, flush=True)
        os.write(tell, b"?")
    await asyncio.Event().wait()


# --- the world meanwhile -------------------------------------------------------------------------


@contextlib.contextmanager
def _staged(provider: str, directory: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The provider, in a process of its own; nothing of it runs when the block has been left."""
    if provider == "gcp":  # once, and not in every process that is forked to die
        import_module("google.cloud.compute_v1")
    answers, says = os.pipe()
    child = os.fork()
    if not child:
        try:
            with Stage(provider, directory / "stage", way="local") as stage:
                os.write(says, json.dumps([stage.url, stage.environment]).encode())
                os.close(says)
                stage.wait()
        finally:
            os._exit(0)
    os.close(says)
    with os.fdopen(answers, "rb") as pipe:
        url, environment = json.loads(pipe.read())
    try:
        yield url, environment
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        _end_all(directory / "stage" / "boxes")


def _end_all(boxes: Path) -> None:
    mark = f"GPU_TENANT_BOX={boxes}/".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if any(v.startswith(mark) for v in (entry / "environ").read_bytes().split(b"\0")):
                os.kill(int(entry.name), signal.SIGKILL)


def _pass_until(url: str, directory: Path, deadline: float) -> None:
    """It is two minutes after the deadline: real ones as long as a guard may be at work."""
    while (now := _now(url)) < deadline + 12:
        boxes = [t for t in _things(directory).values() if t["kind"] == "box"]
        guards = _guards(directory)
        if all(box["phase"] in ("parked", "ended") for box in boxes) or not guards:
            break
        meters = [guard.get("meter", {}) for guard in guards]
        if all(isinstance(meter, str) or meter.get("asked") for meter in meters):
            break  # what is to come is the provider's
        time.sleep(0.25)  # noqa: TID251
    rest_s = deadline + LOOKED_AT_S - now
    if rest_s > 0:
        _ask(url, "clock", {"advance_s": rest_s})
    _ask(url, "meter")


def _ask(url: str, path: str, body: object = None) -> Any:
    sent = None if body is None else json.dumps(body).encode()
    with urlopen(Request(f"{url}/_rehearsal/{path}", sent), timeout=30) as answer:
        return json.load(answer)


def _now(url: str) -> float:
    _ask(url, "meter")  # what is due happens
    return datetime.fromisoformat(_ask(url, "clock")["now"]).timestamp()


def _things(directory: Path) -> dict[str, Any]:
    """The provider's books; empty before anybody asked it for anything."""
    state = directory / "stage" / "state.json"
    return json.loads(state.read_bytes())["things"] if state.exists() else {}


def _lease(directory: Path) -> tuple[Lease | None, bool]:
    """The lease, and whether its guard has said that it ends the meter."""
    file = Home(directory / "stage" / "tenant").ledger
    if not file.exists():
        return None, False
    ledger = Ledger(file)
    try:
        for lease in ledger.leases():
            said = last_armed(lease, ledger)
            return lease, said is not None and said.ends_the_meter
    finally:
        ledger.close()
    return None, False


def _promised(platform: Platform, rented: Lease | None) -> Lease:
    """The lease as it is when it is rented, with what its owner has signed."""
    from arranged import lease

    found = rented or lease(provider=platform.provider)
    terms = found.terms.model_copy(update={"on_deadline": platform.signed})
    return found.model_copy(update={"terms": terms})


def _guards(directory: Path) -> list[dict[str, Any]]:
    """What the guards of its boxes have on record."""
    found = []
    for record in directory.glob("stage/boxes/*/*/gpu-tenant/*/caretaker/guard.json"):
        with contextlib.suppress(OSError, ValueError):
            found.append(json.loads(record.read_bytes()))
    return found


def _checkpoints(directory: Path) -> dict[str, bytes]:
    """Every complete checkpoint, by its name, on the box or in the store."""
    found = {}
    places = ("stage/boxes/*/*/gpu-tenant/*/work/out/ckpt-*", "store/**/work/out/ckpt-*")
    for pattern in reversed(places):
        for path in directory.glob(pattern):
            with contextlib.suppress(FileNotFoundError):
                found[path.name] = path.read_bytes()
    return found
