"""One life of a lease, with what goes wrong in it, drawn by a seed."""

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
from pathlib import Path
from typing import Any

from storm.clients import Client
from storm.counters import counted
from storm.stages import KEYS, Stage, draw

MODES = ("faults", "faults", "faults", "disk", "two", "copy", "clone", "alias", "account")
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
        self.root = root
        self.state = root / "state"
        (root / "tree").mkdir(parents=True)
        (root / "tree" / "README").write_text(f"seed {seed}\n", encoding="utf-8")
        self.state.mkdir(mode=0o700)
        environ = {
            "HOME": str(root), "PATH": os.environ["PATH"], "GPU_TENANT_HOME": str(self.state),
            "GPU_TENANT_NO_POWEROFF": "1", **stage.environ,
        }  # fmt: skip
        self.client = Client(root, environ)
        self.launched: set[str] = set()
        self.clones: set[str] = set()
        self.faults: list[dict[str, Any]] = []
        self.is_mounted = False
        self.earlier = root / "earlier"

    def lived(self) -> dict[str, Any]:
        """It was lived to its end, and compared: one line for the record."""
        began = time.monotonic()
        self.stage.ask("reset", {})
        self.stage.calm()
        try:
            if self.mode == "disk":
                size = ["-o", "size=24m,mode=700"]
                mounted = subprocess.run(
                    ["mount", "-t", "tmpfs", *size, "tmpfs", str(self.state)],
                    check=False, capture_output=True,
                )  # fmt: skip
                self.is_mounted = mounted.returncode == 0
            self.stage.is_rehearsed_in(self.state)
            self._verbs()
            self._settled()
            found = counted(self)
        finally:
            self.client.end_processes()
            if self.is_mounted:
                subprocess.run(["umount", "-l", str(self.state)], check=False, capture_output=True)
            self.stage.ask("reset", {})
        return {
            "seed": self.seed, "mode": self.mode, "provider": self.stage.provider,
            "s": round(time.monotonic() - began, 1), **found, "faults": self.faults,
            "flags": self.client.flags, "log": self.client.log,
        }  # fmt: skip

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
        for place, verb in enumerate(_VERBS):
            self.stage.strike(*plan.get(place, []))
            for attempt in range(_TRIES):
                if attempt:
                    self.stage.later(dice.choice([30, 120, 400]))
                    client.ask("leases")
                live = self.live()
                if place and not live:
                    return
                lease = live[-1]["id"] if live else ""
                said = self._said(verb, lease)
                if said is None:
                    continue
                if verb == "launch":
                    self.launched.add(lease)
                with self._trouble(verb if place == trouble_at and not attempt else "", lease):
                    if self.mode == "two" and verb != "provision" and not attempt:
                        other = [verb if dice.random() < 0.6 else "collect", lease]
                        pair = [said, said if other[0] == verb else other]
                        ended = client.at_once(pair, dice.uniform(0, 0.8))[0]
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
            quotes = [offer["quote"] for offer in offers.get("offers", [])][:2]
            named = [word for quote in quotes for word in ("--quote", quote)]
            more = ["--smoke", "none", "--budget-usd", "20", "--unguarded", "accept"]
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
        elif self.mode == "disk" and self.is_mounted:
            with self._bad_disk():
                yield
        elif self.mode == "account":
            key = KEYS[self.stage.provider]
            was = self.client.environ
            self.client.environ = {**was, key: "another-account"}
            self.client.ask("leases")
            self.client.ask("watchdog", "--once")
            yield
            self.client.environ = was
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
            yield

    @contextmanager
    def _bad_disk(self) -> Iterator[None]:
        filler = self.state / ".filler"
        is_full = self.dice.random() < 0.5
        if is_full:
            with suppress(OSError), filler.open("wb", buffering=0) as into:
                while True:
                    into.write(bytes(1 << 16))
        else:
            # Over itself, and read-only: programs that have it open do not keep that from happening.
            _mount("--bind", self.state, self.state)
            _mount("-o", "remount,ro,bind", self.state)
        self.client.log.append({"disk": "full" if is_full else "read-only"})
        try:
            yield
            self.client.ask("leases")
        finally:
            if is_full:
                filler.unlink(missing_ok=True)
            else:
                subprocess.run(["umount", str(self.state)], check=False, capture_output=True)

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
        for _ in range(2):
            self.stage.later(300)
            self.client.ask("watchdog", "--once")

    def _aliased(self, lease: str) -> None:
        address = next((row["address"] for row in self.live() if row["id"] == lease), None)
        target = json.loads(address or "{}").get("target")
        if not target:
            return
        routes = self.stage.ask("routes")
        really = routes.get(target, {}).get("target", target)
        said = self.client.ask("provision", "own", really, "--hours", "2", "--smoke", "none")
        other = (said.answer or {}).get("lease") if isinstance(said.answer, dict) else None
        if other is None:
            return
        self.client.ask(
            "launch", other, "--artifact", "out/", "--",
            "mkdir -p out; head -c 1000 /dev/urandom >out/theirs; sleep 60",
        )  # fmt: skip
        ended = self.client.ask("teardown", lease)
        if ended.status == 0:
            self.client.flags.append(("destroyed under an alias", {"lease": lease, "alias": other}))
        self.client.ask("stop", other, "--grace-s", "0")
        self.client.ask("collect", other)
        self.client.ask("teardown", other)

    # --- its end

    def _settled(self) -> None:
        """What can end has ended: by hand, then by the watchdog past its deadline."""
        self.stage.calm()
        self.stage.later(600)
        for _ in range(4):
            self.client.ask("leases")
            live = self.live()
            if not live:
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
        self.client.ask("leases")


def _mount(*said: object) -> None:
    subprocess.run(["mount", *map(str, said)], check=False, capture_output=True)


def _NO_SOCKETS(directory: str, names: list[str]) -> set[str]:
    return {name for name in names if re.search(r"\.sock$|^cm-", name)}
