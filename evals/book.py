"""Sets and facts written as YAML in which every scalar is text, and facts found by a pointer."""

import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import cast

import yaml

from gpu_tenant.providers.profile_facts import Facts, Leaf, read

Text = str | list["Text"] | dict[str, "Text"]
ROOT = Path(__file__).resolve().parents[1]

_STEP = re.compile(r"\.?([a-z_]+)|\[([^\]]+)\]")


class _AllText(yaml.BaseLoader):
    """YAML that turns no word into anything else, and in which a key is stated once."""

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, object]:
        """The mapping, in which no key was lost to a later one of its name."""
        keys = [key.value for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        if twice:
            raise yaml.constructor.ConstructorError(
                None, None, f"stated twice: {', '.join(sorted(twice))}", node.start_mark
            )
        return super().construct_mapping(node, deep)


def texts(path: Path) -> Text:
    """What that file holds."""
    with path.open(encoding="utf-8") as opened:
        return cast("Text", yaml.load(opened, Loader=_AllText))  # noqa: TID251, S506 - text only


def mappings(path: Path) -> list[dict[str, Text]]:
    """What that file holds, a list of mappings."""
    return cast("list[dict[str, Text]]", texts(path))


def profiles() -> dict[str, Facts]:
    """Every platform's facts, by its slug, without source, date and confidence."""
    return {
        path.stem: cast("Facts", bare(read(path)[0]))
        for path in sorted((ROOT / "profiles").glob("*.md"))
    }


def bare(leaf: Leaf) -> Leaf:
    """The same facts, in which every sourced leaf is its plain value."""
    if isinstance(leaf, list):
        return [bare(entry) for entry in leaf]
    if isinstance(leaf, Mapping):
        return bare(leaf["v"]) if "v" in leaf else {key: bare(v) for key, v in leaf.items()}
    return leaf


def steps(pointer: str) -> tuple[str, ...]:
    """`paths[/root].survives.park` as the keys that lead there.

    Raises:
        ValueError: it is not a pointer.
    """
    found = list(_STEP.finditer(pointer))
    if "".join(match.group(0) for match in found) != pointer:
        raise ValueError(f"{pointer!r} is not a pointer into a profile")
    return tuple(match.group(1) or match.group(2) for match in found)


def at(facts: Leaf, pointer: str) -> Leaf | None:
    """The fact there, or None where the profile says nothing."""
    leaf: Leaf | None = facts
    for step in steps(pointer):
        if isinstance(leaf, Mapping):
            leaf = leaf.get(step)
        elif isinstance(leaf, list):
            leaf = next((entry for entry in leaf if named(entry) == step), None)
        else:
            return None
    return leaf


def named(entry: Leaf) -> str:
    """How a list's entry is addressed: by its path or its id, or by what it says."""
    if isinstance(entry, Mapping):
        return str(entry.get("path") or entry.get("id"))
    return str(entry)


def agrees(stated: Text, found: Leaf | None) -> bool:
    """Whether the fact is what was stated: a value, the whole of a list, or `says` with patterns."""
    if found is None:
        return stated == "absent"
    if isinstance(stated, dict):
        return isinstance(found, str) and all(
            re.search(str(pattern), found, re.IGNORECASE) for pattern in stated["says"]
        )
    if isinstance(stated, list):
        return isinstance(found, list) and sorted(map(named, found)) == sorted(map(str, stated))
    if isinstance(found, float | int):
        return re.fullmatch(r"[0-9.]+", stated) is not None and float(stated) == float(found)
    return stated == found
