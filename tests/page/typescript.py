"""TypeScript declarations of the records that the server sends, written from the records themselves."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

_PLAIN = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}

Schema = Mapping[str, Any]


def declarations(records: Iterable[type[BaseModel]], head: str) -> str:
    """An interface for each of those records, and for each record within them."""
    _, schema = models_json_schema([(record, "serialization") for record in records], by_alias=True)
    written = [_declared(name, part) for name, part in sorted(schema["$defs"].items())]
    return "\n".join([f"// {line}" for line in head.splitlines()] + ["", *written])


def _declared(name: str, schema: Schema) -> str:
    if schema.get("type") != "object" or "properties" not in schema:
        return f"export type {name} = {_type(schema)};\n"
    fields = "".join(
        _remark(field.get("description", "")) + f"  {_key(key)}: {_type(field)};\n"
        for key, field in schema["properties"].items()
    )
    return f"export interface {name} {{\n{fields}}}\n"


def _remark(words: str) -> str:
    return f"  /** {words} */\n" if words else ""


def _key(name: str) -> str:
    return name if name.isidentifier() else json.dumps(name)


def _type(schema: Schema | bool) -> str:
    if isinstance(schema, bool) or not schema:
        return "unknown"
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return " | ".join(dict.fromkeys(_type(each) for each in schema[several]))
    kind = schema.get("type")
    if isinstance(kind, list):
        return " | ".join(_PLAIN[each] for each in kind)
    if kind == "array":
        return _array(schema)
    if kind == "object":
        return f"Record<string, {_type(schema.get('additionalProperties', True))}>"
    return _PLAIN[kind] if kind else "unknown"


def _array(schema: Schema) -> str:
    if "prefixItems" in schema:
        return f"[{', '.join(_type(each) for each in schema['prefixItems'])}]"
    of = _type(schema.get("items", True))
    return f"({of})[]" if " | " in of else f"{of}[]"
