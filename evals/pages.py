"""The skill's pages: their sections, and how many links lie between SKILL.md and each of them."""

import re
from pathlib import Path

from evals.book import ROOT

_SHELVES = ("references", "profiles", "scripts")
_LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)|`([\w./-]+\.(?:md|py|sh))`")
_NAMED = re.compile(rf"(?<![\w/])((?:{'|'.join(_SHELVES)})/[\w./-]+\.(?:md|py|sh))")
_FENCE = re.compile(r"\s*(```|~~~)")


def sections(text: str) -> list[str]:
    """The page cut at its headings, folded; what stands before the first is a section, too."""
    parts: list[list[str]] = [[]]
    fenced = False
    for line in text.splitlines():
        if _FENCE.match(line):
            fenced = not fenced
        elif line.startswith("#") and not fenced:
            parts.append([])
        parts[-1].append(line)
    return [folded("\n".join(lines)) for lines in parts]


def folded(text: str) -> str:
    """The words without backticks, emphasis and line ends, so that layout does not hide a fact."""
    return re.sub(r"\s+", " ", re.sub(r"[`*|]", "", text))


def links(page: Path) -> set[Path]:
    """The pages and scripts of the skill that this page names."""
    text = page.read_text(encoding="utf-8")
    near = {page.parent / (a or b) for a, b in _LINK.findall(text)}
    far = {ROOT / name for name in _NAMED.findall(text)}
    return {path.resolve() for path in near | far if path.is_file()} & everything()


def everything() -> set[Path]:
    """Every page and script of the skill but SKILL.md itself."""
    return {
        path
        for shelf in _SHELVES
        for suffix in ("md", "py", "sh")
        for path in (ROOT / shelf).rglob(f"*.{suffix}")
    }


def hops() -> dict[str, int]:
    """How many links lead from SKILL.md to each page that can be reached, by its path."""
    reached = {ROOT / "SKILL.md": 0}
    ring = [ROOT / "SKILL.md"]
    while ring:
        ring = [
            page
            for here in ring
            if here.suffix == ".md"
            for page in sorted(links(here))
            if reached.setdefault(page, reached[here] + 1) == reached[here] + 1
        ]
        ring = list(dict.fromkeys(ring))
    return {path.relative_to(ROOT).as_posix(): far for path, far in reached.items()}
