"""Platform facts, read from `profiles/<slug>.md`. Each profile was checked against `profiles/_schema.json`.

Parsing and checking all profiles takes longer than most commands. So the result for each valid profile is stored,
under a hash of everything that it depends on. If none of this has changed, the stored result is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, cast

from pydantic import TypeAdapter

from gpu_tenant.domain.model import Profile
from gpu_tenant.files.replace_file import replace_file

if TYPE_CHECKING:
    from gpu_tenant.providers.profile_facts import Facts, Leaf

_NOTES: TypeAdapter[dict[str, Profile]] = TypeAdapter(dict[str, Profile])
_MADE: dict[str, Profile] = {}
"""The profiles that this process has made, by their hash."""


def load_profiles(directory: Path, noted: Path | None = None) -> dict[str, Profile]:
    """Return every profile of `directory`, by its slug.

    `noted` is the file where valid profiles are noted for the next process.

    Raises:
        LocalTrouble: a profile does not conform to the schema; the error names it in one sentence.
    """
    paths = sorted(directory.glob("*.md"))
    judges = _judges(directory)
    keys = {
        path: sha256(judges + path.name.encode() + _content(path)).hexdigest() for path in paths
    }
    if not _MADE.keys() >= set(keys.values()):
        _make(keys, noted)
    return {path.stem: _MADE[key] for path, key in keys.items()}


def load_profile(path: Path) -> Profile:
    """Return the profile in that file.

    Raises:
        LocalTrouble: the profile does not conform to the schema.
    """
    from gpu_tenant.providers.profile_facts import check_profile

    return _profile(*check_profile(path))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # never valid, so the file is read again, which raises the error


def _judges(directory: Path) -> bytes:
    """Return the hash of what every result depends on: the schema, and the code that reads profiles."""
    ours = Path(__file__)
    judges = (directory / "_schema.json", ours, ours.with_name("profile_facts.py"))
    return sha256(b"".join(judge.read_bytes() for judge in judges)).digest()


def _make(keys: dict[Path, str], noted: Path | None) -> None:
    """Add each of these profiles to `_MADE`, and note those that had to be checked."""
    known = _notes(noted)
    missing = [path for path, key in keys.items() if key not in known]
    if missing:
        known |= {keys[path]: load_profile(path) for path in missing}
        known = {key: known[key] for key in keys.values()}
        _note(known, noted)
    _MADE.update(known)


def _notes(noted: Path | None) -> dict[str, Profile]:
    """Read the notes: each valid profile, by its hash."""
    if noted is None:
        return {}
    try:
        return _NOTES.validate_json(noted.read_bytes())
    except (OSError, ValueError):
        return {}  # then all profiles are checked again


def _note(known: dict[str, Profile], noted: Path | None) -> None:
    if noted is None:
        return
    # If it fails, the next process checks the profiles again. A full disk must not stop a command.
    with suppress(OSError):
        noted.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(noted, _NOTES.dump_json(known), durable="none")


def _profile(facts: Facts, body: str) -> Profile:
    return Profile.model_validate(
        {
            "id": facts["id"],
            "title": facts["title"],
            "kind": facts["kind"],
            "lease": facts["lease"],
            "console": facts.get("console"),
            "python": _at(facts, "image", "python") if "image" in facts else None,
            "price_source": _at(facts, "billing", "price_source"),
            "credential": facts.get("credential"),
            "states": facts.get("states", {}),
            "boot_timeout_s": _at(facts, "boot", "timeout_s") if "boot" in facts else 60,
            "list_lag_s": _at(facts, "gone", "list_lag_s"),
            "confirm_s": _at(facts, "gone", "confirm_s"),
            "park": _at(facts, "verbs", "park", "effect"),
            "park_how": cast("Facts", _at(facts, "verbs", "park")).get("how", "api"),
            "park_command": cast("Facts", _at(facts, "verbs", "park")).get("command"),
            "interruption": _at(facts, "interrupt", "how") if "interrupt" in facts else None,
            **_notice(facts),
            "destroy": _at(facts, "verbs", "destroy", "effect"),
            "accounted_paths": tuple(
                _at(entry, "path")
                for entry in cast("list[Facts]", facts["paths"])
                # If survival is unknown, it is treated as loss: those bytes must be accounted for.
                if _at(entry, "survives", "destroy") not in ("yes", "n/a")
            ),
            "places": tuple(_place(entry, facts) for entry in cast("list[Facts]", facts["paths"])),
            "volume": _place(cast("Facts", facts["volume"]), {}) if "volume" in facts else None,
            "work_places": tuple(cast("list[str]", facts.get("work", []))),
            "doubts": tuple(_doubts(facts)),
            "checked_on": _at(facts, "checked", "on"),
            "mirror_needed": _at(facts, "net", "mirror_needed") == "yes",
            "speed_up": cast("Facts", facts["net"]).get("speed_up"),
            "stops": facts["stops"],
            "parked_for_h": _parked_for_h(facts),
            "stops_the_meter": _at(facts, "deadman", "stops_the_meter"),
            "provider_timer": cast("Facts", facts["deadman"]).get("provider_timer", "none"),
            "in_box": cast("Facts", facts["deadman"]).get("in_box", "none"),
            "trap": _at(facts, "trap"),
            "facts": tuple(_sources(facts)),
            "runbook": body,
        }
    )


def _parked_for_h(facts: Facts) -> Leaf | None:
    """Return for how many hours a box can be switched off before it is deleted. None if no such limit is known."""
    clocks = cast("list[Facts]", facts.get("clocks", []))
    return next((_at(x, "after_h") for x in clocks if x["id"] == "switched_off"), None)


def _notice(facts: Facts) -> dict[str, Leaf]:
    taken = cast("Facts", facts.get("interrupt") or {})
    within_s = _at(taken, "notice_s") if "notice_s" in taken else "unknown"
    told: dict[str, Leaf] = {"notice_at_metadata": taken.get("heard") == "metadata"}
    if within_s != "unknown":
        told["notice_s"] = within_s
    return told


def _at(facts: Leaf, *keys: str) -> Leaf:
    """Return the value at the end of `keys`, without its source, date and confidence."""
    for key in keys:
        facts = cast("Facts", facts)[key]
    return facts["v"] if isinstance(facts, dict) and "v" in facts else facts


def _place(entry: Facts, facts: Facts) -> dict[str, Leaf | None]:
    cap = _at(entry, "inode_cap") if "inode_cap" in entry else None
    clocks = cast("list[Facts]", facts.get("clocks", []))
    return {
        "path": _at(entry, "path"),
        "name": entry.get("name"),
        "emptied_after_h": next(
            (_at(x, "after_h") for x in clocks if x.get("empties") == entry["path"]), None
        ),
        "inode_cap": None if cap == "unknown" else cap,
        "survives": {
            event: _at(entry, "survives", event) for event in cast("Facts", entry["survives"])
        },
    }


_NAMES_OF_THE_FILE = ("schema", "id", "title", "checked")


def _sources(facts: Facts) -> Iterator[dict[str, Leaf]]:
    """Yield every fact with its place.

    A plain value has the source, date and confidence of the whole file. A value with a source of its own has the file's
    date and confidence, unless it says otherwise.
    """
    whole = cast("Facts", facts["checked"])
    stating = (section for section in facts if section not in _NAMES_OF_THE_FILE)
    for section in stating:
        for where, leaf in _leaves(facts[section], section):
            stated = {**whole, **leaf} if isinstance(leaf, dict) else {**whole, "v": leaf}
            value = stated["v"]
            yield {
                "place": where,
                "value": ", ".join(map(str, value)) if isinstance(value, list) else str(value),
                "source": stated["src"],
                "checked_on": stated["on"],
                "confidence": stated["conf"],
            }


_ON_THE_WAY_OUT = ("paths", "verbs", "billing", "gone", "clocks", "interrupt", "deadman")
"""The sections that decide whether data survives and whether a meter stops."""


def _doubts(facts: Facts) -> Iterator[str]:
    """Yield the facts about billing and destruction that are not well supported, as `where: what`."""
    for section in _ON_THE_WAY_OUT:
        for where, leaf in _leaves(facts.get(section, {}), section):
            value = leaf["v"] if isinstance(leaf, dict) else leaf
            weak = isinstance(leaf, dict) and leaf.get("conf") in ("folklore", "unknown")
            if weak or value == "unknown":
                yield f"{where}: {value}"


def _leaves(facts: Leaf, where: str) -> Iterator[tuple[str, Leaf]]:
    """Yield every fact below this one, with its dotted place. An entry of a list is named by its path or id."""
    if isinstance(facts, dict) and "v" not in facts:
        for key, value in facts.items():
            yield from _leaves(value, f"{where}.{key}")
    elif isinstance(facts, list) and facts and isinstance(facts[0], dict):
        for entry in cast("list[Facts]", facts):
            name = entry.get("path", entry.get("id"))
            yield from _leaves(entry, f"{where}[{name}]")
    else:
        yield where, facts
