"""The pictures in the pages, as SVG: the packages on their floors, and a terminal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap

_PLAIN = "ui-sans-serif, system-ui, 'Segoe UI', Helvetica, Arial, sans-serif"
_MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


COLUMNS = 110


@dataclass(frozen=True, slots=True)
class Package:
    name: str
    answers: str
    imports: frozenset[str]


def _text(x: float, y: float, words: str, style: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>'


def _svg(width: float, height: float, background: str, title: str, parts: Sequence[str]) -> str:
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{background}"/>',
            *parts,
            "</svg>\n",
        )
    )


def floors(layers: Sequence[Sequence[Package]]) -> str:
    """A row for each package; a band for each layer; a dot where the row imports the column."""
    row, head, left, middle, cell = 30, 150, 14, 800, 22
    packages = [package for layer in layers for package in layer]
    columns = {package.name: middle + i * cell for i, package in enumerate(packages)}
    width, height = middle + len(packages) * cell + 60, head + row * len(packages) + 16
    parts = [
        _text(
            left, 32, "Imports go down", f'font-family="{_PLAIN}" font-size="20" font-weight="600"'
        ),
        _text(
            left,
            58,
            "A row is a package, with what it answers. A dot says that it imports the package of that column.",
            f'font-family="{_PLAIN}" font-size="14" fill="#57606a"',
        ),
        _text(
            left,
            80,
            "Packages of one band do not know each other.",
            f'font-family="{_PLAIN}" font-size="14" fill="#57606a"',
        ),
    ]
    y = head
    for floor, layer in enumerate(layers):
        fill = "#eef2f6" if floor % 2 else "#ffffff"
        parts.append(
            f'<rect x="0" y="{y}" width="{width}" height="{row * len(layer)}" fill="{fill}"/>'
        )
        y += row * len(layer)
    for i, package in enumerate(packages):
        x, middle_y = columns[package.name], head + i * row + row / 2
        parts.extend(
            (
                f'<path d="M{x} {head - 4}V{middle_y}" stroke="#d0d7de" stroke-width="1"/>',
                (
                    f'<text transform="translate({x + 4} {head - 10}) rotate(-55)" font-family="{_MONO}" font-size="12">'
                    f"{escape(package.name)}</text>"
                ),
            )
        )
    for i, package in enumerate(packages):
        middle_y = head + i * row + row / 2
        parts.extend(
            (
                _text(
                    left,
                    middle_y + 5,
                    package.name,
                    f'font-family="{_MONO}" font-size="14" font-weight="600"',
                ),
                _text(180, middle_y + 5, package.answers, f'font-family="{_PLAIN}" font-size="14"'),
                f'<circle cx="{columns[package.name]}" cy="{middle_y:g}" r="5" fill="none" stroke="#57606a"/>',
            )
        )
        parts.extend(
            f'<circle cx="{columns[name]}" cy="{middle_y:g}" r="5" fill="#0969da"/>'
            for name in columns
            if name in package.imports
        )
    return _svg(
        width, height, "#ffffff", "The packages of gpu-tenant, their layers and imports", parts
    )


def terminal(lines: Sequence[str], colours: Mapping[str, str], title: str) -> str:
    """The lines in a terminal; one that starts with a key of `colours`, blanks apart, has its colour."""
    advance, leading, top, left = 7.85, 19, 58, 18
    width = left * 2 + advance * max(len(line) for line in lines)
    parts = [
        *(
            f'<circle cx="{left + 6 + 20 * i}" cy="20" r="6" fill="{fill}"/>'
            for i, fill in enumerate(("#ff5f57", "#febc2e", "#28c840"))
        ),
        _text(left + 72, 25, title, f'font-family="{_MONO}" font-size="13" fill="#8b949e"'),
    ]
    for i, line in enumerate(lines):
        fill = next(
            (colour for start, colour in colours.items() if line.lstrip().startswith(start)),
            "#c9d1d9",
        )
        style = f'font-family="{_MONO}" font-size="13" xml:space="preserve" fill="{fill}"'
        length = (
            f' textLength="{advance * len(line):g}" lengthAdjust="spacingAndGlyphs"' if line else ""
        )
        parts.append(_text(left, top + leading * i, line, style + length))
    return _svg(width, top + leading * len(lines), "#0d1117", title, parts)


def demo(said: str) -> str:
    """What the demo says, as a terminal of a hundred and ten columns shows it."""
    lines = [
        part
        for line in said.splitlines()
        for part in wrap(
            line,
            COLUMNS,
            subsequent_indent=" " * (len(line) - len(line.lstrip()) + 4),
            drop_whitespace=True,
            replace_whitespace=False,
            break_on_hyphens=False,
        )
        or [""]
    ]
    colours = {"[step": "#56d4dd", "refused:": "#ff7b72", "hint:": "#d29922", "receipt": "#7ee787"}
    return terminal(lines, colours, "make demo")
