"""One rehearsal of a provider in a process of its own, and what can go wrong at it."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from gpu_tenant.files.rehearsal_marker import Rehearsal, put_rehearsal

PLACES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "vastai": {
        "create": ("PUT", r"/api/v0/asks/"),
        "delete": ("DELETE", r"/api/v0/instances/"),
        "list": ("GET", r"/api/v1/instances/"),
    },
    "runpod": {
        "create": ("POST", r"/v2/pods$"),
        "delete": ("DELETE", r"/v2/pods/"),
        "list": ("GET", r"/v2/pods$"),
    },
    "lambda_cloud": {
        "create": ("POST", r"/launch$"),
        "delete": ("POST", r"/terminate$"),
        "list": ("GET", r"/instances$"),
    },
    "digitalocean": {
        "create": ("POST", r"/v2/droplets$"),
        "delete": ("DELETE", r"/v2/droplets"),
        "list": ("GET", r"/v2/droplets$"),
    },
    "gcp": {
        "create": ("POST", r"/instances$"),
        "delete": ("DELETE", r"/instances/"),
        "list": ("GET", r"/aggregated/instances"),
    },
    "autodl": {
        "create": ("POST", r"/pro/create$"),
        "delete": ("POST", r"/pro/release$"),
        "list": ("POST", r"/pro/list$"),
    },
}
"""Where each provider makes, ends and lists boxes."""
_AT_A_REQUEST = {
    "vastai": {
        "no_capacity": "create",
        "created_despite_error": "create",
        "soft_failure": "delete",
        "auth_404": "any",
    },
    "runpod": {"no_capacity": "create", "created_despite_error": "create", "page_boundary": "list"},
    "lambda_cloud": {
        "no_capacity": "create",
        "created_despite_error": "create",
        "soft_failure": "delete",
    },
    "digitalocean": {"no_capacity": "create", "no_quota": "create", "page_boundary": "list"},
    "gcp": {
        "no_capacity": "create",
        "soft_failure": "delete",
        "rate_limit": "any",
        "partial_list": "list",
    },
    "autodl": {
        "no_capacity": "create",
        "created_despite_error": "create",
        "soft_failure": "delete",
        "page_boundary": "list",
        "no_snapshot": "any",
    },
}
_TO_THE_WORLD = {
    "vastai": "price_moved stuck_termination unknown_status preempted outbid exited list_lag foreign_box",
    "runpod": "price_moved stuck_termination unknown_status container_exits list_lag foreign_box",
    "lambda_cloud": "price_moved stuck_termination terminate_unavailable unknown_status list_lag foreign_box",
    "digitalocean": "price_moved stuck_termination unknown_status list_lag foreign_box snapshot",
    "gcp": "stuck_termination preempted unknown_status list_lag foreign_box",
    "autodl": "stuck_termination unknown_status list_lag foreign_box",
}
_SECONDS = {
    "late": (5, 60, 400),
    "delay": (1, 5, 20),
    "list_lag": (20, 60, 120),
    "outbid": (0, 120, 1200),
    "preempted": (0, 120, 1200),
    "terminate_unavailable": (60, 600),
}
KEYS = {
    "vastai": "VAST_API_KEY",
    "runpod": "RUNPOD_API_KEY",
    "lambda_cloud": "LAMBDA_API_KEY",
    "digitalocean": "DIGITALOCEAN_TOKEN",
    "gcp": "GPU_TENANT_GCP_PROJECT",
    "autodl": "AUTODL_TOKEN",
}
_SWITCHES: Mapping[str, tuple[str, str, Mapping[str, object], Mapping[str, object]]] = {
    "vastai": ("PUT", "/api/v0/instances/{box}/", {"state": "running"}, {"state": "stopped"}),
    "runpod": ("POST", "/v2/pods/{box}/action", {"action": "start"}, {"action": "stop"}),
    "gcp": ("POST", "/compute/v1/projects/{project}/zones/{box}/{how}", {}, {}),
    "autodl": ("POST", "/api/v1/dev/instance/pro/power_{on}", {"payload": "gpu"}, {}),
}
"""How somebody else with the key starts and stops a box, where that is possible: method, path and the two bodies."""


def draw(provider: str, dice: random.Random) -> dict[str, Any]:
    """One fault, of the wire or of the provider's own."""
    places = PLACES[provider]
    kind = dice.random()
    if kind < 0.5:
        do = dice.choice(["drop_before", "drop_after", "late", "twice", "delay", "status"])
        method, path = places[dice.choice(sorted(places))]
    elif kind < 0.7:
        do = dice.choice(sorted(_AT_A_REQUEST[provider]))
        method, path = places.get(_AT_A_REQUEST[provider][do], ("", ""))
    else:
        do = dice.choice(_TO_THE_WORLD[provider].split())
        method = path = ""
    fault: dict[str, Any] = {"do": do}
    if kind < 0.7:
        match = {"method": method, "path_regex": path, "nth": dice.randint(1, 2)}
        fault.update(match=match, times=dice.randint(1, 3))
    if do in _SECONDS:
        fault["seconds"] = dice.choice(_SECONDS[do])
    if do == "status":
        fault["status"] = dice.choice([500, 502, 503, 429, 400, 401, 403, 404, 409, 200])
        fault["body"] = dice.choice([None, "", "<html>gateway</html>", {}, [], {"error": "x"}])
    if do == "price_moved":
        fault["amount"] = dice.choice([0.5, 1.3, 3])
    if do == "page_boundary":
        fault["amount"] = dice.choice([0, 1])
    return fault


class Stage:
    """The rehearsal of one provider, until it is closed."""

    def __init__(self, provider: str, directory: Path) -> None:
        self.provider = provider
        self.directory = directory
        directory.mkdir(parents=True)
        environ = {
            "HOME": str(directory),
            "PATH": os.environ["PATH"],
            "GPU_TENANT_NO_POWEROFF": "1",
        }
        code = (
            "import sys; from gpu_tenant.faces.cli import main; sys.argv[0] = 'gpu-tenant'; main()"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, "rehearse", provider, "--json", "--keep", str(directory)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            env=environ,
        )
        assert self._process.stdout
        said = json.loads(self._process.stdout.readline())
        self.url: str = said["url"]
        self.environ: dict[str, str] = {
            name: value for name, value in said["environment"].items() if name != "GPU_TENANT_HOME"
        }

    def close(self) -> None:
        """It is over, and every box of it."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()

    def is_rehearsed_in(self, state: Path) -> None:
        """That state directory is a tenant's of this rehearsal."""
        put_rehearsal(state, Rehearsal(provider=self.provider, url=self.url))

    def ask(self, path: str, body: object = None, method: str | None = None) -> Any:
        """What its control surface answers."""
        sent = None if body is None else json.dumps(body).encode()
        with urlopen(
            Request(f"{self.url}/_rehearsal/{path}", sent, method=method), timeout=120
        ) as it:
            return json.load(it)

    def strike(self, *faults: Mapping[str, object]) -> None:
        """Those faults happen, as far as this provider knows them."""
        for fault in faults:
            try:
                self.ask("faults", [fault])
            except HTTPError as error:
                error.close()

    def calm(self) -> None:
        """Nothing goes wrong any more."""
        self.ask("faults", method="DELETE")
        self.strike({"do": "stuck_termination", "amount": 0}, {"do": "list_lag", "seconds": 0})

    def later(self, seconds: float) -> None:
        """So much time has passed there."""
        self.ask("clock", {"advance_s": seconds})

    @property
    def stops_boxes(self) -> bool:
        """Whether a box can be stopped there, so that its disk stays and costs less."""
        return self.provider in _SWITCHES

    def switch(self, box: str, how: str) -> bool:
        """Whether somebody with the same key could `start` or `stop` that box, as at the provider's console."""
        if not self.stops_boxes:
            return False
        method, path, starts, stops = _SWITCHES[self.provider]
        at = next((each["id"] for each in self._boxes() if same(each["id"], box)), None)
        if at is None:
            return False
        project = self.environ.get("GPU_TENANT_GCP_PROJECT", "")
        place = path.format(
            box=at, project=project, how=how, on={"start": "on", "stop": "off"}[how]
        )
        body = {**(starts if how == "start" else stops)}
        if self.provider == "autodl":
            body["instance_uuid"] = at
        answer = self._by_another(method, place, body)
        return answer is not None and answer.get("code", "Success") == "Success"

    def _boxes(self) -> list[dict[str, Any]]:
        meter = self.ask("meter")
        return [*meter["running"], *meter["parked"]]

    def _key(self) -> str:
        if self.provider == "gcp":
            return "rehearsal-key"  # its environment names a project, and no key
        return self.environ.get(KEYS[self.provider], "rehearsal-key")

    def _by_another(self, method: str, place: str, body: object) -> dict[str, Any] | None:
        """What the provider answers to somebody else who has the key. None: it refuses."""
        bare = self.provider == "autodl"
        said = Request(
            f"{self.url}{place}",
            json.dumps(body).encode(),
            {
                "Content-Type": "application/json",
                "User-Agent": "a-console/1",  # one provider answers no urllib
                "Authorization": self._key() if bare else f"Bearer {self._key()}",
            },
            method=method,
        )
        try:
            with urlopen(said, timeout=120) as it:
                answer = it.read()
        except (HTTPError, OSError):
            return None
        try:
            told = json.loads(answer)
        except ValueError:
            return {}
        return told if isinstance(told, dict) else {}

    def clone(self) -> str | None:
        """A further box by the newest create's own words, mark and all, as a console's copy has them; its id."""
        method, path = PLACES[self.provider]["create"]
        import re

        asked = [
            line
            for line in self.ask("requests")
            if line["method"] == method
            and re.search(path, line["path"])
            and (line["status"] or 500) < 300
        ]
        if not asked:
            return None
        known = {box["id"] for box in self.ask("meter")["running"]}
        if (
            self._by_another(method, f"{asked[-1]['path']}?{asked[-1]['query']}", asked[-1]["body"])
            is None
        ):
            return None
        made = [box["id"] for box in self.ask("meter")["running"] if box["id"] not in known]
        return made[0] if made else None

    def disk_of(self, box: str) -> Path | None:
        """Where what is on that box really lies."""
        homes = self.directory.glob(f"boxes/{box.rpartition('/')[2]}*/home")
        return next(iter(homes), None)


def same(one: object, other: object) -> bool:
    """Whether both name one box; some providers say the whole path."""
    ends = [str(name).rpartition("/")[2] for name in (one, other)]
    return ends[0] == ends[1]
