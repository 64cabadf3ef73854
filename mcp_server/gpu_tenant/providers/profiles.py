"""Platform facts, read from `profiles/<slug>.md` and checked against `profiles/_schema.json`."""

import json
import re
from collections.abc import Hashable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import cast

import jsonschema
import yaml

from gpu_tenant.domain.errors import LocalTrouble
from gpu_tenant.domain.model import Profile

_TAG = "tag:yaml.org,2002:"
_KINDS = ("str", "int", "float", "null", "seq", "map")
_NUMBERS = {
    "int": r"[-+]?(0|[1-9][0-9]*)$",
    "float": r"[-+]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$",
    "null": r"(null|~|)$",
}


# The parser in C reads all profiles in a sixth of the time, and every command pays that time.
class _Plain(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML that reads `no`, `off`, `22:30` and `2026-11-20` as text, and refuses a fact stated twice."""

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, object]:
        """The mapping, in which no key was overwritten by a later one of the same name."""
        stated: set[str] = set()
        for key, _ in node.value:
            if key.value in stated:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value} is stated twice", key.start_mark
                )
            stated.add(key.value)
        mapping: dict[Hashable, object] = super().construct_mapping(node, deep)
        return mapping


# YAML 1.1 turns such words into booleans, base-60 numbers and dates. A profile means them as text.
_Plain.yaml_implicit_resolvers = {}
_Plain.yaml_constructors = {
    tag: construct
    for tag, construct in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.removeprefix(_TAG) in _KINDS
}
for _kind, _pattern in _NUMBERS.items():
    _Plain.add_implicit_resolver(_TAG + _kind, re.compile(_pattern), None)

Facts = Mapping[str, "Leaf"]
Leaf = str | float | list["Leaf"] | Facts


def load_profiles(directory: Path) -> dict[str, Profile]:
    """Every profile of `directory`, by its slug.

    Raises:
        LocalTrouble: a profile is not what the schema says; one sentence, which names the profile.
    """
    schema = (directory / "_schema.json").stat().st_mtime_ns
    return {
        path.stem: _loaded(path, (path.stat().st_mtime_ns, path.stat().st_size, schema))
        for path in sorted(directory.glob("*.md"))
    }


@lru_cache(maxsize=128)
def _loaded(path: Path, version: tuple[int, ...]) -> Profile:
    return load_profile(path)


def load_profile(path: Path) -> Profile:
    """The profile in that file.

    Raises:
        LocalTrouble: it is not what the schema says.
    """
    facts, body = read(path)
    schema = json.loads((path.parent / "_schema.json").read_text(encoding="utf-8"))
    problem = jsonschema.exceptions.best_match(
        jsonschema.Draft202012Validator(schema).iter_errors(facts)
    )
    if problem is not None:
        where = "/".join(str(part) for part in problem.absolute_path) or "the front matter"
        raise _wrong(path, f"{where}: {problem.message}")
    if facts["id"] != path.stem:
        raise _wrong(path, f"id is {facts['id']!r}")
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
            "destroy": _at(facts, "verbs", "destroy", "effect"),
            "accounted_paths": tuple(
                _at(entry, "path")
                for entry in cast("list[Facts]", facts["paths"])
                # Unknown survival is treated as loss: those bytes must be accounted for.
                if _at(entry, "survives", "destroy") not in ("yes", "n/a")
            ),
            "places": tuple(_place(entry) for entry in cast("list[Facts]", facts["paths"])),
            "doubts": tuple(_doubts(facts)),
            "checked_on": _at(facts, "checked", "on"),
            "mirror_needed": _at(facts, "net", "mirror_needed") == "yes",
            "speed_up": cast("Facts", facts["net"]).get("speed_up"),
            "stops": facts["stops"],
            "stops_the_meter": _at(facts, "deadman", "stops_the_meter"),
            "provider_timer": cast("Facts", facts["deadman"]).get("provider_timer", "none"),
            "in_box": cast("Facts", facts["deadman"]).get("in_box", "none"),
            "trap": _at(facts, "trap"),
            "facts": tuple(_sourced(facts)),
            "runbook": body,
        }
    )


def read(path: Path) -> tuple[Facts, str]:
    """The front matter and the body of a profile, unchecked.

    Raises:
        LocalTrouble: it cannot be read, there is no front matter, or it is not YAML.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(path, str(error)) from error
    opening, fence, rest = text.partition("---\n")
    front, closing, body = rest.partition("\n---\n")
    if opening or not fence or not closing:
        raise _wrong(path, "no front matter between two lines of `---`")
    try:
        facts = yaml.load(front, Loader=_Plain)  # noqa: TID251, S506 - a SafeLoader, narrowed
    except yaml.YAMLError as error:
        raise _wrong(path, str(error).replace("\n", " ")) from error
    if not isinstance(facts, dict):
        raise _wrong(path, "the front matter is not a mapping")
    return facts, body.strip()


def _at(facts: Leaf, *keys: str) -> Leaf:
    """The value at the end of `keys`, without its source, date and confidence."""
    for key in keys:
        facts = cast("Facts", facts)[key]
    return facts["v"] if isinstance(facts, dict) and "v" in facts else facts


def _place(entry: Facts) -> dict[str, Leaf | None]:
    cap = _at(entry, "inode_cap") if "inode_cap" in entry else None
    return {
        "path": _at(entry, "path"),
        "inode_cap": None if cap == "unknown" else cap,
        "survives": {
            event: _at(entry, "survives", event) for event in cast("Facts", entry["survives"])
        },
    }


_NAMES_OF_THE_FILE = ("schema", "id", "title", "checked")


def _sourced(facts: Facts) -> Iterator[dict[str, Leaf]]:
    """Every fact by its place. A plain value has the source, date and confidence of the whole file."""
    whole = cast("Facts", facts["checked"])
    stating = (section for section in facts if section not in _NAMES_OF_THE_FILE)
    for section in stating:
        for where, leaf in _leaves(facts[section], section):
            stated = leaf if isinstance(leaf, dict) else {**whole, "v": leaf}
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
    """Facts about billing and destruction that rest on too little, as `where: what`."""
    for section in _ON_THE_WAY_OUT:
        for where, leaf in _leaves(facts.get(section, {}), section):
            value = leaf["v"] if isinstance(leaf, dict) else leaf
            weak = isinstance(leaf, dict) and leaf["conf"] in ("folklore", "unknown")
            if weak or value == "unknown":
                yield f"{where}: {value}"


def _leaves(facts: Leaf, where: str) -> Iterator[tuple[str, Leaf]]:
    """Every fact below this one, by its dotted place. A list's entry is named by its path or id."""
    if isinstance(facts, dict) and "v" not in facts:
        for key, value in facts.items():
            yield from _leaves(value, f"{where}.{key}")
    elif isinstance(facts, list) and facts and isinstance(facts[0], dict):
        for entry in cast("list[Facts]", facts):
            name = entry.get("path", entry.get("id"))
            yield from _leaves(entry, f"{where}[{name}]")
    else:
        yield where, facts


def _wrong(path: Path, what: str) -> LocalTrouble:
    return LocalTrouble(
        f"{path.name}: {what}", remedy="mend that profile; `make test` checks them all"
    )
