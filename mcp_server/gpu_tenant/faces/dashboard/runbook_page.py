"""Makes a page from a platform's profile: its traps, what stops the bill, what survives, and the source of each fact.

The page has no script and no style of its own, so that it can be read and printed even if nothing else works.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import pairwise

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from gpu_tenant.domain.model import Place, Profile
from gpu_tenant.domain.platform_comparison import comparison, disks
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.sourced_fact import Fact
from gpu_tenant.faces.chinese.facts import chinese_fact
from gpu_tenant.faces.chinese.runbooks import chinese_runbook
from gpu_tenant.faces.dashboard import runbook_i18n as words
from gpu_tenant.faces.dashboard.runbook_i18n import Lang, heading, words_for

_PLACE = re.compile(r"(?P<part>\w+)(?:\[(?P<entry>[^\]]*)\])?(?:\.(?P<rest>.+))?")
_ELSEWHERE = ("https://", "http://", "#")
_PLATFORM = re.compile(r"(?:\.\./profiles/|\./)?(zh/)?([a-z][a-z0-9_]*)\.md")


class Stated(Record):
    """A fact, as the page shows it."""

    name: str
    value: str
    note: int | None
    """The number of the fact's source. None for the profile's first source, which the page names once."""
    confidence: str
    weak: bool


def runbook_page(profile: Profile, lang: Lang = "en") -> str:
    """Make the page of that platform as HTML. Parts without a translation are shown in English."""
    notes, say = _Notes(profile.facts), partial(_in_words, lang=lang)
    facts = {fact.place: fact for fact in profile.facts}
    translated = chinese_runbook(profile.id) if lang == "zh" else None
    body, contents = _render_body(translated or profile.runbook)
    return (
        _templates()
        .get_template("runbook.html")
        .render(
            lang=lang,
            profile=profile,
            say=say,
            head=partial(heading, lang=lang),
            word=lambda table, key: words_for(getattr(words, table), key, lang),
            events=words.EVENTS,
            names=facts["names"].value if "names" in facts else profile.title,
            trust=facts["trust"].value if "trust" in facts else None,
            steps=[
                (words_for(words.STEPS, verb, lang), say(said))
                for verb in words.STEPS
                if profile.console and (said := getattr(profile.console, verb))
            ],
            survival=[
                (
                    place,
                    [
                        (event, _fate(facts, notes, _facts_about(place), event))
                        for event in words.EVENTS
                    ],
                )
                for _, place in disks(profile)
            ],
            meter=_show_fact(facts.get("deadman.stops_the_meter"), notes, lang),
            taken_back=_show_fact(facts.get("interrupt.how"), notes, lang),
            sections=[
                (title if lang == "en" else chinese, stated)
                for title, chinese, parts in words.SECTIONS.values()
                if (stated := list(_state_facts(profile.facts, parts, notes, lang)))
            ],
            doubts=[name_fact(*doubt.partition(": ")[::2], lang) for doubt in profile.doubts],
            body=body,
            body_lang="zh-CN" if translated else "en",
            contents=contents,
            sources=[
                (number, source, day, words_for(words.CONFIDENCE, confidence, lang))
                for number, (source, day, confidence) in enumerate(notes.known, start=1)
            ],
        )
    )


def comparison_page(profiles: Sequence[Profile], lang: Lang = "en") -> str:
    """Make the page that compares the platforms. Its tables are those of `profiles --compare`."""
    markdown = _markdown()
    tables = markdown.render(comparison(profiles, chinese_fact if lang == "zh" else str))
    return (
        _templates()
        .get_template("comparison.html")
        .render(lang=lang, head=partial(heading, lang=lang), tables=Markup(tables))  # noqa: S704 - html is off, and the profiles are ours
    )


class _Notes:
    """The sources by number. The first is the one with which the whole profile was checked."""

    def __init__(self, facts: Sequence[Fact]) -> None:
        self.known = list(dict.fromkeys(map(_ground, facts)))
        counted = [_ground(fact) for fact in facts if fact.place in ("kind", "trap", "stops")]
        for whole in counted[:1]:
            self.known.remove(whole)
            self.known.insert(0, whole)

    def number(self, fact: Fact) -> int | None:
        """Return the number of the fact's source. None for the first source, which needs no note."""
        at = self.known.index(_ground(fact))
        return at + 1 if at else None


def _ground(fact: Fact) -> tuple[str, str, str]:
    return fact.source, fact.checked_on.isoformat(), fact.confidence


# The facts


def _facts_about(place: Place) -> str:
    """Return where the facts about that disk are."""
    return "volume" if place.name else f"paths[{place.path}]"


def _fate(facts: dict[str, Fact], notes: _Notes, place: str, event: str) -> tuple[str, int | None]:
    fact = facts.get(f"{place}.survives.{event}")
    return ("unknown", None) if fact is None else (fact.value, notes.number(fact))


def _state_facts(
    facts: Sequence[Fact], parts: Sequence[str], notes: _Notes, lang: Lang
) -> Iterator[Stated]:
    """Yield the facts in those parts of the profile, except those that the page's tables and boxes show."""
    for fact in facts:
        part = re.split(r"[.\[]", fact.place, maxsplit=1)[0]
        told = fact.place.endswith((".id", ".path")) or "].survives." in fact.place
        if part in parts and not told and (shown := _show_fact(fact, notes, lang)):
            yield shown


def _show_fact(fact: Fact | None, notes: _Notes, lang: Lang) -> Stated | None:
    if fact is None:
        return None
    name, value = name_fact(fact.place, fact.value, lang)
    return Stated(
        name=name,
        value=value,
        note=notes.number(fact),
        confidence=words_for(words.CONFIDENCE, fact.confidence, lang),
        weak=fact.confidence in ("folklore", "unknown"),
    )


def name_fact(place: str, value: str, lang: Lang) -> tuple[str, str]:
    """Return the fact's name and value, in words if there are any."""
    found = _PLACE.fullmatch(place)
    if found is None or found["entry"] is None:
        return words_for(words.NAMES, place, lang), _value(place, value, lang)
    rest = found["rest"] or ""
    if rest.startswith("survives."):
        event = words_for(words.EVENTS, rest.removeprefix("survives."), lang)
        return f"{found['entry']}, {event}", words_for(words.FATES, value, lang)
    entry = found["entry"]
    if found["part"] == "clocks":
        entry = entry.replace("_", " ") if lang == "en" else words.CLOCKS[entry]
    return f"{entry}: {words_for(words.NAMES, rest, lang)}", _in_words(value, lang)


def _value(place: str, value: str, lang: Lang) -> str:
    return _in_words(words_for(words.VALUES.get(place, words.ANSWERS), value, lang), lang) or "-"


def _in_words(value: str, lang: Lang) -> str:
    """Return a value that is a sentence in the reader's language."""
    return chinese_fact(value) if lang == "zh" else value


# The body


def _render_body(text: str) -> tuple[Markup, list[tuple[str, str]]]:
    """Make HTML of the body without its title, and list its headings as (anchor, words)."""
    markdown = _markdown()
    tokens = markdown.parse(text)
    if tokens and tokens[0].type == "heading_open" and tokens[0].tag == "h1":
        tokens = tokens[3:]
    contents: list[tuple[str, str]] = []
    for opening, inside in pairwise(tokens):
        if opening.type == "heading_open":
            anchor = f"body-{len(contents) + 1}"
            opening.attrSet("id", anchor)
            if opening.tag == "h2":
                contents.append((anchor, "".join(_texts(inside))))
    for token in tokens:
        _tame(token)
    return Markup(markdown.renderer.render(tokens, markdown.options, {})), contents  # noqa: S704 - html is off, and the profile is ours


def _texts(inline: Token) -> Iterator[str]:
    for child in inline.children or []:
        yield child.content


def _tame(token: Token) -> None:
    """Remove inline styles from the token, make its scrolling blocks reachable by keyboard, and correct its links."""
    token.attrs.pop("style", None)
    if token.type in ("fence", "code_block"):
        token.attrSet("tabindex", "0")
    opened: list[Token] = []
    for child in token.children or []:
        if child.type == "link_open":
            opened.append(child)
            _lead(child)
        elif child.type == "link_close" and opened.pop().tag == "span":
            child.tag = "span"


def _lead(link: Token) -> None:
    """Change a link so that it leads to another platform's page or to another site.

    If its target is not on this server, the link becomes plain text.
    """
    href = str(link.attrs.get("href", ""))
    if platform := _PLATFORM.fullmatch(href):
        link.attrSet("href", f"/runbooks/{platform[2]}" + ("?lang=zh" if platform[1] else ""))
    elif href.startswith(_ELSEWHERE):
        link.attrSet("rel", "noreferrer noopener")
    else:
        link.tag, link.attrs = "span", {"title": href}


@cache
def _markdown() -> MarkdownIt:
    return (
        MarkdownIt("commonmark", {"html": False, "linkify": False}).enable("table").disable("image")
    )


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("gpu_tenant.faces.dashboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
