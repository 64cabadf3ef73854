"""The command that proposes a gotcha: the guide's entry, the question that it answers, and how it was reproduced."""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

import click

from gpu_tenant.domain.clock import WallClock
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.wording import in_words
from gpu_tenant.faces.cli import output
from gpu_tenant.faces.cli.command import as_json, verb
from gpu_tenant.files.secret_scan import find_secrets
from gpu_tenant.files.skill_files import skill_directory

_PAGE = "references/gotchas.md"
_QUESTIONS = "evals/answers/trouble.yaml"
_ORIGINS = "evals/sources/gotchas.yaml"
_MOST_BYTES = 700
_WIDTH = 150
_ALIKE = 0.6
"""The part of a symptom's words that an entry may hold before the two are taken for one gotcha."""


@dataclass(frozen=True, slots=True)
class _Gotcha:
    """What its finder knows."""

    slug: str
    part: str
    symptom: str
    cause: str
    fix: str
    reproduced: str
    holds: str
    question: str
    says: tuple[str, ...]

    @property
    def entry(self) -> str:
        """The entry, as the page has them."""
        line = " → ".join((self.symptom, self.cause, self.fix))
        wrapped = textwrap.wrap(line, _WIDTH, break_long_words=False, break_on_hyphens=False)
        return f"### {self.slug}\n" + "\n".join(wrapped) + "\n"

    @property
    def scenario(self) -> str:
        """The question, as `evals/answers` has them."""
        says = json.dumps([re.escape(words) for words in self.says], ensure_ascii=False)
        return (
            f"- id: {self.slug}\n  ask: {_text(self.question)}\n  facts:\n"
            f"    - {{file: {_PAGE}, says: {says}}}\n"
        )

    @property
    def origin(self) -> str:
        """How it was reproduced, where it holds, and the day."""
        day = WallClock().now().date().isoformat()
        return (
            f"- id: {self.slug}\n  reproduced: {_text(self.reproduced)}\n"
            f"  holds: {_text(self.holds)}\n  on: {day}\n"
        )


class Proposed(Record):
    """What was written, and where."""

    slug: str
    entry: str
    files: tuple[str, ...]
    next: tuple[str, ...]


@verb("gotcha")
@click.argument("action", type=click.Choice(["new"]))
@click.argument("slug")
@click.option("--part", required=True, help="the heading of the page that it stands below")
@click.option("--symptom", required=True, help="what one sees: the message, word for word")
@click.option("--cause", required=True, help="why it happens")
@click.option("--fix", required=True, help="what to do, and what not to do")
@click.option(
    "--reproduced",
    required=True,
    help="how it was made to happen, or whose page says it: versions, command, or address",
)
@click.option("--holds", required=True, help="where it holds: platforms, versions, since when")
@click.option("--question", required=True, help="what somebody in that trouble would ask")
@click.option(
    "--says",
    required=True,
    multiple=True,
    help="words of the entry that a right answer rests on; may be repeated",
)
@click.option(
    "--unlike",
    multiple=True,
    metavar="SLUG",
    help="an entry that looks alike, and is another gotcha; may be repeated",
)
@click.option(
    "--in",
    "root",
    type=click.Path(file_okay=False, path_type=Path),
    help="a checkout of the repository; the current directory, or this program's own, when left out",
)
@as_json
async def gotcha(
    action: str,
    slug: str,
    part: str,
    symptom: str,
    cause: str,
    fix: str,
    reproduced: str,
    holds: str,
    question: str,
    says: tuple[str, ...],
    unlike: tuple[str, ...],
    root: Path | None,
    as_json: bool,
) -> None:
    """In a checkout, the entry, its question and its origin are written into the files that hold them.

    Elsewhere they are written into one new file in the current directory, to send with a pull request or an issue.
    """
    del action
    found = _Gotcha(
        slug=slug,
        part=part,
        symptom=_line(symptom),
        cause=_line(cause),
        fix=_line(fix),
        reproduced=_line(reproduced),
        holds=_line(holds),
        question=_line(question),
        says=says,
    )
    checkout = _checkout(root)
    page = ((checkout or skill_directory()) / _PAGE).read_text(encoding="utf-8")
    _must_clear(found, page, unlike)
    files = _into(checkout, found, page) if checkout else _beside(found)
    steps = ("make docs", "python -m evals answers") if checkout else ()
    told = Proposed(slug=slug, entry=found.entry, files=files, next=steps)
    output.answer(told, as_json, _print)


def _print(told: Proposed) -> None:
    click.echo(told.entry)
    for file in told.files:
        click.echo(f"written: {file}")
    for step in told.next:
        click.echo(f"next: {step}")
    click.echo("what a reviewer looks at: CONTRIBUTING, *Add a gotcha*")


def _checkout(root: Path | None) -> Path | None:
    """Return the checkout to write into. None if there is none, and none was named."""
    for place in (root,) if root else (Path.cwd(), skill_directory()):
        if (place / _PAGE).is_file() and (place / _QUESTIONS).is_file():
            return place
    if root:
        raise BadRequest(
            f"{root} is no checkout of the repository",
            remedy="leave --in out: then one file is written here, to send",
        )
    return None


def _must_clear(found: _Gotcha, page: str, unlike: tuple[str, ...]) -> None:
    """Refuse what no reviewer would take.

    Raises:
        BadRequest: the name, the part, a word to look for, the size, a secret, or an entry that says it already.
    """
    entries = dict(re.findall(r"(?ms)^### (\S+)\n(.*?)(?=^#|\Z)", page))
    parts = re.findall(r"(?m)^## (.+)$", page)
    words = _folded(found.entry)
    missing = [said for said in found.says if _folded(said) not in words]
    size = len(found.entry.encode())
    alike = [slug for slug, text in entries.items() if _is_alike(found.symptom, text)]
    alike = [slug for slug in alike if slug not in unlike]
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", found.slug):
        raise BadRequest(
            f"{found.slug!r} is no name for a gotcha", remedy="take small words, as in `frozen-log`"
        )
    if found.slug in entries:
        raise BadRequest(
            f"there is a gotcha {found.slug} already", remedy=f"add to it, in {_PAGE}, or rename"
        )
    if found.part not in parts:
        raise BadRequest(
            f"the page has no part {found.part!r}", remedy=f"take one of: {in_words(parts)}"
        )
    if alike:
        raise BadRequest(
            f"this may be said already, by {in_words(alike)}",
            remedy=f"read it; if it is another gotcha, say so: --unlike {alike[0]}",
        )
    if missing:
        raise BadRequest(
            f"the entry does not say {in_words(missing)}",
            remedy="name words of symptom, cause or fix, as they stand there",
        )
    if size > _MOST_BYTES:
        raise BadRequest(
            f"the entry has {size} of {_MOST_BYTES} bytes", remedy="one thought, fewer words"
        )
    told = "\n".join((found.entry, found.scenario, found.origin))
    if find_secrets("gotcha.md", told.encode()):
        raise BadRequest(
            "what it says looks like a secret", remedy="take the key out, and revoke it"
        )


def _into(checkout: Path, found: _Gotcha, page: str) -> tuple[str, ...]:
    """Write the entry at the end of its part, and add its question and its origin."""
    before, heading, rest = page.partition(f"\n## {found.part}\n")
    inside, mark, after = rest.partition("\n## ")
    page = f"{before}{heading}{inside.rstrip()}\n\n{found.entry}{mark}{after}"
    (checkout / _PAGE).write_text(page, encoding="utf-8")
    for name, more in ((_QUESTIONS, found.scenario), (_ORIGINS, found.origin)):
        with (checkout / name).open("a", encoding="utf-8") as file:
            file.write(more)
    return tuple(str(checkout / name) for name in (_PAGE, _QUESTIONS, _ORIGINS))


def _beside(found: _Gotcha) -> tuple[str, ...]:
    """Write all of it into one new file here.

    Raises:
        BadRequest: the file is there already.
    """
    file = Path.cwd() / f"gotcha-{found.slug}.md"
    text = (
        f"<!-- {_PAGE}, {found.part} -->\n{found.entry}\n```yaml\n# {_QUESTIONS}\n{found.scenario}```\n\n"
        f"```yaml\n# {_ORIGINS}\n{found.origin}```\n"
    )
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError as error:
        raise BadRequest(f"{file} is there already", remedy="move it away first") from error
    return (str(file),)


def _is_alike(symptom: str, entry: str) -> bool:
    mine, theirs = _words(symptom), _words(entry)
    return bool(mine) and len(mine & theirs) >= _ALIKE * len(mine)


def _words(text: str) -> set[str]:
    return set(re.findall(r"[\w-]{4,}", text.casefold()))


def _folded(text: str) -> str:
    return " ".join(re.sub(r"[`*|]", "", text).split()).casefold()


def _line(text: str) -> str:
    return " ".join(text.split())


def _text(words: str) -> str:
    return json.dumps(words, ensure_ascii=False)
