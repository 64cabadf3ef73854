"""One life of a lease, with what goes wrong in it, drawn by a seed."""

import errno
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

from storm.clients import Client, Ended
from storm.counters import counted
from storm.endings import Endings
from storm.stages import KEYS, Stage, draw

MODES = ("faults", "faults", "faults", "disk", "two", "copy", "clone", "alias", "account", "ends")
"""Drawn evenly; faults and deaths are most of them."""
_VERBS = ("provision", "push", "launch", "monitor", "collect", "teardown")
_TRIES = 4


class Life:
    """A tenant with a new state directory at a stage of others' leavings."""

    def __init__(self, seed: int, stage: Stage, root: Path, mode: str = "") -> None:
        self.seed, self.stage = seed, stage
        self.dice = random.Random(seed)
        drawn = self.dice.choice(MODES)
        self.mode = mode or drawn
        if self.mode == "disk" and os.geteuid() != 0:
            self.mode = "faults"  # only root mounts
        self.root = root
        self.disk = root / "disk"
        self.state = self.disk / "state"
        self.disk.mkdir(parents=True)
        (root / "tree").mkdir()
        (root / "tree" / "README").write_text(f"seed {seed}\n", encoding="utf-8")
        environ = {
            "HOME": str(root),
            "PATH": os.environ["PATH"],
            "GPU_TENANT_HOME": str(self.state),
            "GPU_TENANT_NO_POWEROFF": "1",
            **stage.environ,
        }
        self.client = Client(root, environ)
        self.launched: set[str] = set()
        self.clones: set[str] = set()
        self.faults: list[dict[str, Any]] = []
        self.earlier = root / "earlier"
        self.lease = ""
        self.told: object = None
        """What the last look at everything has answered."""
        self.was_troubled = False
        self.endings = Endings(self)

    def lived(self) -> dict[str, Any]:
        """It was lived to its end, and compared: one line for the record."""
        began = time.monotonic()
        self.stage.ask("reset", {})
        self.stage.calm()
        try:
            if self.mode == "disk":
                self._has_own_disk()
            self.state.mkdir(mode=0o700)
            self.stage.is_rehearsed_in(self.state)
            self._verbs()
            self._settled()
            found = counted(self)
        finally:
            self.client.end_processes()
            if self.disk.is_mount():
                _run("umount", "-l", self.disk)
            self.stage.ask("reset", {})
        return {
            "seed": self.seed,
            "mode": self.mode,
            "provider": self.stage.provider,
            "s": round(time.monotonic() - began, 1),
            "troubled": self.was_troubled,
            **found,
            "faults": self.faults,
            "flags": self.client.flags,
            "log": self.client.log,
        }

    # --- what is on record

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """What the ledger holds; nothing where it cannot be read now."""
        try:
            with closing(
                sqlite3.connect(f"file:{self.state}/ledger.sqlite3?mode=ro", uri=True)
            ) as db:
                db.row_factory = sqlite3.Row
                return [dict(row) for row in db.execute(sql)]
        except sqlite3.Error:
            return []

    def live(self) -> list[dict[str, Any]]:
        """The leases that are open."""
        return self.rows(
            "SELECT * FROM leases WHERE state IN ('intended','active','terminating')"
            " AND provider <> 'own' ORDER BY created_at"
        )

    def content(self) -> bytes:
        """What the job of this life writes."""
        return random.Random(self.seed).randbytes(50_000)

    # --- the verbs, in order

    def _verbs(self) -> None:
        dice, client = self.dice, self.client
        plan: dict[int, list[dict[str, Any]]] = {}
        for _ in range(dice.randint(2, 4) if self.mode == "faults" else dice.randint(0, 1)):
            fault = draw(self.stage.provider, dice)
            self.faults.append(fault)
            plan.setdefault(dice.choice([0, 0, 1, 2, 3, 4, 5, 5]), []).append(fault)
        kills = {
            dice.choice([0, 0, 1, 2, 4, 5, 5]): dice.uniform(0.02, 3.0)
            for _ in range(2 if self.mode == "faults" and dice.random() < 0.7 else 0)
        }
        trouble_at = dice.randint(1, 5)
        verbs = _VERBS
        if self.mode == "ends":
            # Some boxes are never used, and some stand between their work and its collect.
            verbs, plan = _VERBS[: dice.choice([1, 4, 4, 4, 5])], {}
        for place, verb in enumerate(verbs):
            self.stage.strike(*plan.get(place, []))
            for attempt in range(_TRIES):
                if attempt:
                    self.stage.later(dice.choice([30, 120, 400]))
                    client.ask("leases")
                live = self.live()
                if place and not live:
                    return
                if live and self.lease not in {row["id"] for row in live}:
                    self.lease = live[-1]["id"]
                lease = self.lease if live else ""
                said = self._said(verb, lease)
                if said is None:
                    continue
                if verb == "launch":
                    self.launched.add(lease)
                is_troubled = place == trouble_at and not attempt
                with self._trouble(verb if is_troubled else "", lease):
                    if self.mode == "two" and not attempt:
                        is_same = verb == "provision" or dice.random() < 0.6
                        pair = [said, said if is_same else ["collect", lease]]
                        ended, apart = client.at_once(pair, dice.uniform(0, 0.4))
                        self.was_troubled |= apart
                    elif self.mode == "disk" and is_troubled:
                        ended = self._on_a_bad_disk(said)
                    else:
                        ended = client.ask(*said, kill_after_s=kills.pop(place, None))
                answer = ended.answer if isinstance(ended.answer, dict) else {}
                if ended.status == 0 and not (
                    verb == "monitor" and answer.get("state") == "running"
                ):
                    break

    def _said(self, verb: str, lease: str) -> list[str] | None:
        """The words of that verb; None where there is nothing to say."""
        if verb == "provision":
            if any(row["state"] == "active" for row in self.live()):
                return ["leases"]
            offers = self.client.ask("offers", "--hours", "2", "--limit", "10").answer or {}
            found = offers.get("offers", [])[:2]
            quotes = [offer["quote"] for offer in found]
            named = [word for quote in quotes for word in ("--quote", quote)]
            more = ["--smoke", "none", "--unguarded", "accept"]
            usd_h = max((Decimal(offer["running_usd_h"]) for offer in found), default=Decimal(1))
            more += self.endings.terms(usd_h) if self.mode == "ends" else ["--budget-usd", "20"]
            return ["provision", *named, *more] if quotes else None
        if verb == "push":
            return ["push", str(self.root / "tree"), lease]
        if verb == "launch":
            code = (
                "import random; open('out/b.bin', 'wb')"
                f".write(random.Random({self.seed}).randbytes(50000))"
            )
            job = f'mkdir -p out && python3 -c "{code}"'
            return ["launch", lease, "--name", "job1", "--artifact", "out/", "--", job]
        if verb == "monitor":
            return ["monitor", lease, "--wait-s", "10"]
        return [verb, lease]

    @contextmanager
    def _trouble(self, verb: str, lease: str) -> Iterator[None]:
        """What this life's mode brings, while a verb is under way."""
        if not verb:
            if self.mode == "copy" and not self.earlier.exists() and self.live():
                shutil.copytree(self.state, self.earlier, ignore=_NO_SOCKETS)
            yield
        elif self.mode == "account":
            key = KEYS[self.stage.provider]
            was = self.client.environ
            self.client.environ = {**was, key: "rehearsal-of-another-account"}
            self.client.ask("leases")
            self.client.ask("watchdog", "--once")
            yield
            self.client.environ = was
            self.was_troubled = True
        else:
            if self.mode == "clone":
                self._cloned()
            elif self.mode == "alias":
                self._aliased(lease)
            elif self.mode == "copy" and self.earlier.exists():
                # A second computer that has the ledger of an earlier moment.
                old = {"GPU_TENANT_HOME": str(self.earlier)}
                self.client.ask(self.dice.choice(["teardown", "park"]), lease, environ=old)
                self.client.ask("watchdog", "--once", environ=old)
                self.was_troubled = True
            yield

    def _has_own_disk(self) -> None:
        """The state directory will lie on a small disk: one in memory is no place that a job's files are kept in."""
        image = self.root / "disk.img"
        with image.open("wb") as into:
            into.truncate(32 << 20)
        # In blocks of 4 KiB, as disks have: in smaller ones a full disk is a SIGBUS in the memory that SQLite shares.
        _run("mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", image)
        _run("mount", "-o", "loop", image, self.disk)

    def _on_a_bad_disk(self, said: list[str]) -> Ended:
        """The verb met a disk that takes nothing, from its beginning or on its way."""
        begun = self.client.begin(*said) if self.dice.random() < 0.5 else None
        if begun:
            time.sleep(self.dice.uniform(0, 1.5))  # noqa: TID251 - it is on its way
        with self._bad_disk():
            ended = self.client.end(begun) if begun else self.client.ask(*said)
            self.client.ask("leases")
        return ended

    def _takes_nothing(self, error: int) -> bool:
        tried = self.state / ".tried"
        try:
            tried.write_bytes(bytes(1 << 16))
        except OSError as met:
            return met.errno == error
        tried.unlink()
        return False

    @contextmanager
    def _bad_disk(self) -> Iterator[None]:
        filler = self.state / ".filler"
        is_full = self.dice.random() < 0.5
        if not is_full:
            # Over itself, and read-only: programs that have it open do not keep that from happening.
            _run("mount", "--bind", self.state, self.state)
            _run("mount", "-o", "remount,ro,bind", self.state)
        self.client.log.append({"disk": "full" if is_full else "read-only"})
        try:
            # A verb that is on its way may free what it had: then the disk is filled again.
            for _ in range(20):
                if is_full:
                    with suppress(OSError), filler.open("ab", buffering=0) as into:
                        while True:
                            into.write(bytes(1 << 16))
                if self._takes_nothing(errno.ENOSPC if is_full else errno.EROFS):
                    break
            else:
                raise RuntimeError("the disk was to take nothing, and does")
            self.was_troubled = True
            yield
        finally:
            if is_full:
                filler.unlink(missing_ok=True)
            else:
                _run("umount", "-l", self.state)
            (self.state / ".tried").unlink(missing_ok=True)

    def _cloned(self) -> None:
        made = self.stage.clone()
        self.client.log.append({"clone": made})
        if made is None:
            return
        self.stage.later(300)  # it is up by then
        disk = self.stage.disk_of(made)
        self.client.log.append({"worked by hand on": str(disk)})
        if disk is not None:
            (disk / "mine").mkdir(exist_ok=True)
            work = disk / "mine" / "model.pt"
            work.write_bytes(b"worked by hand")
            self.client.log.append({"changed_ns": work.stat().st_ctime_ns})
            self.clones.add(made)
            self.was_troubled = True
        for _ in range(2):
            self.stage.later(300)
            self.client.ask("watchdog", "--once")

    def _aliased(self, lease: str) -> None:
        """Somebody takes the box by its address; refused or not, the lease's end does not take their work."""
        row = next((row for row in self.live() if row["id"] == lease), None)
        target = json.loads(row["address"] or "{}").get("target") if row else None
        disk = self.stage.disk_of(row["box_id"]) if row else None
        if not target or disk is None:
            return
        really = self.stage.ask("routes").get(target, {}).get("target", target)
        said = self.client.ask("adopt", really, "--hours", "2")
        other = said.answer.get("lease") if isinstance(said.answer, dict) else None
        theirs = disk / "theirs"
        if other is None:
            theirs.mkdir()
            (theirs / "model.pt").write_bytes(b"worked by hand")
        else:
            self.client.ask(
                "launch",
                other,
                "--artifact",
                "out/",
                "--",
                "mkdir -p out; head -c 1000 /dev/urandom >out/theirs; sleep 60",
            )
        ended = self.client.ask("teardown", lease)
        self.was_troubled = True
        if ended.status == 0:
            self.client.flags.append(("destroyed under an alias", {"lease": lease, "alias": other}))
        if other is None:
            shutil.rmtree(theirs, ignore_errors=True)
            return
        self.client.ask("stop", other, "--grace-s", "0")
        self.client.ask("collect", other)
        self.client.ask("teardown", other)

    # --- its end

    def _settled(self) -> None:
        """What can end has ended: by hand, then by the watchdog past its deadline."""
        if self.mode == "ends":
            self.endings.troubled()
            self.endings.ended()
            self.told = self.client.ask("leases").answer
            return
        self.stage.calm()
        self.stage.later(600)
        for attempt in range(4):
            self.client.ask("leases")
            live = self.live()
            # What was done by hand on a clone keeps it, however often its end is asked for.
            if not live or (attempt and all(row["box_id"] in self.clones for row in live)):
                break
            for row in live:
                if row["touched_at"]:
                    self.client.ask("collect", row["id"])
                self.client.ask("teardown", row["id"])
            self.stage.later(120)
        if self.live():
            self.stage.later(3 * 3600)
            for _ in range(3):
                self.client.ask("watchdog", "--once")
                self.stage.later(1800)
        self.stage.later(900)
        self.told = self.client.ask("leases").answer


def _run(*said: object) -> None:
    subprocess.run([*map(str, said)], check=True, capture_output=True, timeout=60)


def _NO_SOCKETS(directory: str, names: list[str]) -> set[str]:
    return {name for name in names if re.search(r"\.sock$|^cm-", name)}
