"""A platform's profile as a page: every fact and its source, in plain HTML that runs nothing."""

import re
from datetime import date
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import get_args

import pytest

from gpu_tenant.domain.model import Profile
from gpu_tenant.faces.chinese.facts import chinese_fact
from gpu_tenant.faces.chinese.runbooks import chinese_runbook
from gpu_tenant.faces.dashboard import runbook_i18n
from gpu_tenant.faces.dashboard.runbook_i18n import Lang
from gpu_tenant.faces.dashboard.runbook_page import runbook_page
from gpu_tenant.providers.profile_facts import read
from gpu_tenant.providers.profiles import load_profiles

SHIPPED = Path(__file__).parents[2] / "profiles"
PROFILES = load_profiles(SHIPPED)
LANGS: tuple[Lang, ...] = get_args(Lang)
VOID = {"meta", "link", "br", "hr", "img", "input"}

every_profile = pytest.mark.parametrize("slug", sorted(PROFILES))


class Page(HTMLParser):
    """The page as a browser would read it: its words, its elements, and what does not close."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.wrong: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        self.wrong += [f"<{tag}> never closes" for tag in self._open]
        self.text = one_line(" ".join(self.words))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.wrong.append(f"</{tag}> closes something else, line {self.getpos()[0]}")

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, attribute: str) -> list[str]:
        """Every value of that attribute."""
        return [value for _, attrs in self.tags if (value := attrs.get(attribute)) is not None]


def one_line(text: str) -> str:
    return " ".join(text.split())


@cache
def page(slug: str, lang: Lang = "en") -> Page:
    return Page(runbook_page(PROFILES[slug], lang))


def with_body(body: str) -> Page:
    return Page(runbook_page(PROFILES["local"].model_copy(update={"runbook": body})))


def stated(facts: object) -> list[dict[str, object]]:
    """Every fact of a front matter that names its own source."""
    if isinstance(facts, dict):
        if "v" in facts:
            return [facts]
        return [leaf for value in facts.values() for leaf in stated(value)]
    if isinstance(facts, list):
        return [leaf for value in facts for leaf in stated(value)]
    return []


# Every platform


@every_profile
def test_every_fact_that_names_a_source_is_shown_with_it(slug: str) -> None:
    facts, _ = read(SHIPPED / f"{slug}.md")
    shown = page(slug).text
    fates = [english for english, _ in runbook_i18n.FATES.values()]

    checked = facts["checked"]
    assert isinstance(checked, dict)

    for leaf in [*stated(facts), checked]:
        assert isinstance(leaf, dict)
        value = one_line(str(leaf.get("v", "")))
        assert value in shown or value in runbook_i18n.FATES, value
        assert one_line(str(leaf["src"])) in shown
        assert str(leaf.get("on", checked["on"])) in shown
    assert any(fate in shown for fate in fates)


@every_profile
@pytest.mark.parametrize("lang", LANGS)
def test_the_page_is_whole_html_without_script_or_style(slug: str, lang: Lang) -> None:
    read_back = page(slug, lang)

    assert read_back.wrong == []
    assert {tag for tag, _ in read_back.tags} & {
        "script",
        "style",
        "iframe",
        "img",
        "form",
    } == set()
    assert read_back.all("style") == []
    assert [name for _, attrs in read_back.tags for name in attrs if name.startswith("on")] == []
    ids = read_back.all("id")
    assert len(ids) == len(set(ids))


@every_profile
def test_every_link_leads_somewhere(slug: str) -> None:
    ids = set(page(slug).all("id"))

    for href in page(slug).all("href"):
        if href.startswith("#"):
            assert href[1:] in ids, href
        elif href.startswith("/runbooks/"):
            assert href.removeprefix("/runbooks/").removesuffix("?lang=zh") in PROFILES, href
        else:
            assert href.startswith(("https://", "/page/", "/#/")), href


@every_profile
@pytest.mark.parametrize("lang", LANGS)
def test_it_says_what_a_person_in_a_hurry_needs(slug: str, lang: Lang) -> None:
    profile, shown = PROFILES[slug], page(slug, lang).text

    def said(words: str) -> str:
        return one_line(chinese_fact(words) if lang == "zh" else words)

    for words in (profile.title, profile.trap, profile.stops, profile.stops_the_meter):
        assert said(words) in shown
    assert profile.checked_on.isoformat() in shown
    assert all(place.path in shown for place in profile.places)
    if profile.console:
        assert said(profile.console.destroy) in shown


@every_profile
def test_every_name_and_word_of_a_profile_has_its_english_and_chinese(slug: str) -> None:
    """A fact that nobody has put in words would show its place, as in `verbs.park.effect`."""
    titles = [fact.place for fact in PROFILES[slug].facts]
    dotted = {re.sub(r"\[.*?\]", "", place) for place in titles}

    assert [name for name in dotted if f" {name} " in page(slug, "zh").text and "." in name] == []


def test_all_tables_of_words_have_both_languages() -> None:
    for name, table in vars(runbook_i18n).items():
        if name.isupper() and name not in ("SECTIONS", "HEADINGS", "VALUES", "CLOCKS"):
            assert all(english and chinese for english, chinese in table.values()), name


@every_profile
def test_a_word_of_the_schema_is_never_shown_where_it_has_a_meaning(slug: str) -> None:
    for fact in PROFILES[slug].facts:
        meanings = runbook_i18n.VALUES.get(fact.place)
        if meanings is not None:
            assert meanings[fact.value][0] in page(slug).text
            assert meanings[fact.value][1] in page(slug, "zh").text


# A fact and its source


def test_a_plain_fact_rests_on_what_the_profile_was_checked_against() -> None:
    facts = {fact.place: fact for fact in PROFILES["vastai"].facts}

    assert facts["trap"].source == "vast-ai/docs, and vastai 1.9.1"
    assert facts["verbs.park.bills"].source == "vast-ai/docs guides/reference/billing"
    assert facts["paths[~].survives.destroy"].value == "no"
    assert facts["trap"].checked_on == date(2026, 11, 20)


def test_hearsay_is_marked_as_such() -> None:
    marked = Page(runbook_page(PROFILES["lanrui"]))

    assert "hearsay" in marked.all("class")
    assert "hearsay" in marked.text


# What the body may hold


def test_the_body_s_title_is_not_said_twice_and_its_headings_are_linked() -> None:
    shown = with_body("# This computer\n\nWords.\n\n## Judgement\n\n- one")

    assert [tag for tag, _ in shown.tags].count("h1") == 1
    assert "#body-1" in shown.all("href")
    assert "body-1" in shown.all("id")


def test_html_in_a_body_is_text() -> None:
    shown = with_body("<script>alert(1)</script> and <img src=x onerror=alert(2)>\n\n![p](x.png)")

    assert "alert(1)" in shown.text
    assert {tag for tag, _ in shown.tags} & {"script", "img"} == set()
    assert shown.wrong == []


def test_a_link_to_what_is_not_served_here_is_text_and_one_to_a_platform_leads_there() -> None:
    shown = with_body(
        "[gotchas](../references/gotchas.md), [Vast.ai](vastai.md), [out](https://example.org/a), "
        "[bad](javascript:alert)"
    )

    assert {"/runbooks/vastai", "https://example.org/a"} <= set(shown.all("href"))
    assert not any("references" in href or "javascript" in href for href in shown.all("href"))
    assert all(word in shown.text for word in ("gotchas", "Vast.ai", "out", "bad"))
    assert shown.wrong == []


def test_a_table_of_the_body_needs_no_inline_style() -> None:
    shown = with_body("| a | b |\n|:--|--:|\n| 1 | 2 |\n")

    assert "table" in {tag for tag, _ in shown.tags}
    assert shown.all("style") == []


def test_words_of_a_profile_are_escaped() -> None:
    evil = "<b onclick=alert(1)>trap</b> & more"
    shown = Page(runbook_page(PROFILES["local"].model_copy(update={"trap": evil})))

    assert evil in shown.text
    assert "b" not in {tag for tag, _ in shown.tags}


# The body in Chinese


@every_profile
def test_a_chinese_reader_gets_the_chinese_body(slug: str) -> None:
    chinese = chinese_runbook(slug)
    assert chinese is not None
    titles = re.findall(r"(?m)^## (.+)", re.sub(r"(?ms)^```.*?^```$", "", chinese))
    shown = page(slug, "zh")

    assert titles
    assert all(title in shown.text and title not in page(slug).text for title in titles)
    assert ("article", "zh-CN") in {(tag, attrs.get("lang")) for tag, attrs in shown.tags}
    assert ("article", "en") in {(tag, attrs.get("lang")) for tag, attrs in page(slug).tags}
    # Emphasis that ends between a Chinese sign and a Chinese word would show its asterisks.
    assert [word for word in shown.words if "**" in word] == []


def test_a_body_that_nobody_has_translated_is_shown_in_english() -> None:
    untold = PROFILES["local"].model_copy(update={"id": "elsewhere"})
    shown = Page(runbook_page(untold, "zh"))

    assert "The boxes are under" in shown.text
    assert ("article", "en") in {(tag, attrs.get("lang")) for tag, attrs in shown.tags}


def test_a_profile_without_facts_still_has_a_page() -> None:
    bare: Profile = PROFILES["own"].model_copy(update={"facts": (), "runbook": ""})

    assert Page(runbook_page(bare)).wrong == []


@every_profile
def test_an_unknown_is_not_softened_in_chinese(slug: str) -> None:
    profile = PROFILES[slug]
    doubts = [x for x in profile.doubts if ".survives." in x and x.endswith(": unknown")]

    assert page(slug, "zh").text.count("未知：按丢失算") >= len(doubts) * 2


@every_profile
def test_what_ends_the_bill_is_chinese_however_short(slug: str) -> None:
    profile = PROFILES[slug]
    said = [profile.trap, profile.stops, profile.stops_the_meter]
    said += [profile.console.where] if profile.console else []
    same = {
        "scancel JOBID",
        "console.paperspace.com, CORE, Machines",
    }  # what one types or reads there

    assert [x for x in said if not re.search("[\u4e00-\u9fff]", chinese_fact(x))] in (
        [],
        [*same & {*said}],
    )
