"""The rules for the skill's files: each names what breaks it, as `file:line: words`."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

KILOBYTE = 1024
NAME = "gpu-tenant"
FOLDERS = ("references", "profiles", "scripts")

MOST_DESCRIPTION = 1024
MOST_SKILL_BYTES = 8 * KILOBYTE
MOST_SKILL_LINES = 500
MOST_PROFILE_BYTES = 9 * KILOBYTE
MOST_LOADED_BYTES = 262 * KILOBYTE
LINES_WITHOUT_CONTENTS = 100

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_QUOTED = re.compile(r"`(?:\./)?((?:references|profiles|scripts)/[\w./-]+?\.\w+)`")
_FENCE = re.compile(r"^\s*(```|~~~)")
_FIRST_PERSON = re.compile(r"\b(I|I'm|we|we're|my|our|us|you|your|you're)\b", re.IGNORECASE)
_SUBSTITUTED = re.compile(r"\$(?:\d|ARGUMENTS|\{)|\$[A-Za-z_]|!`")
_KEEPERS = "pypi|pythonhosted|npmjs|anaconda|conda|crates|rubygems|golang|ubuntu|debian"
_REGISTRY = re.compile(
    rf"\b(?:[\w-]+\.)*(?:{_KEEPERS})\.(?:org|com|io)\b"
    r"|\b(?:mirrors?|pypi)\.[\w.-]+\.(?:cn|com|org|net)\b"
)
"""Package registries and their mirrors; `scripts/mirrors.sh` finds the one that a platform documents."""

Rule = Callable[[Path], Iterator[str]]
RULES: dict[str, Rule] = {}


def rule(function: Rule) -> Rule:
    RULES[function.__name__] = function
    return function


def at(root: Path, file: Path, line: int, words: str) -> str:
    return f"{file.relative_to(root).as_posix()}:{line}: {words}"


def pages(root: Path, *folders: str) -> list[Path]:
    """The pages there that an agent reads. The Chinese runbooks in `profiles/zh` are for a person."""
    found = [page for folder in folders for page in sorted((root / folder).rglob("*.md"))]
    return [page for page in found if page.parent != root / "profiles/zh"]


def lines(page: Path) -> list[tuple[int, str]]:
    return list(enumerate(page.read_text(encoding="utf-8").splitlines(), 1))


def front(page: Path) -> tuple[dict[str, object], str, int]:
    """The front matter as values and as text, and the line on which the body begins."""
    text = page.read_text(encoding="utf-8")
    found = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    if found is None:
        return {}, "", 1
    facts = yaml.load(found[1], Loader=yaml.SafeLoader)  # noqa: TID251 - as a host reads it
    return facts if isinstance(facts, dict) else {}, found[1], found[0].count("\n") + 1


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    kept = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower())
    return kept.strip().replace(" ", "-")


def headings(page: Path) -> list[tuple[int, int, str]]:
    """Line, depth and words of every heading outside code."""
    found, fenced = [], False
    for number, line in lines(page):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced and (heading := re.match(r"(#{1,6}) +(.*?) *$", line)):
            found.append((number, len(heading[1]), heading[2]))
    return found


def anchors(page: Path) -> set[str]:
    counted: dict[str, int] = {}
    for _, _, words in headings(page):
        counted[slug(words)] = counted.get(slug(words), 0) + 1
    return {f"{s}-{n}" if n else s for s, times in counted.items() for n in range(times)}


def named(root: Path, page: Path) -> Iterator[tuple[int, str, Path, str]]:
    """Line, words, file and anchor of everything that `page` leads to in this tree."""
    for number, line in lines(page):
        for target in _LINK.findall(line):
            if not re.match(r"[a-z][a-z0-9+.-]*:", target):
                file, _, anchor = target.partition("#")
                yield (
                    number,
                    target,
                    Path(os.path.normpath(page.parent / file)) if file else page,
                    anchor,
                )
        for target in _QUOTED.findall(line):
            beside = page.parent / target
            yield number, target, beside if beside.exists() else root / target, ""


# SKILL.md


@rule
def its_front_matter_has_the_four_fields_of_every_host(root: Path) -> Iterator[str]:
    skill = root / "SKILL.md"
    facts, text, _ = front(skill)
    if (fields := sorted(facts)) != ["description", "license", "metadata", "name"]:
        yield at(
            root,
            skill,
            1,
            f"fields are {fields}; one host or another refuses any but name, description, license, metadata",
        )
    if facts.get("name") != NAME:
        yield at(root, skill, 2, f"name is {facts.get('name')!r}, and a host wants the directory's")
    metadata = facts.get("metadata")
    for key, value in metadata.items() if isinstance(metadata, dict) else [("metadata", None)]:
        if not isinstance(value, str):
            yield at(root, skill, 1, f"{key} is not a string")
    for number, line in enumerate(text.splitlines(), 2):
        scalar = re.match(r"\s+[\w-]+: *(.*)|description: *(.*)", line)
        if scalar and not (scalar[1] or scalar[2] or "").startswith('"'):
            yield at(
                root, skill, number, "quote it, so that no YAML reader takes it for something else"
            )


@rule
def its_description_says_what_and_when_in_two_languages(root: Path) -> Iterator[str]:
    skill = root / "SKILL.md"
    words = str(front(skill)[0].get("description", ""))
    if not 0 < len(words) <= MOST_DESCRIPTION:
        yield at(root, skill, 3, f"description has {len(words)} of {MOST_DESCRIPTION} characters")
    if found := _FIRST_PERSON.search(words):
        yield at(root, skill, 3, f"description is in the third person, and says {found[0]!r}")
    if not re.match(r"[A-Z][a-z]+s\b", words):
        yield at(
            root, skill, 3, "description begins with what the skill does: a verb, third person"
        )
    if "Use when" not in words:
        yield at(root, skill, 3, "description does not say when: `Use when ...`")
    if not re.search(r"[a-z]{3}", words) or not re.search(r"[\u4e00-\u9fff]{4}", words):
        yield at(root, skill, 3, "description has to match requests in English and in Chinese")
    if re.search(r"</?[A-Za-z]", words):
        yield at(root, skill, 3, "description holds an XML tag")
    if found := re.search(r"claude|anthropic", words, re.IGNORECASE):
        yield at(root, skill, 3, f"description holds the reserved word {found[0]!r}")


@rule
def the_hub_fits_a_context(root: Path) -> Iterator[str]:
    skill = root / "SKILL.md"
    size, count = len(skill.read_bytes()), len(lines(skill))
    if size > MOST_SKILL_BYTES:
        yield at(root, skill, count, f"{size} bytes, {size - MOST_SKILL_BYTES} too many")
    if count >= MOST_SKILL_LINES:
        yield at(root, skill, count, f"{count} lines; fewer than {MOST_SKILL_LINES} are read")


@rule
def nothing_in_the_hub_is_substituted_by_a_host(root: Path) -> Iterator[str]:
    skill = root / "SKILL.md"
    for number, line in lines(skill):
        if found := _SUBSTITUTED.search(line):
            yield at(root, skill, number, f"{found[0]!r}: a host would put something else there")


# All pages


@rule
def the_pages_together_stay_small(root: Path) -> Iterator[str]:
    sizes = {page: len(page.read_bytes()) for page in pages(root, "references", "profiles")}
    if (total := sum(sizes.values())) > MOST_LOADED_BYTES:
        largest = max(sizes, key=sizes.__getitem__)
        yield at(
            root,
            largest,
            1,
            f"the largest of {total} bytes in all, {total - MOST_LOADED_BYTES} too many",
        )
    for page in pages(root, "profiles"):
        if sizes[page] > MOST_PROFILE_BYTES:
            yield at(root, page, 1, f"{sizes[page]} bytes; a profile has {MOST_PROFILE_BYTES}")


@rule
def a_reference_begins_with_when_to_read_it(root: Path) -> Iterator[str]:
    for page in pages(root, "references"):
        title = next((n for n, depth, _ in headings(page) if depth == 1), 0)
        following = lines(page)[title : title + 3]
        if not title:
            yield at(root, page, 1, "it has no title")
        elif not any(line.startswith("Read this ") for _, line in following):
            yield at(root, page, title + 1, "`Read this when ...` is not under the title")


@rule
def a_long_page_has_a_table_of_contents(root: Path) -> Iterator[str]:
    for page in pages(root, "references", "profiles"):
        count = len(lines(page)) - front(page)[2] + 1
        if count <= LINES_WITHOUT_CONTENTS:
            continue
        first = next((n for n, depth, _ in headings(page) if depth == 2), count)
        before = [line for n, line in lines(page) if n <= first]
        if not any(re.match(r"[#*_ ]*Contents\b", line) for line in before):
            yield at(
                root, page, first, f"{count} lines, and no `Contents` before the first section"
            )


@rule
def every_file_that_a_page_names_is_there(root: Path) -> Iterator[str]:
    for page in (root / "SKILL.md", *pages(root, "references", "profiles")):
        for number, words, file, _ in named(root, page):
            if not file.exists():
                yield at(root, page, number, f"{words} is not there")
            elif not file.is_relative_to(root):
                yield at(root, page, number, f"{words} leads out of the skill")


@rule
def every_anchor_that_a_page_names_is_there(root: Path) -> Iterator[str]:
    for page in (root / "SKILL.md", *pages(root, "references", "profiles")):
        for number, words, file, anchor in named(root, page):
            if anchor and file.suffix == ".md" and file.exists() and anchor not in anchors(file):
                yield at(root, page, number, f"{words}: no heading makes #{anchor}")


@rule
def links_have_forward_slashes(root: Path) -> Iterator[str]:
    for page in (root / "SKILL.md", *pages(root, "references", "profiles")):
        for number, line in lines(page):
            if any("\\" in target for target in _LINK.findall(line)):
                yield at(root, page, number, "a link with a backslash")


@rule
def everything_is_reached_from_the_hub_in_two_hops(root: Path) -> Iterator[str]:
    skill = root / "SKILL.md"
    first = {file for _, _, file, _ in named(root, skill)}
    second = {
        file
        for page in first
        if page.suffix == ".md" and page.exists()
        for _, _, file, _ in named(root, page)
    }
    for file in pages(root, "references", "profiles"):
        if file not in first | second:
            yield at(root, file, 1, "SKILL.md does not lead here in two hops")


@rule
def references_are_one_level_deep(root: Path) -> Iterator[str]:
    direct = {file for _, _, file, _ in named(root, root / "SKILL.md")}
    for page in pages(root, "references"):
        depth = len(page.relative_to(root / "references").parts)
        if depth > 2 or (depth == 2 and page.parent.name != "debug"):
            yield at(root, page, 1, "it lies deeper than references/ and references/debug/")
        elif depth == 2 and page not in direct:
            yield at(root, page, 1, "SKILL.md does not link to it directly")


@rule
def no_page_names_a_package_registry(root: Path) -> Iterator[str]:
    texts = [
        *pages(root, "references", "profiles"),
        *(p for p in sorted((root / "scripts").glob("*")) if p.is_file()),
    ]
    for file in (root / "SKILL.md", *texts):
        for number, line in lines(file):
            if found := _REGISTRY.search(line):
                yield at(root, file, number, f"{found[0]} is a package registry; name it in words")


@rule
def no_page_has_a_dollar_before_a_digit(root: Path) -> Iterator[str]:
    for page in (root / "SKILL.md", *pages(root, "references", "profiles")):
        fenced = False  # in a shell script it is a parameter
        for number, line in lines(page):
            fenced ^= bool(_FENCE.match(line))
            if not fenced and re.search(r"\$\d", line):
                yield at(root, page, number, "write 2.49 USD/h")
