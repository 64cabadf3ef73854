"""The facts in the front matter of `profiles/<slug>.md`, parsed, and checked against `profiles/_schema.json`.

`profiles.py` imports this module only for a file that was not checked before: YAML and jsonschema take longer to
load than most commands take in all.
"""

import json
import re
from collections.abc import Hashable, Mapping
from pathlib import Path

import jsonschema
import yaml

from gpu_tenant.domain.errors import LocalTrouble

_TAG = "tag:yaml.org,2002:"
_KINDS = ("str", "int", "float", "null", "seq", "map")
_NUMBERS = {
    "int": r"[-+]?(0|[1-9][0-9]*)$",
    "float": r"[-+]?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$",
    "null": r"(null|~|)$",
}


# The parser in C reads all profiles in a sixth of the time.
class _Plain(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """A loader that reads `no`, `off`, `22:30` and `2026-11-20` as text, and refuses a fact that is stated twice."""

    def construct_mapping(
        self, node: yaml.MappingNode, deep: bool = False
    ) -> dict[Hashable, object]:
        """Return the mapping, and refuse a key that occurs twice instead of overwriting the first value."""
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


def checked(path: Path) -> tuple[Facts, str]:
    """Return the front matter and the body of a profile that conforms to the schema.

    Raises:
        LocalTrouble: the profile does not conform; the error names it in one sentence.
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
    return facts, body


def read(path: Path) -> tuple[Facts, str]:
    """Return the front matter and the body of a profile, unchecked.

    Raises:
        LocalTrouble: the file cannot be read, has no front matter, or its front matter is not YAML.
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


def _wrong(path: Path, what: str) -> LocalTrouble:
    return LocalTrouble(
        f"{path.name}: {what}", remedy="correct that profile; `make test` checks all profiles"
    )
