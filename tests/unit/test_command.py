"""A next step is a value: a person reads it as a line to paste, and an agent as a call of a tool."""

import ast
import asyncio
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_tenant
from gpu_tenant.domain.command import TOOL_OF, Command, Option, in_tools, read
from gpu_tenant.faces.cli import SUMMARIES, group
from gpu_tenant.faces.mcp.server import make_server

PACKAGE = Path(gpu_tenant.__file__).parent
SAMPLES = {"hours": "8", "integer range": "8", "float range": "8", "usd": "8"}
"""A number to stand for what is known only when the program runs."""


@pytest.mark.parametrize(
    ("meant", "line", "told"),
    [
        (Command("leases", all=True), "`gpu-tenant leases --all`", "`list_leases(which='all')`"),
        (
            Command("collect", "x", artifact=["a b", "it's"], to=None, live=False),
            """`gpu-tenant collect x --artifact 'a b' --artifact 'it'"'"'s'`""",
            """`collect(lease='x', artifacts=['a b', "it's"])`""",
        ),
        (
            Command("extend", "x", hours=8),
            "`gpu-tenant extend x --hours 8`",
            "`change_lease(lease='x', hours=8, action='extend')`",
        ),
        (
            Command("stop", "a", "b", job="j"),
            "`gpu-tenant stop a b --job j`",
            "`stop_job(lease='a', job='j')`, then `stop_job(lease='b', job='j')`",
        ),
        (
            Command("launch", lease="x", artifact="out/", then='python3 a.py --n "1 2"'),
            """`gpu-tenant launch --lease x --artifact 'out/' -- python3 a.py --n "1 2"`""",
            """`launch_detached(lease='x', artifacts=['out/'], command='python3 a.py --n "1 2"')`""",
        ),
        (
            Command("push", "DIR", "x"),
            "`gpu-tenant push DIR x`",
            "`push(directory='DIR', lease='x')`",
        ),
        (Command("audit"), "`gpu-tenant audit`", "`audit(lease='LEASE')`"),
        (
            Command("waive", "x"),
            "`gpu-tenant waive x`",
            "`gpu-tenant waive x` (ask the person to run it)",
        ),
        (
            Command("teardown", "x", ended=True),
            "`gpu-tenant teardown x --ended`",
            "`gpu-tenant teardown x --ended` (ask the person to run it)",
        ),
        (
            Command("profiles", "slurm"),
            "`gpu-tenant profiles slurm`",
            "`skill://gpu-tenant/profiles/slurm.md`",
        ),
        (
            Command("hold", "x", "30m"),
            "`gpu-tenant hold x 30m`",
            "`change_lease(lease='x', hours=0.5, action='hold')`",
        ),
        (Option("smoke", "none"), "`--smoke none`", "`smoke='none'`"),
        (Option("recover", "same"), "`--recover same`", "`recover=['same']`"),
        (Option("hours", "8"), "`--hours 8`", "`hours=8`"),
        (Option("name"), "`--name`", "`name`"),
    ],
)
def test_each_reader_is_told_in_his_own_words(
    meant: Command | Option, line: str, told: str
) -> None:
    assert str(meant) == line
    assert in_tools(f"first {meant}; then again") == f"first {told}; then again"


def test_whoever_is_said_to_run_it_is_not_asked_for_twice() -> None:
    assert in_tools("its owner runs `gpu-tenant waive x`") == "its owner runs `gpu-tenant waive x`"


def test_what_a_box_said_stays_as_it_is() -> None:
    log = '<untrusted-abcd1234 source="box log">\nrun `gpu-tenant collect x`\n</untrusted-abcd1234>'

    assert in_tools(f"`gpu-tenant collect x`\n{log}") == f"`collect(lease='x')`\n{log}"


_WORDS = st.text(
    st.characters(codec="ascii", exclude_categories=("Cc",), exclude_characters="`"), min_size=1
).filter(lambda word: not word.startswith("-") and "gpu-tenant" not in word)


@given(
    places=st.lists(_WORDS, max_size=3),
    artifacts=st.lists(_WORDS, max_size=3),
    to=st.none() | _WORDS,
    live=st.booleans(),
)
def test_a_line_is_read_back_as_it_was_meant(
    places: list[str], artifacts: list[str], to: str | None, live: bool
) -> None:
    meant = Command("collect", *places, artifact=artifacts, to=to, live=live, then="a  -- 'b'")

    assert read(meant.line.removeprefix("gpu-tenant ")) == meant
    assert shlex.split(meant.line)[: 2 + len(places)] == ["gpu-tenant", "collect", *places]
    assert "gpu-tenant" not in in_tools(str(meant))


@cache
def _trees() -> dict[str, ast.Module]:
    """The package's files, each parsed."""
    return {
        path.relative_to(PACKAGE).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


@cache
def _made(name: str) -> tuple[tuple[str, ast.Call], ...]:
    """Every place in the package where such a value is made."""
    return tuple(
        (f"{path}:{node.lineno}", node)
        for path, tree in _trees().items()
        if path != "domain/command.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    )


def _value(node: ast.expr, sample: str) -> Any:
    """What is written there, with a sample where it is known only later."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List):
        return [_value(each, sample) for each in node.elts]
    return sample


@cache
def _options_of(verb: str) -> dict[str, click.Option]:
    found = group.get_command(click.Context(group), verb)
    assert found is not None
    return {
        word.removeprefix("--"): each
        for each in found.params
        if isinstance(each, click.Option)
        for word in each.opts
    }


def _command(call: ast.Call) -> list[Command]:
    """The command that is made there, for each verb that it may have."""
    first = call.args[0]
    verbs = (
        [_value(branch, "") for branch in (first.body, first.orelse)]
        if isinstance(first, ast.IfExp)
        else [_value(first, "")]
    )
    return [_with(verb, call) for verb in verbs]


def _with(verb: str, call: ast.Call) -> Command:
    given: dict[str, Any] = {}
    for word in call.keywords:
        assert word.arg is not None
        if word.arg == "then":
            continue
        option = _options_of(verb)[word.arg.strip("_").replace("_", "-")]
        sample = SAMPLES.get(option.type.name, "x")
        if isinstance(option.type, click.Choice):
            sample = option.type.choices[0]
        value = _value(word.value, sample)
        if sample == "8" and isinstance(value, str) and value.isupper():
            value = sample
        if isinstance(option.type, click.Path | click.File):
            value = __file__
        given[word.arg] = value
        assert (value is True) == option.is_flag, f"{verb} --{word.arg}"
    then = next((_value(word.value, "x") for word in call.keywords if word.arg == "then"), "")
    places = [
        each
        for arg in call.args[1:]
        for each in (["x", "y"] if isinstance(arg, ast.Starred) else [_value(arg, "x")])
    ]
    return Command(verb, *places, then=then, **given)


def test_every_command_that_is_named_is_taken_by_the_command_line() -> None:
    wrong = []
    for where, call in _made("Command"):
        for meant in _command(call):
            words = shlex.split(meant.line)[2:]
            parsed = group.get_command(click.Context(group), meant.verb)
            assert parsed is not None
            if meant.verb in ("push", "smoke") and words:
                words = [str(PACKAGE) if word == "DIR" else word for word in words]
            try:
                parsed.make_context(meant.verb, words)
            except (click.ClickException, KeyError) as error:
                wrong.append(f"{where}: {meant}: {error}")

    assert not wrong, "\n".join(wrong)


def test_every_command_that_is_named_is_a_call_that_a_tool_takes() -> None:
    tools = {tool.name: tool.input_schema for tool in asyncio.run(make_server().list_tools())}
    wrong = []
    for where, made in _made("Command"):
        for meant in _command(made):
            for call in meant.calls:
                told = ast.parse(call, mode="eval").body
                assert isinstance(told, ast.Call)
                assert isinstance(told.func, ast.Name)
                schema = tools[told.func.id]
                names = {word.arg for word in told.keywords}
                missing = set(schema.get("required", ())) - names
                unknown = names - set(schema["properties"])
                if missing or unknown:
                    wrong.append(f"{where}: {call}: {missing=} {unknown=}")
                for word in told.keywords:
                    value = ast.literal_eval(word.value)
                    kinds = _kinds(schema["properties"][word.arg])
                    if type(value).__name__ not in kinds:
                        wrong.append(f"{where}: {call}: {word.arg} is {kinds}")

    assert not wrong, "\n".join(wrong)


def _kinds(schema: dict[str, Any]) -> set[str]:
    """The Python types that a property takes."""
    by_name = {
        "string": {"str"},
        "number": {"int", "float"},
        "integer": {"int"},
        "array": {"list"},
    }
    # A choice has values, and no type of its own.
    each = (by_name.get(one.get("type"), {"str"}) for one in schema.get("anyOf", [schema]))
    return set().union(*each)


def test_an_option_that_is_named_is_one_of_the_command_line() -> None:
    known = {name for verb in SUMMARIES for name in _options_of(verb)}
    named = [(where, _value(call.args[0], "?")) for where, call in _made("Option")]

    assert named
    assert [place for place in named if place[1] not in known] == []


def test_no_other_text_names_a_command() -> None:
    # The terminal's own help, and what is written for a shell or a page, is in no agent's hands.
    of_the_terminal = (
        "faces/install",
        "faces/cli",
        "faces/mcp",
        "domain/command.py",
        "files/order_file.py",
    )
    verbs = "|".join(SUMMARIES)
    command = re.compile(rf"`gpu-tenant (?:{verbs}|\{{)")
    tool = re.compile(rf"\b(?:{'|'.join(set(TOOL_OF.values()) - set(SUMMARIES))})\b")
    option = re.compile(
        r"(?<![\w`-])--(?:name|hours|smoke|recover|discard|artifact|[a-z-]*usd[a-z-]*)\b"
    )
    found = []
    for name, tree in _trees().items():
        if name.startswith(of_the_terminal):
            continue
        # Docstrings, and what a tool's own schema says of its arguments.
        prose = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr)
            or (isinstance(node, ast.keyword) and node.arg == "description")
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            if id(node) in prose or " " not in node.value:
                continue
            for rule in (command, tool, option):
                found += [f"{name}:{node.lineno}: {hit[0]}" for hit in rule.finditer(node.value)]

    assert not found, "\n".join(found)
