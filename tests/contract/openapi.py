"""What a provider's own OpenAPI document says of a request and of its answer."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, cast

import jsonschema

SPECS = Path(__file__).parents[3] / "shared" / "specs"
"""The providers' documents lie beside the repository, which does not hold them."""

Node = dict[str, Any]


def validate(spec_path: Path | str, method: str, path: str, status: int, body: object) -> None:
    """`body`, parsed JSON, is what that request may be answered with in that status; None is no body.

    `spec_path` is absolute or below SPECS; `path` is as it was requested, without a query.

    Raises:
        AssertionError: it is not, or the document is absent or knows no such path, method or status.
    """
    document = _document(SPECS / spec_path)
    answers = _operation(document, method, path)["responses"]
    answer = answers.get(str(status), answers.get("default"))
    assert answer is not None, f"{method} {path} is never answered with {status}"
    content = _followed(document, answer).get("content")
    if not content:
        assert body is None, f"{method} {path} {status} has no body, and {body!r} was sent"
        return
    _check(document, content, body, f"the answer {status} to {method} {path}")


def validate_request(spec_path: Path | str, method: str, path: str, body: object) -> None:
    """`body`, parsed JSON, is what that request may carry.

    Raises:
        AssertionError: as for `validate`.
    """
    document = _document(SPECS / spec_path)
    asked = _operation(document, method, path).get("requestBody")
    if asked is None:
        assert body is None, f"{method} {path} takes no body, and {body!r} was sent"
        return
    _check(document, _followed(document, asked)["content"], body, f"the request {method} {path}")


def _check(document: Node, content: Node, body: object, what: str) -> None:
    schema = next(iter(content.values()))["schema"]
    # The document is one with the schema, so that `#/components/...` is found in it.
    checker = jsonschema.Draft202012Validator({**document, "allOf": [schema]})
    problem = jsonschema.exceptions.best_match(checker.iter_errors(body))
    if problem is not None:
        raise AssertionError(f"{what}: {problem.json_path}: {problem.message[:500]}")


@cache
def _document(path: Path) -> Node:
    assert path.is_file(), (
        f"{path.name} is not in {path.parent}: the providers' documents belong beside the repository"
    )
    assert path.suffix == ".json", f"{path.name} is not JSON"
    return cast("Node", _of_today(json.loads(path.read_text(encoding="utf-8"))))


def _of_today(node: Any) -> Any:
    """`node` with OpenAPI 3.0's `nullable`, which JSON Schema does not know, said as a type."""
    if isinstance(node, list):
        return [_of_today(each) for each in node]
    if not isinstance(node, dict):
        return node
    said = {key: _of_today(value) for key, value in node.items()}
    if said.get("nullable") is True and isinstance(said.get("type"), str):
        said["type"] = [said["type"], "null"]
    return said


def _operation(document: Node, method: str, path: str) -> Node:
    """What is said of that method on the template that `path` fits best."""
    fitting = [
        template
        for template in document["paths"]
        if re.fullmatch(re.sub(r"\\\{.*?\\\}", "[^/]+", re.escape(template)), path)
    ]
    assert fitting, f"no path of the document is {path}"
    # `/pods/billing` is itself before it is `/pods/{id}`.
    operations = document["paths"][min(fitting, key=lambda template: template.count("{"))]
    assert method.lower() in operations, f"{path} takes no {method}: {sorted(operations)}"
    return cast("Node", operations[method.lower()])


def _followed(document: Node, node: Node) -> Node:
    """`node`, or what its `$ref` leads to."""
    while "$ref" in node:
        target = node["$ref"].removeprefix("#/").split("/")
        node = document
        for part in target:
            node = node[part.replace("~1", "/").replace("~0", "~")]
    return node
