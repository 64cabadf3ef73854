"""The tables of providers' documents hold facts alone, and all that a document allows or forbids."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from contract.documents.extract import SOURCES, documents, read_table, table_of

OPENAPI = [name for name, source in SOURCES.items() if source.operations]


def texts(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        for value in node.values():
            yield from texts(value)
    elif isinstance(node, list):
        for value in node:
            yield from texts(value)
    elif isinstance(node, str):
        yield node


def test_a_table_has_what_is_allowed_and_no_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SOURCES, "runpod", replace(SOURCES["runpod"], operations=("POST /boxes",)))
    box = {
        "type": "object",
        "description": "A box that is rented",
        "required": ["name"],
        "unevaluatedProperties": False,
        "properties": {
            "description": {"type": "string", "maxLength": 9, "example": "as you like it"},
            "disk": {"allOf": [{"minimum": 1}, {"description": "In GB"}], "nullable": True},
            "name": {"type": "string", "nullable": True, "pattern": "^[a-z]+$"},
            "next": {"$ref": "#/components/schemas/Box"},
        },
    }
    reference = {"$ref": "#/components/schemas/Box"}
    content = {"application/json": {"schema": reference}}
    posted = {
        "summary": "Rent a box",
        "requestBody": {"$ref": "#/components/requestBodies/Wanted"},
        "responses": {201: {"content": content}, "default": {"description": "Anything else"}},
    }
    document = {
        "paths": {"/boxes": {"post": posted}, "/other": {"get": {"responses": {}}}},
        "components": {"schemas": {"Box": box}, "requestBodies": {"Wanted": {"content": content}}},
    }

    table = table_of("runpod", json.dumps(document).encode())

    of_table = {"$ref": "#/types/Box"}
    assert table["operations"] == {
        "POST /boxes": {"takes": of_table, "answers": {"201": of_table, "default": None}}
    }
    assert table["types"]["Box"] == {
        "type": "object",
        "required": ["name"],
        "unevaluatedProperties": False,
        "properties": {
            "description": {"type": "string", "maxLength": 9},
            "disk": {"minimum": 1},
            "name": {"type": ["string", "null"], "pattern": "^[a-z]+$"},
            "next": of_table,
        },
    }


def test_of_a_client_each_command_has_its_first_request_and_no_key() -> None:
    lines: list[dict[str, Any]] = [
        {"cmd": "show box"},
        {"method": "GET", "path": "/users/current", "query": [], "headers": {}, "body": None},
        {"method": "GET", "path": "/box", "query": [], "headers": {"Key": "k"}, "body": None},
        {"method": "GET", "path": "/box", "query": [["page", "2"]], "headers": {}, "body": None},
    ]

    table = table_of("vastai_client", "\n".join(map(json.dumps, lines)).encode())

    first = {"method": "GET", "path": "/box", "query": [], "body": None}
    assert table["requests"] == {"show box": first}


@pytest.mark.parametrize("name", OPENAPI)
def test_a_table_is_a_schema_and_holds_no_sentence_of_its_document(name: str) -> None:
    table = read_table(name)
    schemas = [*table["types"].values()]
    for said in table["operations"].values():
        schemas += [one for one in (said.get("takes"), *said["answers"].values()) if one]

    for schema in schemas:
        jsonschema.Draft202012Validator.check_schema(schema)
    assert [text for text in texts(schemas) if text.count(" ") > 2] == []


if FOLDER := os.environ.get("GPU_TENANT_DOCUMENTS"):

    @pytest.mark.parametrize("name", SOURCES)
    def test_a_table_is_what_the_document_at_hand_says(name: str) -> None:
        content = dict(documents(Path(FOLDER)))[name]
        assert read_table(name) == table_of(name, content)
