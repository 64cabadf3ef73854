"""Writes which fields of a provider's answers are known: `providers/<slug>/fields.json`, which `providers/drift.py` reads.

    PYTHONPATH=tests python -m contract.documents.known_fields

They are the fields of the tables beside this file, and what connector and emulator name between quotes. A form is one
letter for each kind of value that the document allows; where several documents' fields share a name, all of theirs.
"""

import json
import re
from pathlib import Path
from typing import Any

from contract.documents.extract import SOURCES, read_table

PACKAGE = Path(__file__).parents[3] / "mcp_server" / "gpu_tenant"
RENTED = ("autodl", "digitalocean", "lambda_cloud", "runpod", "vastai")
LETTERS = {
    "array": "l",
    "boolean": "b",
    "integer": "n",
    "number": "n",
    "object": "o",
    "string": "t",
}
MAPS = {
    "digitalocean": {"data"},
    "lambda_cloud": {"data"},
    "runpod": {"env"},
    "vastai": {"label_counts", "ports"},
}
"""Objects whose fields have names of the account's own."""


ELSEWHERE = {"vastai": {"instance_api_key"}}
"""Fields that only an official client's own tests show."""


def known(slug: str) -> dict[str, str]:
    """Return the known fields of that provider, with their forms."""
    forms: dict[str, set[str]] = {}
    document = read_table(slug) if slug in SOURCES else {}
    types = document.get("types", {})

    def letters(node: Any, depth: int = 6) -> set[str]:
        if not isinstance(node, dict) or depth == 0:
            return {"?"}
        if ref := node.get("$ref"):
            return letters(types.get(ref.rsplit("/", 1)[-1]), depth - 1)
        if "additionalProperties" in node and isinstance(node["additionalProperties"], dict):
            return {"o", "*"}
        several = [part for key in ("oneOf", "anyOf", "allOf") for part in node.get(key, ())]
        if several:
            return set().union(*(letters(part, depth - 1) for part in several))
        said = node.get("type")
        names = said if isinstance(said, list) else [said]
        return {LETTERS.get(name, "" if name == "null" else "?") for name in names}

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            for name, inner in (node.get("properties") or {}).items():
                forms.setdefault(name, set()).update(letters(inner))
            for inner in node.values():
                walk(inner)
        elif isinstance(node, list):
            for inner in node:
                walk(inner)

    walk(document)
    for folder in ("providers", "emulators"):
        for source in (PACKAGE / folder / slug).glob("*.py"):
            text = source.read_text(encoding="utf-8")
            for name in re.findall(r'"([a-zA-Z_]\w{0,50})"|^    (\w+): ', text, re.MULTILINE):
                forms.setdefault(name[0] or name[1], {"?"})
    for name in ELSEWHERE.get(slug, ()):
        forms.setdefault(name, {"?"})
    for name in MAPS.get(slug, ()):
        forms[name] = {"*"}
    for said in forms.values():
        if said == {"o"}:
            said.add(
                "?"
            )  # as a rule the bound of a search: an answer has a plain value of that name
    return {
        name: "" if "?" in said else "".join(sorted(said)) for name, said in sorted(forms.items())
    }


def text(slug: str) -> str:
    """Return the whole file of that provider."""
    return json.dumps(known(slug), indent=0) + "\n"


if __name__ == "__main__":
    for each in RENTED:
        (PACKAGE / "providers" / each / "fields.json").write_text(text(each), encoding="utf-8")
