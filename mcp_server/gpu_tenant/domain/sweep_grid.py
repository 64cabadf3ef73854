"""The cells of a sweep: one for each set of parameters. Each has a unique name, and all have the same command."""

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from glob import escape
from hashlib import sha256
from itertools import islice, product

from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.record import Record

MOST_CELLS = 10_000
_NAME_CHARS = 60
"""A job's name may have 64 characters. This leaves room for the number that each further attempt adds."""
_HASH_CHARS = 8
_CELL = "cell"
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,39}")
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_ATTEMPT = re.compile(r"(.+)\.r?\d+")
"""The form of the name of a further attempt at a cell. No other cell may have such a name."""
_OPEN_END = re.compile(r"\{cell\}[*?\[]")
_DOUBLED = "write a literal brace twice: `{{` and `}}`"


class Cell(Record):
    """One set of parameters, as text, under a name that no other cell of the grid has."""

    name: str
    parameters: dict[str, str]


class Grid(Record):
    """What a sweep runs: one command and its outputs, for each of its cells."""

    command: str
    artifacts: tuple[str, ...]
    discard: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def digest(self) -> str:
        """A digest of exactly this grid."""
        return sha256(self.model_dump_json().encode()).hexdigest()[:16]

    def command_of(self, cell: Cell) -> str:
        """Return the command for the cell, with each value quoted for the shell."""
        return _fill(self.command, cell, shlex.quote)

    def artifacts_of(self, cell: Cell) -> tuple[str, ...]:
        """Return the patterns of the files that the cell must produce."""
        return tuple(_fill(pattern, cell, escape) for pattern in self.artifacts)

    def places_of(self, cell: Cell) -> tuple[str, ...]:
        """Return the paths that the cell's artifacts name. A pattern with a wildcard names none."""
        plain = (pattern for pattern in self.artifacts if not set(pattern) & set("*?[!\\"))
        return tuple(_fill(pattern, cell, str) for pattern in plain)

    def discard_of(self, cell: Cell) -> tuple[str, ...]:
        """Return the patterns of the cell's files that may be lost."""
        return tuple(_fill(pattern, cell, escape) for pattern in self.discard)


def variables_of(cell: Cell) -> dict[str, str]:
    """Return the environment variables that tell the cell's job about itself."""
    said = {_variable(name): value for name, value in cell.parameters.items()}
    return {"GPU_TENANT_CELL": cell.name, **said}


def grid_of(
    command: str,
    *,
    artifacts: Sequence[str],
    discard: Sequence[str] = (),
    matrix: Mapping[str, Sequence[object]] | None = None,
    cells: Sequence[Mapping[str, object]] = (),
    prefix: str | None = None,
) -> Grid:
    """Return the grid that `matrix` spans, or the cells that `cells` lists, in the given order.

    Names are stable: the same parameters always give the same name.

    Raises:
        BadRequest: the grid is empty or too large, two cells are equal or would overwrite each other's files, or the
            command and the patterns do not fit the parameters.
    """
    listed = _span(matrix) if matrix else [_text(cell) for cell in cells[: MOST_CELLS + 1]]
    if bool(matrix) == bool(cells) or not listed or not listed[0]:
        raise BadRequest(
            "a sweep needs cells: a matrix of parameters, or a list of cells",
            remedy="matrix={'lr': [0.1, 0.2]} (`--matrix lr=0.1,0.2`), or cells=[{'lr': 0.1}]",
        )
    _require_sound(listed)
    found = Grid(
        command=command,
        artifacts=tuple(artifacts),
        discard=tuple(discard),
        cells=tuple(
            Cell(name=name, parameters=parameters)
            for name, parameters in zip(_names(listed, prefix), listed, strict=True)
        ),
    )
    _require_fit(found)
    return found


# The parameters


def _span(matrix: Mapping[str, Sequence[object]]) -> list[dict[str, str]]:
    for name, values in matrix.items():
        if isinstance(values, str) or not values:
            raise BadRequest(
                f"the parameter {name} has no list of values", remedy=f"write {{{name!r}: [1, 2]}}"
            )
    combined = (_text(dict(zip(matrix, each, strict=True))) for each in product(*matrix.values()))
    return list(islice(combined, MOST_CELLS + 1))


def _text(cell: Mapping[str, object]) -> dict[str, str]:
    for name, value in cell.items():
        if not isinstance(value, str | int | float):
            raise BadRequest(
                f"a value of {name} is neither a word nor a number",
                remedy="give words, numbers, true or false; each value of a list would be a cell of its own",
            )
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in cell.items()
    }


def _require_sound(listed: Sequence[Mapping[str, str]]) -> None:
    if len(listed) > MOST_CELLS:
        raise BadRequest(
            f"the grid has more than {MOST_CELLS:,} cells", remedy="split it into several sweeps"
        )
    names = list(listed[0])
    for name in names:
        if name == _CELL or not _PARAMETER.fullmatch(name):
            raise BadRequest(
                f"{name[:50]!r} cannot name a parameter",
                remedy="use a letter, then letters, digits, `_`, `.` and `-`; `cell` is the cell's name",
            )
    alike = [name for name, count in Counter(map(_variable, names)).items() if count > 1]
    if alike:
        raise BadRequest(
            f"two parameters would both be {alike[0]} in the environment", remedy="rename one"
        )
    for cell in listed:
        if set(cell) != set(names):
            raise BadRequest(
                f"not every cell has the parameters {', '.join(names)}: one has {', '.join(cell)}",
                remedy="give every cell every parameter",
            )
        if any("\0" in value for value in cell.values()):
            raise BadRequest("a value contains a NUL", remedy="remove it: no command can take one")
    again = [cell for cell, count in Counter(map(_key, listed)).items() if count > 1]
    if again:
        raise BadRequest(f"a cell is listed twice: {again[0]}", remedy="list it once")


def _key(cell: Mapping[str, str]) -> str:
    return json.dumps(cell, sort_keys=True, ensure_ascii=False)


def _variable(parameter: str) -> str:
    return "GPU_TENANT_PARAM_" + re.sub(r"[^A-Za-z0-9_]", "_", parameter).upper()


# The names


def _names(listed: Sequence[Mapping[str, str]], prefix: str | None) -> list[str]:
    plain = [_plain(cell, prefix) for cell in listed]
    # Names are compared without case, because the artifacts may end up where `A` and `a` are one file.
    taken = Counter(name.casefold() for name in plain)

    def is_its_own(name: str) -> bool:
        of = _ATTEMPT.fullmatch(name.casefold())
        return (
            taken[name.casefold()] == 1
            and len(name) <= _NAME_CHARS
            and (of is None or of[1] not in taken)
        )

    return [
        name if is_its_own(name) else _hash_cell(name, cell)
        for name, cell in zip(plain, listed, strict=True)
    ]


def _plain(cell: Mapping[str, str], prefix: str | None) -> str:
    said = "_".join(f"{name}-{value}" for name, value in cell.items())
    legal = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{prefix}_{said}" if prefix else said)
    return legal if legal[0].isalnum() else f"x{legal}"


def _hash_cell(name: str, cell: Mapping[str, str]) -> str:
    digest = sha256(_key(cell).encode()).hexdigest()[:_HASH_CHARS]
    return f"{name[: _NAME_CHARS - _HASH_CHARS - 1]}-{digest}"


# The command and the patterns


def _fill(text: str, cell: Cell, quoted: Callable[[str], str]) -> str:
    """Return the text with each `{name}` replaced by the value of that parameter.

    Raises:
        BadRequest: a name is not a parameter, or a brace is unmatched.
    """
    known = {_CELL: cell.name, **cell.parameters}

    def value(found: re.Match[str]) -> str:
        if found[0] in ("{{", "}}"):
            return found[0][0]
        if found[1] is None:
            raise BadRequest(f"a brace has no partner in {text!r}", remedy=_DOUBLED)
        if found[1] not in known:
            raise BadRequest(
                f"{found[0]} in {text!r} is not a parameter (known: {', '.join(known)})",
                remedy=_DOUBLED,
            )
        return quoted(known[found[1]])

    return _BRACES.sub(value, text)


def _names_in(text: str) -> set[str]:
    return {found for found in _BRACES.findall(text) if found}


def _require_fit(found: Grid) -> None:
    first = found.cells[0]
    for text in (found.command, *found.artifacts, *found.discard):
        _fill(text, first, str)
    for name in first.parameters:
        if name not in _names_in(found.command) and _variable(name) not in found.command:
            raise BadRequest(
                f"the command never uses the parameter {name}, so its cells would be the same run",
                remedy=f"write {{{name}}} where its value belongs, or ${_variable(name)}; or remove it",
            )
    for pattern in found.artifacts if len(found.cells) > 1 else ():
        if _CELL not in _names_in(pattern):
            raise BadRequest(
                f"every cell would write to {pattern!r}, and overwrite the others",
                remedy="give each its own path, for example 'out/{cell}/', and let the command write there",
            )
        if _OPEN_END.search(pattern):
            raise BadRequest(
                f"{pattern!r} may match the files of another cell, whose name begins the same",
                remedy="end the cell's name with a `/` or a `.`",
            )
