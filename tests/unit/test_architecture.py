"""What the tree must look like for the law to hold and the code to stay readable."""

import ast
import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

import pytest

from gpu_tenant.domain import errors
from gpu_tenant.domain.errors import TenantError

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "mcp_server" / "gpu_tenant"

ONE_PLACE = {
    "asyncssh": {"transports/ssh_connect.py", "transports/ssh_channel.py", "transports/ssh.py"},
    "mcp": {"faces/mcp/server.py"},
    "httpx2": {"providers/http_client.py"},
    "sqlite3": {
        "ledger/database.py",
        "ledger/salvage.py",
        "artifacts/formats/subprocesses/sqlite_check.py",
    },
    "yaml": {"providers/profile_facts.py"},
    "jsonschema": {"providers/profile_facts.py"},
    "google": {"providers/gcp/client.py"},
    "kubernetes": {"providers/kubernetes/client.py", "providers/kubernetes/exec.py"},
    "apprise": {"notifications/apprise_delivery.py"},
    "requests": {"notifications/apprise_delivery.py"},
    "webauthn": {"faces/dashboard/passkeys.py"},
}
NOT_NAMES = {
    *("util", "utils", "helper", "helpers", "common", "misc", "base", "manager", "managers"),
    *("handler", "handlers", "processor", "processors", "data", "info", "force", "core", "lib"),
}

Function = ast.FunctionDef | ast.AsyncFunctionDef

T = TypeVar("T")


class Lazily(Mapping[str, T]):
    """A value for each name, made once, when it is asked for: every worker collects this file, and one runs it."""

    def __init__(self, names: Iterable[str], make: Callable[[str], T]) -> None:
        self._names, self._make = tuple(names), cache(make)

    def __getitem__(self, name: str) -> T:
        return self._make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


SOURCES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
TREES = Lazily(SOURCES, lambda name: ast.parse(SOURCES[name].read_text(encoding="utf-8")))
NODES = Lazily(SOURCES, lambda name: list(ast.walk(TREES[name])))
"""Walked once: dozens of tests look at every node."""
OURS = Lazily(
    (name for name in SOURCES if not name.startswith("faces/demo/job/")), TREES.__getitem__
)
"""Without the demo's job, which is somebody's training script and runs on a box."""


FACES = {name for name in OURS if name == "faces/mcp/server.py" or name.startswith("faces/cli/")}
"""Their signatures are what click and the MCP library want them to be."""
BORROWED_NAMES = {"unused_data"}
"""As the standard library's decompressors call it."""


@cache
def imports(tree: ast.Module) -> tuple[str, ...]:
    """Every module that is imported anywhere in `tree`, also inside functions."""
    return tuple(_imported(tree))


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            # What is imported by its name is imported all the same.
            yield from (str(a.value) for a in node.args if isinstance(a, ast.Constant))


def users_of(name: str) -> Counter[str]:
    """How often each file names `name`, as a name, an attribute or an import."""
    found: Counter[str] = Counter()
    for file, nodes in NODES.items():
        for node in nodes:
            named = (
                (isinstance(node, ast.Name) and node.id == name)
                or (isinstance(node, ast.Attribute) and node.attr == name)
                or (isinstance(node, ast.alias) and name in (node.name, node.asname))
                or (isinstance(node, ast.Constant) and node.value == name)
            )
            found[file] += named
    return +found


def calls_of(name: str) -> list[str]:
    """Every file that calls something of that name, once a call."""
    return [
        file
        for file, nodes in NODES.items()
        for node in nodes
        if isinstance(node, ast.Call)
        and name in (getattr(node.func, "attr", None), getattr(node.func, "id", None))
    ]


def functions(*, public: bool) -> Iterator[tuple[str, Function]]:
    """Every function, or every one that another module may call, with where it stands."""

    def walk(node: ast.AST, file: str) -> Iterator[tuple[str, Function]]:
        for child in ast.iter_child_nodes(node):
            name = child.name if isinstance(child, Function | ast.ClassDef) else ""
            private = name.startswith("_") and name != "__init__"
            if isinstance(child, Function):
                if not (public and private):
                    yield f"{file}:{child.lineno} {child.name}", child
                if public:
                    continue
            if not (public and private):
                yield from walk(child, file)

    for file, tree in OURS.items():
        yield from walk(tree, file)


def parameters(function: Function) -> list[ast.arg]:
    given = function.args
    rest = [arg for arg in (given.vararg, given.kwarg) if arg]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *rest]


def test_the_package_is_there_to_be_looked_at() -> None:
    assert {
        "domain/permit.py",
        "leases/verify.py",
        "leases/teardown.py",
        "ledger/schema.py",
    } <= set(SOURCES)


# The law


def test_a_box_is_destroyed_in_one_place() -> None:
    """A connector of two parts hands the very permit it was given to one of them, and no other may."""
    passed_on = [
        file
        for file, nodes in NODES.items()
        for function in nodes
        if isinstance(function, Function) and function.name == "destroy"
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", None) == "destroy"
        and [ast.unparse(arg) for arg in node.args]
        == ["permit"]
        == [a.arg for a in parameters(function)[1:]]
    ]

    assert passed_on == ["providers/console/connector.py"]
    assert sorted(calls_of("destroy")) == sorted(["leases/teardown.py", *passed_on])


def test_the_destroy_of_a_connector_is_never_passed_around() -> None:
    called = {id(node.func) for name in OURS for node in NODES[name] if isinstance(node, ast.Call)}
    held = {
        ast.unparse(node)
        for name in OURS
        for node in NODES[name]
        if isinstance(node, ast.Attribute) and node.attr == "destroy" and id(node) not in called
    }

    assert held == {"profile.destroy", "self._profile.destroy"}, (
        "which is a word: deletes, or hands_back"
    )


def test_nothing_makes_a_lease_dearer_or_longer_past_the_owner_s_limits() -> None:
    may_rise = ("ledger.intend", "ledger.change_terms", "ledger.take_up", "provision.intend_quote")
    unasked = {
        name
        for name in OURS
        for node in NODES[name]
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).removeprefix("self.") in may_rise
        and "allowed" not in {keyword.arg for keyword in node.keywords}
    }

    # A box that is found, or found again, bills already, and is never left alone; a recovery's budgets
    # are only lowered.
    assert unasked == {"leases/settle.py", "leases/reopen.py", "leases/recovery_plan.py"}


def test_the_seal_has_one_holder() -> None:
    assert set(users_of("_SEAL")) == {"domain/permit.py", "leases/verify.py"}
    assert users_of("_SEAL")["leases/verify.py"] == 3, "its import, and a use for each kind"


def test_a_permit_is_minted_in_one_place() -> None:
    assert calls_of("TeardownPermit") == ["leases/verify.py"]
    assert calls_of("VolumePermit") == ["leases/verify.py"]


def test_a_volume_is_destroyed_in_one_place() -> None:
    passed_on = "providers/console/connector.py"
    assert sorted(calls_of("destroy_volume")) == [
        "faces/cli/volumes.py",
        "leases/volumes.py",
        passed_on,
    ]
    for name, nodes in NODES.items():
        for node in nodes:
            if not isinstance(node, Function) or node.name != "destroy_volume":
                continue
            if name.startswith("providers/"):
                first = next(each for each in node.body if not _is_docstring(each))
                assert "genuine_for_volume" in ast.dump(first), name


def test_only_a_face_that_a_person_uses_files_a_signature() -> None:
    """The MCP server is none, and neither is any verb: what a model can call signs nothing."""
    files = {
        name
        for name in OURS
        for node in NODES[name]
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("ledger.sign")
    }

    assert files == {"faces/cli/sign.py", "faces/dashboard/signatures.py"}
    assert calls_of("at_terminal")
    assert set(calls_of("at_terminal")) <= {
        "faces/cli/prompts.py",
        "faces/cli/limits.py",
        "faces/cli/sign.py",
    }


def test_nobody_else_writes_the_register_of_minted_permits() -> None:
    assert set(users_of("_MINTED")) == {"domain/permit.py"}


def test_every_connector_asks_whether_the_permit_is_genuine_before_all_else() -> None:
    connectors = {
        name: tree
        for name, tree in OURS.items()
        if name.endswith("/connector.py") and "/console/" not in name
    }
    destroys = {
        name: node
        for name, tree in connectors.items()
        for node in ast.walk(tree)
        if isinstance(node, Function) and node.name == "destroy"
    }

    assert set(destroys) == set(connectors)
    for name, destroy in destroys.items():
        statements = [node for node in destroy.body if not _is_docstring(node)]
        assert "genuine" in ast.dump(statements[0]), name
        assert [arg.arg for arg in parameters(destroy)] == ["self", "permit"], name


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def test_nothing_can_be_forced() -> None:
    forced = [
        f"{where} ({argument.arg})"
        for where, function in functions(public=False)
        for argument in parameters(function)
        if "force" in argument.arg.lower()
    ]
    options = [
        name for name, path in SOURCES.items() if "--force" in path.read_text(encoding="utf-8")
    ]

    assert not forced
    assert not options


# The outside world


@pytest.mark.parametrize("library", ONE_PLACE)
def test_a_library_of_the_outside_world_is_imported_in_one_place(library: str) -> None:
    importers = {
        name
        for name, tree in OURS.items()
        if any(module.split(".")[0] == library for module in imports(tree))
    }

    assert importers == ONE_PLACE[library]


def test_host_keys_are_never_waved_through() -> None:
    lax = re.compile(r"known_hosts\s*=\s*None|StrictHostKeyChecking\W+(no|off)\b")
    code = [
        path
        for folder in ("mcp_server", "scripts", "evals", "tests")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".sh", ".toml", ".yaml", ".yml", ".json")
        and "node_modules" not in path.parts
    ]

    assert code
    assert not [
        path for path in code if lax.search(path.read_text(encoding="utf-8", errors="replace"))
    ]


def test_no_shell_string_is_built_from_parts() -> None:
    lax = {"os.system", "os.popen"}
    shells = [
        f"{name}:{node.lineno}"
        for name in OURS
        for node in NODES[name]
        if isinstance(node, ast.Call)
        and (
            ast.unparse(node.func) in lax
            or any(k.arg == "shell" and ast.unparse(k.value) == "True" for k in node.keywords)
        )
    ]

    assert not shells


# The shape of the code


def test_no_module_has_a_name_that_says_nothing() -> None:
    stems = {part.removesuffix(".py") for name in SOURCES for part in name.split("/")}

    assert not stems & NOT_NAMES


def test_no_public_name_says_nothing() -> None:
    classes = (node.name for name in OURS for node in NODES[name] if isinstance(node, ast.ClassDef))
    names = [*(function.name for _, function in functions(public=True)), *classes]
    words = {name: {word.lower() for word in re.findall(r"[A-Z]?[a-z]+", name)} for name in names}

    assert {name for name in words if words[name] & NOT_NAMES} <= BORROWED_NAMES
    assert not {name for name in names if name.startswith("do_")}


def test_the_name_of_a_public_class_means_one_thing() -> None:
    """A kind of line on the timeline is always written with its module, as in `timeline.Pushed`."""
    places: dict[str, list[str]] = {}
    for name, tree in TREES.items():
        for node in tree.body if name != "domain/timeline.py" else ():
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(name)

    twice = {name for name, where in places.items() if len(where) > 1}
    assert twice == {"Gpu"}, "both are in the tools' schemas, which name them so"


def test_every_module_says_in_one_sentence_what_it_is() -> None:
    first_lines = {
        name: (ast.get_docstring(tree) or "").split("\n\n")[0]
        for name, tree in OURS.items()
        if tree.body
    }

    assert not {name: line for name, line in first_lines.items() if not line.endswith((".", ":"))}


def test_every_public_function_and_class_of_a_module_says_what_it_is() -> None:
    silent = [
        f"{name}:{node.lineno} {node.name}"
        for name, tree in OURS.items()
        for node in tree.body
        if isinstance(node, Function | ast.ClassDef)
        and not (node.name.startswith("_") or ast.get_docstring(node) or name in FACES)
    ]

    assert not silent


def test_public_signatures_hide_nothing_behind_any() -> None:
    loose = [
        f"{where}({argument.arg})"
        for where, function in functions(public=True)
        for argument in [*parameters(function), ast.arg("return", function.returns)]
        if where.split(":")[0] not in FACES
        if argument.annotation and re.search(r"\bAny\b", ast.unparse(argument.annotation))
    ]

    assert not loose


def test_public_signatures_take_no_booleans() -> None:
    flags = [
        f"{where}({argument.arg})"
        for where, function in functions(public=True)
        for argument in parameters(function)
        if where.split(":")[0] not in FACES
        if argument.annotation and re.search(r"\bbool\b", ast.unparse(argument.annotation))
    ]

    assert not flags


# Errors


def classes_of(root: type[TenantError], depth: int = 0) -> Iterator[tuple[int, type[TenantError]]]:
    """The error and all below it, in the order they were defined, with their depth."""
    yield depth, root
    for below in root.__subclasses__():
        yield from classes_of(below, depth + 1)


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    line = re.compile(r"^(?P<branches>[│├└─ ]*)(?P<name>[A-Z]\w+)(?:\s+(?P<status>\d+).*)?$")
    drawn = [
        (
            len(found["branches"]) // 4,
            found["name"],
            int(found["status"] or TenantError.exit_status),
        )
        for found in map(line.match, (inspect.getdoc(errors) or "").splitlines())
        if found
    ]
    defined = [
        (depth, error.__name__, error.exit_status)
        for depth, error in classes_of(TenantError)
        if error.__module__ == errors.__name__
    ]

    assert drawn == defined


@pytest.mark.parametrize(
    "error", [error for _, error in classes_of(TenantError)], ids=lambda error: error.__name__
)
def test_every_error_has_a_code_and_an_exit_status_and_needs_a_remedy(
    error: type[TenantError],
) -> None:
    told = error("what happened", remedy="the next command")

    assert str(told) == f"{error.code}: what happened; the next command"
    assert "code" in vars(error), "a code of its own"
    assert error.code == re.sub(r"(?<!^)(?=[A-Z])", "_", error.__name__).upper()
    assert 0 < error.exit_status < 126
    with pytest.raises(TypeError):
        error("what happened")  # type: ignore[call-arg]


def test_errors_of_one_kind_share_an_exit_status_and_no_two_share_a_code() -> None:
    all_errors = [error for _, error in classes_of(TenantError)]
    kinds = TenantError.__subclasses__()

    assert len({error.code for error in all_errors}) == len(all_errors)
    assert len({kind.exit_status for kind in kinds}) == len(kinds)
    for kind in kinds:
        assert {error.exit_status for _, error in classes_of(kind)} == {kind.exit_status}


# --- what is called the most

SAYS_MOST = re.compile(
    r"\b(at most|no more than|not more than|the most\b|highest|maximum|up to|nothing more)\b", re.I
)
SAYS_MONEY = re.compile(r"USD|usd|\bsum_|\bcosts?\b|\bprice|\bspen[dt]\b|\bbills?\b")
NOT_SAID = ("faces/chinese/", "emulators/")

LIMITS = "the owner's or the caller's own limit, told as a limit: leases/owner_approval.py, leases/term_checks.py"
CAP = "its price cap: leases/rent.py rents nothing above it, and the watch ends what becomes dearer"
HELD = {
    # A lease's terms. tests/e2e/test_at_most.py and the storm hold the meter against these.
    "the most that it costs: {}; the watchdog holds it to that, with one exception: what is not proved by then costs "
    "{} until you act": "the watch: leases/lifecycle.py; the condition and the exception are in it",
    "the most that it costs: {}, and {} to rescue what is unverified": "the watch, on a signature ahead",
    "the most that it costs: {}nothing more while its box is parked": "its provider bills nothing for the disk",
    "the most that it costs: {} so far, and nothing limits it, because only you can end the bill of a parked box": "no sum",
    "the most that it costs: nothing limits it, because only you can end the bill of a parked box": "no sum",
    "the most that it costs: nothing limits it while no watchdog runs": "no sum",
    "the most that it costs: nothing limits it here, because only the machine's owner ends its bill": "no sum",
    "the most that it costs: more than the {} spent so far: it passed its budget of {} USD, and is being ended": "no sum",
    "up to {} for one last start, and {} of disk": "domain/last_start.py: one start, and its guard's LAST_START_S",
    "the most that all runs of this directory may cost together": LIMITS,
    "the most that all runs of this directory may cost together, earlier ones included": LIMITS,
    "the other runs of {} cost {}, and together they may cost at most {}": LIMITS,
    "{}; all together cost at most {} ({})": "errands/drive.py: a new run's budget is what the others leave of it",
    # What somebody agrees to.
    "if this offer is gone, another for up to {} USD/h": CAP,
    "at most {}{}{} by its deadline{}": "its price cap until then; a budget and traffic are told as conditions",
    ", at most {} by {} UTC{}{}": "as above",
    ", at most {} plus traffic by {} UTC{}{}": "as above",
    "at most {}": f"in a plan only where the box's owner bills nothing; on a page a cap. {CAP}",
    "{} USD/h, and no more than {}": CAP,
    " at up to {} USD/h": CAP,
    # Limits.
    "what the offers would cost is unknown, and at most {} USD may be spent": LIMITS,
    "one box up to {} USD/h, for {} h": LIMITS,
    "a person is asked before each rental where the agent's program can ask; elsewhere an agent rents for {} USD in a "
    "day at most without a person's signature": LIMITS,
    "the most that it may cost in all": LIMITS,
    # What was, and descriptions of fields.
    "the most that it may have cost; None: cost_usd": "domain/cost_uncertainty.py; the storm compares receipts",
    "the most that it costs by its deadline": "leases/rental_plan.py: most_by_quotes",
    "what is rented, and the most that it costs": "as its headline",
    "what was to be rented, and the highest price for it": CAP,
}


def test_each_sentence_that_names_a_most_of_money_is_held_by_code_or_has_its_condition() -> None:
    said = dict(_sentences())

    assert {words: place for words, place in said.items() if words not in HELD} == {}
    assert sorted(set(HELD) - set(said)) == []


def _sentences() -> Iterator[tuple[str, str]]:
    """Each text in the code that names a most of money, with its place. Where a value is filled in, it has braces."""
    for place, nodes in NODES.items():
        if place.startswith(NOT_SAID) or not SAYS_MOST.search(SOURCES[place].read_text("utf-8")):
            continue
        for text in _texts(nodes):
            words = _words(text)
            if SAYS_MOST.search(words) and SAYS_MONEY.search(f"{words} {_names(text)}"):
                yield words, f"{place}:{text.lineno}"


def _texts(nodes: list[ast.AST]) -> Iterator[ast.Constant | ast.JoinedStr]:
    """Yield each text that is neither a comment nor a part of another text."""
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    parts |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        is_text = isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
        )
        if is_text and id(node) not in parts:
            yield node


def _words(text: ast.Constant | ast.JoinedStr) -> str:
    parts = [text] if isinstance(text, ast.Constant) else text.values
    return "".join(str(x.value) if isinstance(x, ast.Constant) else "{}" for x in parts)


def _names(text: ast.Constant | ast.JoinedStr) -> str:
    """What is filled in, as it stands in the code."""
    if isinstance(text, ast.Constant):
        return ""
    return " ".join(ast.unparse(x) for x in text.values if not isinstance(x, ast.Constant))
