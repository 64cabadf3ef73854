"""What the server can say, found in its code: each text of several words that is no name, no query and no pattern."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import gpu_tenant

PACKAGE = Path(gpu_tenant.__file__).parent
UNHEARD = (
    "emulators/",  # a provider's side, in rehearsals
    "artifacts/formats/",  # what a file's reader met, mostly in its library's words
    "faces/cli/",  # the terminal's own words; the live view's are in `sentences/terminal.json`
    "faces/demo/",
    "faces/install/",
    "faces/mcp/",  # what an agent reads
    "faces/report/",
    "faces/timeline_text.py",
    "faces/python.py",
    "faces/dashboard/prometheus.py",  # what Prometheus stores with a metric
    "faces/dashboard/runbook_i18n.py",  # both languages side by side
    "faces/chinese/",
    "domain/command.py",  # the names of options
    "domain/untrusted_text.py",  # how text from elsewhere is cut
    "artifacts/set_table.py",  # names of files, and where each is known from
    "jobs/failure_patterns.py",  # patterns of what logs say
    "leases/ssh_config.py",  # lines of a file
    "app.py",
    "answers.py",
    "doctor.py",
    "__main__.py",
    "process_hardening.py",
)
"""Where nothing is said to a reader of the page, the card or the live view, or said by a table of its own."""

NO_SPEECH = {
    *("execute", "executemany", "_read", "compile", "Field", "field", "sub", "match", "search"),
    *("fullmatch", "findall", "split", "debug", "info", "warning", "dedent", "Command", "Option"),
}
"""Calls whose texts nobody reads as a sentence: queries, patterns, schemas, logs and command lines."""

SENTENCE = re.compile(r"[a-z]{2,},? [a-z]|\} [a-z]{2,}|[a-z]{2,} \{")
CODE = re.compile(
    r"^(import|query|pip install|mount_volume) | WHERE |^exec |^sleep |--bind|[\\|>&]|^[A-Z][a-zA-Z]+ (\{|yes$|no$|none$)"
)
QUERY = re.compile(r"\s*(SELECT|UPDATE|INSERT|DELETE|CREATE|DROP|ALTER|WITH|AND|FROM|WHERE)\b")
EDGES = re.compile(r"^[\s;:,(]+|[\s;:,]+$")


def modules() -> list[Path]:
    found = sorted(PACKAGE.rglob("*.py"))
    return [path for path in found if not str(path.relative_to(PACKAGE)).startswith(UNHEARD)]


@cache
def sentences() -> dict[str, str]:
    """Every sentence, its holes numbered, and the module that says it."""
    said: dict[str, str] = {}
    for path in modules():
        for text in _texts(ast.parse(path.read_text("utf-8"))):
            said.setdefault(text, str(path.relative_to(PACKAGE)))
    return said


def _texts(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Expr(value=ast.Constant()) | ast.Compare() | ast.Subscript():
            return  # a docstring, or a word that is compared
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in NO_SPEECH:
            return
        case ast.Constant(value=str(text)):
            yield from _if_sentence(text)
            return
        case ast.JoinedStr(values=parts):
            yield from _if_sentence(
                "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in parts)
            )
            for part in parts:
                if isinstance(part, ast.FormattedValue):
                    yield from _texts(part.value)
            return
    for child in ast.iter_child_nodes(node):
        yield from _texts(child)


def _if_sentence(text: str) -> Iterator[str]:
    numbers = iter(range(1, 99))
    whole = EDGES.sub("", re.sub(r"\{\}", lambda _: f"{{{next(numbers)}}}", text))
    if (
        SENTENCE.search(text)
        and not QUERY.match(text)
        and not CODE.search(text)
        and "\n" not in text
        and len(whole) > 4
    ):
        yield whole
