"""Writes what the tests must know of providers' own documents: facts alone, as tables beside this file.

    python tests/contract/documents/extract.py FOLDER

FOLDER holds the documents, by the names below. One that is not there is left as it was. Of a document, a table keeps
the operations that the tests ask for: paths, fields, types, values, limits, and no sentence of it. Of what an official
client sent to a server on loopback, it keeps command and request. A test compares the tables with the documents, where
GPU_TENANT_DOCUMENTS names their folder.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

TABLES = Path(__file__).parent
Node = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """A document, and where it came from."""

    file: str
    source: str
    dated: str
    operations: tuple[str, ...] = ()


SOURCES = {
    "digitalocean": Source(
        "digitalocean-v2.trimmed.openapi.json",
        "github.com/digitalocean/openapi at 7c1300c4, specification/DigitalOcean-public.v2.yaml, as one file",
        "2026-08-07",
        (
            "GET /v2/account/keys",
            "POST /v2/account/keys",
            "GET /v2/customers/my/balance",
            "GET /v2/droplets",
            "POST /v2/droplets",
            "GET /v2/droplets/{droplet_id}",
            "DELETE /v2/droplets/{droplet_id}",
            "POST /v2/droplets/{droplet_id}/actions",
            "GET /v2/sizes",
            "GET /v2/snapshots",
            "GET /v2/volumes",
            "POST /v2/volumes",
            "DELETE /v2/volumes/{volume_id}",
            "POST /v2/volumes/{volume_id}/actions",
        ),
    ),
    "lambda_cloud": Source(
        "lambda-cloud-v1.10.0.openapi.json",
        "Lambda's document 1.10.0, by github.com/api-evangelist/lambda-labs at 911506f4",
        "2026-08-22",
        (
            "GET /api/v1/file-systems",
            "POST /api/v1/filesystems",
            "DELETE /api/v1/filesystems/{id}",
            "POST /api/v1/instance-operations/launch",
            "POST /api/v1/instance-operations/terminate",
            "GET /api/v1/instance-types",
            "GET /api/v1/instances",
            "GET /api/v1/instances/{id}",
            "GET /api/v1/ssh-keys",
            "POST /api/v1/ssh-keys",
        ),
    ),
    "runpod": Source(
        "runpod-rest-v2.openapi.json",
        "github.com/runpod/docs at a900806e, api-reference-v2/openapi.json",
        "2026-08-20",
        (
            "GET /v2/catalog/gpus",
            "GET /v2/network-volumes",
            "POST /v2/network-volumes",
            "PATCH /v2/network-volumes/{id}",
            "GET /v2/billing/pods",
            "GET /v2/pods",
            "POST /v2/pods",
            "GET /v2/pods/{id}",
            "DELETE /v2/pods/{id}",
            "POST /v2/pods/{id}/action",
        ),
    ),
    "vastai": Source(
        "vast.openapi.yaml",
        "github.com/vast-ai/docs at c6246226, api-reference/openapi.yaml",
        "2026-08-07",
        (
            "PUT /api/v0/asks/{id}",
            "POST /api/v0/bundles",
            "GET /api/v0/charges",
            "GET /api/v1/instances",
            "GET /api/v0/instances/{id}",
            "PUT /api/v0/instances/{id}",
            "DELETE /api/v0/instances/{id}",
            "POST /api/v0/instances/{id}/ssh",
            "PUT /api/v0/instances/bid_price/{id}",
            "PUT /api/v0/instances/reboot/{id}",
            "PUT /api/v0/instances/request_logs/{id}",
            "GET /api/v0/ssh",
            "POST /api/v0/ssh",
            "GET /api/v0/users/current",
            "GET /api/v0/volumes",
            "PUT /api/v0/volumes",
            "DELETE /api/v0/volumes",
            "POST /api/v0/volumes/search",
        ),
    ),
    "vastai_client": Source(
        "vastai-cli-1.9.1.jsonl",
        "what the command line `vastai` 1.9.1 sent to a server on loopback",
        "2026-11-20",
    ),
}

_KEPT = {
    *("type", "enum", "const", "required", "pattern", "format", "uniqueItems"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
}
"""The keywords of a schema that say what is allowed, and hold no schema themselves."""
_SCHEMAS = (
    *("items", "additionalProperties", "unevaluatedProperties"),
    *("not", "if", "then", "else"),
)
_ALTERNATIVES = ("allOf", "anyOf", "oneOf")


def table_of(name: str, content: bytes) -> Node:
    """Return the facts of the document of that name, whose text is `content`."""
    source = SOURCES[name]
    text = content.decode()
    facts = (
        {"requests": _requests(text)}
        if source.file.endswith(".jsonl")
        else _operations(_parsed(text, source.file), source.operations)
    )
    return {
        "document": source.file,
        "source": source.source,
        "dated": source.dated,
        "sha256": hashlib.sha256(content).hexdigest(),
        **facts,
    }


def read_table(name: str) -> Node:
    """Return the table of that name, as it lies here."""
    text = (TABLES / f"{name}.yaml").read_text(encoding="utf-8")
    read: Node = yaml.load(text, Loader=yaml.CSafeLoader)  # noqa: TID251 - it is no profile
    return read


def documents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the text of each document of SOURCES that lies anywhere below the folder."""
    for name, source in SOURCES.items():
        for path in sorted(folder.rglob(source.file))[:1]:
            yield name, path.read_bytes()


def _parsed(text: str, file: str) -> Node:
    parsed: Node = (
        json.loads(text) if file.endswith(".json") else yaml.load(text, Loader=yaml.CSafeLoader)  # noqa: TID251 - it is no profile
    )
    return parsed


def _requests(text: str) -> Node:
    """Return the first request of each command, but for what the client asks on its own account."""
    sent: Node = {}
    command = ""
    for line in map(json.loads, text.splitlines()):
        command = line.get("cmd", command)
        if "path" in line and not line["path"].endswith("/users/current"):
            sent.setdefault(command, {k: line[k] for k in ("method", "path", "query", "body")})
    return sent


def _operations(document: Node, wanted: tuple[str, ...]) -> Node:
    types: Node = {}
    told: Node = {}
    for operation in wanted:
        method, _, path = operation.partition(" ")
        said = document["paths"][path][method.lower()]
        facts: Node = {}
        if "requestBody" in said:
            facts["takes"] = _body(document, said["requestBody"], types)
        facts["answers"] = {
            str(status): _body(document, answer, types)
            for status, answer in said["responses"].items()
        }
        told[operation] = facts
    return {"operations": told, "types": dict(sorted(types.items()))}


def _body(document: Node, node: Node, types: Node) -> Node | None:
    """Return the schema of a request or an answer. None if it has no body."""
    content = _followed(document, node).get("content")
    return _facts(document, next(iter(content.values()))["schema"], types) if content else None


def _facts(document: Node, schema: Any, types: Node) -> Any:
    """Return the schema without a sentence, and put each type that it names into `types`."""
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key in _KEPT}
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in types:
            types[name] = {}  # one that names itself ends here
            types[name] = _facts(document, _followed(document, schema), types)
        kept["$ref"] = f"#/types/{name}"
    # OpenAPI 3.0 says `nullable`, which JSON Schema does not know.
    if schema.get("nullable") is True and isinstance(kept.get("type"), str):
        kept["type"] = [kept["type"], "null"]
    if "properties" in schema:
        fields = schema["properties"].items()
        kept["properties"] = {name: _facts(document, of, types) for name, of in fields}
    for key in _SCHEMAS:
        if key in schema:
            kept[key] = _facts(document, schema[key], types)
    for key in _ALTERNATIVES:
        if key in schema:
            kept[key] = [_facts(document, one, types) for one in schema[key]]
    if "allOf" in kept:
        # A part that was sentences alone allows everything.
        kept["allOf"] = [part for part in kept["allOf"] if part]
        if not kept["allOf"]:
            del kept["allOf"]
        elif len(kept) == len(kept["allOf"]) == 1:
            return kept["allOf"][0]
    return kept


def _followed(document: Node, node: Node) -> Node:
    """Return the node, or what its `$ref` leads to."""
    while "$ref" in node:
        target = node["$ref"].removeprefix("#/").split("/")
        node = document
        for part in target:
            node = node[part.replace("~1", "/").replace("~0", "~")]
    return node


class _Plain(yaml.CSafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def main(folder: Path) -> None:
    for name, content in documents(folder):
        text = yaml.dump(
            table_of(name, content),
            Dumper=_Plain,
            sort_keys=False,
            width=120,
            allow_unicode=True,
            default_flow_style=None,
        )
        (TABLES / f"{name}.yaml").write_text(f"# Written by extract.py.\n{text}", encoding="utf-8")
        print(name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
