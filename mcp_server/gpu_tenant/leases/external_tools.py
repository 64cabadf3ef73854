"""Finds the box that another tool has rented, by that tool's ssh configuration.

Also says which command of the tool ends the box's bill.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from gpu_tenant.domain import timeline
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.timeline import Lines
from gpu_tenant.domain.untrusted_text import sentence

Broker = Literal["skypilot", "dstack"]

_FILES: Mapping[Broker, str] = {
    "skypilot": ".sky/generated/ssh/*",
    "dstack": ".dstack/ssh/config",
}
_TITLES: Mapping[Broker, str] = {"skypilot": "SkyPilot", "dstack": "dstack"}
_ENDS: Mapping[Broker, str] = {"skypilot": "sky down", "dstack": "dstack stop"}
_WRITES: Mapping[Broker, str] = {
    "skypilot": "`sky status {name}` writes that entry while the cluster is up",
    "dstack": "`dstack attach {name}` writes that entry, and removes it when the command ends: keep it running meanwhile",
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_LINE = re.compile(r"\s*(?P<key>[A-Za-z]+)(?:\s*=\s*|\s+)(?P<value>.*?)\s*")
_KEPT = ("HostName", "Port", "User", "IdentityFile", "IdentitiesOnly", "ProxyJump", "ProxyCommand")
"""The options that say where a box is and who may come in.

Neither tool checks host keys. We do, so their options about host keys are not copied.
"""
_OWNERS_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")


class Brokered(Record):
    """A box as another tool's configuration showed it when it came under a lease."""

    broker: Broker
    name: str
    place: str
    """The box's address, and the jump hosts before it. If this changes, the box is another machine, or was moved."""

    @property
    def title(self) -> str:
        """The tool's name, for a person."""
        return _TITLES[self.broker]

    @property
    def ends(self) -> str:
        """The command that ends the box's bill."""
        cluster = re.sub(r"-worker\d+$", "", self.name) if self.broker == "skypilot" else self.name
        return f"`{_ENDS[self.broker]} {cluster}`"


def broker_of(events: Lines) -> Brokered | None:
    """Return which other tool rents the box, by the lease's timeline. None if no other tool does."""
    told = [event for _, event in events if isinstance(event, timeline.Brokered)]
    return Brokered.model_validate(told[-1].model_dump()) if told else None


def find_external(source: str, owner: Path) -> tuple[Brokered, str]:
    """Find the box that `source` names, `skypilot:CLUSTER` or `dstack:RUN`, and the ssh entries that lead to it.

    `owner` is the home directory of the tool's user. The entries are returned as a copy, because the tool may rewrite
    its own file later.

    Raises:
        BadRequest: `source` has neither form, or the tool's configuration has no such entry now.
    """
    tool, _, name = source.partition(":")
    broker: Broker | None = next((known for known in _FILES if known == tool), None)
    if broker is None or not _NAME.fullmatch(name):
        raise BadRequest(
            f"{source!r} names no box of another tool",
            remedy="--from skypilot:CLUSTER (a further node: skypilot:CLUSTER-worker1), or --from dstack:RUN",
        )
    entries = dict(_entries(owner, _FILES[broker]))
    if name not in entries:
        raise BadRequest(
            f"{_TITLES[broker]} shows no {name} in ~/{_FILES[broker]}",
            remedy=_WRITES[broker].format(name=name),
        )
    way = [name]
    while (hop := entries[way[-1]].get("ProxyJump")) in entries and hop not in way:
        way.append(str(hop))
    text = "\n".join(_block(host, entries[host], owner) for host in way)
    place = sentence(" behind ".join(_place(entries[host]) for host in way), most=2000)
    return Brokered(broker=broker, name=name, place=place), text


def _entries(owner: Path, files: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield every `Host` entry in those files, with the first value of each key."""
    for file in sorted(owner.glob(files)):
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
        entry: dict[str, str] = {}
        for line in lines:
            said = _LINE.fullmatch(line)
            if said is None or line.lstrip().startswith("#"):
                continue
            if said["key"] == "Host":
                entry = {}
                yield said["value"], entry
            elif said["key"] in _KEPT:
                entry.setdefault(said["key"], said["value"])


def _block(host: str, entry: Mapping[str, str], owner: Path) -> str:
    home = {**entry}
    if "IdentityFile" in home:
        named = home["IdentityFile"].strip('"')
        home["IdentityFile"] = str(owner / named[2:]) if named.startswith("~/") else named
    lines = [f"{key} {value}" for key, value in home.items()]
    if "IdentityFile" not in home:
        keys = (owner / ".ssh" / name for name in _OWNERS_KEYS)
        lines += [f"IdentityFile {key}" for key in keys if key.is_file()]
    return "\n    ".join([f"Host {host}", *lines]) + "\n"


def _place(entry: Mapping[str, str]) -> str:
    there = f"{entry.get('HostName', '?')}:{entry.get('Port', '22')}"
    proxy = entry.get("ProxyCommand")
    return f"{there} by `{proxy}`" if proxy else there
