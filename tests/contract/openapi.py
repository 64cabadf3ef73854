"""What a provider's own OpenAPI document says of a request and of its answer, by our table of its facts."""

import re
from functools import cache
from typing import Any, cast

import jsonschema
from contract.documents.extract import Node, read_table


def validate(provider: str, method: str, path: str, status: int, body: object) -> None:
    """`body`, parsed JSON, is what that request may be answered with in that status; None is no body.

    `path` is as it was requested, without a query.

    Raises:
        AssertionError: it is not, or the table knows no such path, method or status.
    """
    table = _table(provider)
    answers = _operation(table, method, path)["answers"]
    assert str(status) in answers or "default" in answers, (
        f"{method} {path} is never answered with {status}"
    )
    schema = answers.get(str(status), answers.get("default"))
    if schema is None:
        assert body is None, f"{method} {path} {status} has no body, and {body!r} was sent"
        return
    _check(table, schema, body, f"the answer {status} to {method} {path}")


def validate_request(provider: str, method: str, path: str, body: object) -> None:
    """`body`, parsed JSON, is what that request may carry.

    Raises:
        AssertionError: as for `validate`.
    """
    table = _table(provider)
    schema = _operation(table, method, path).get("takes")
    if schema is None:
        assert body is None, f"{method} {path} takes no body, and {body!r} was sent"
        return
    _check(table, schema, body, f"the request {method} {path}")


def fields(provider: str, method: str, path: str) -> Node:
    """The fields that such a request may carry, with the schema of each."""
    return cast("Node", _operation(_table(provider), method, path)["takes"]["properties"])


def _check(table: Node, schema: Node, body: object, what: str) -> None:
    # The types are one with the schema, so that `#/types/...` is found in it.
    checker = jsonschema.Draft202012Validator({"types": table["types"], "allOf": [schema]})
    problem = jsonschema.exceptions.best_match(checker.iter_errors(body))
    if problem is not None:
        raise AssertionError(f"{what}: {problem.json_path}: {problem.message[:500]}")


@cache
def _table(provider: str) -> Node:
    return read_table(provider)


def _operation(table: Node, method: str, path: str) -> Node:
    """What is said of that method on the template that `path` fits best."""
    known: dict[str, Any] = table["operations"]
    fitting = [
        operation
        for operation in known
        if re.fullmatch(re.sub(r"\\\{.*?\\\}", "[^/]+", re.escape(operation)), f"{method} {path}")
    ]
    assert fitting, (
        f"no operation of the table is {method} {path}: name it in contract/documents/extract.py"
    )
    # `/pods/billing` is itself before it is `/pods/{id}`.
    return cast("Node", known[min(fitting, key=lambda operation: operation.count("{"))])
