"""Shows the skill's pages at a terminal: a line for each platform, their comparison, a runbook, or a guide's page."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import click

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.model import Profile
from gpu_tenant.domain.platform_comparison import comparison, disks
from gpu_tenant.faces.chinese.facts import chinese_fact
from gpu_tenant.faces.chinese.runbooks import chinese_runbook
from gpu_tenant.faces.cli.output import text_width
from gpu_tenant.files.skill_files import skill_directory

_EVENTS = ("reboot", "park", "destroy", "host_loss", "preempt")
_CHINESE = {
    "as of": "核对于",
    "ends the bill": "停止计费",
    "the trap": "陷阱",
    "if we die": "本机失联时",
    "taken back": "如何收回",
    "not confirmed": "未经证实",
    "reboot": "重启",
    "park": "关机保留",
    "destroy": "销毁",
    "host_loss": "宿主机损坏",
    "preempt": "被平台收回",
    "yes": "保留",
    "no": "丢失",
    "unknown": "未知",
    "n/a": "不会发生",
}
"""The words around the facts."""


def platforms(
    chosen: Sequence[Profile],
    *,
    shown_as: Literal["json", "lines", "runbook", "comparison"],
    lang: Literal["en", "zh"] = "en",
) -> None:
    """Print the platforms to stdout. A runbook without a translation is shown in English."""
    if shown_as == "json":
        click.echo(json.dumps([profile.model_dump(mode="json") for profile in chosen], indent=2))
        return
    if shown_as == "comparison":
        click.echo(comparison(chosen, chinese_fact) if lang == "zh" else comparison(chosen))
        return
    say = chinese_fact if lang == "zh" else str
    for profile in chosen:
        if shown_as == "runbook":
            translated = chinese_runbook(profile.id) if lang == "zh" else None
            facts = _facts(profile, _CHINESE, chinese_fact) if lang == "zh" else _facts(profile)
            click.echo("\n".join([*facts, "", translated or profile.runbook]))
        else:
            click.echo(f"{profile.id:<14} {profile.title}: {say(profile.trap)}")


def _facts(
    profile: Profile, words: Mapping[str, str] = {}, say: Callable[[str], str] = str
) -> Iterator[str]:
    """Yield the most important facts. The runbook does not repeat them."""

    def cell(english: str, width: int) -> str:
        said = words.get(english, english)
        return said + " " * (width - text_width(said))

    def doubt(stated: str) -> str:
        place, _, value = stated.partition(": ")
        return f"{place}: {words.get(value) or say(value)}"

    yield f"{profile.title}, {words.get('as of', 'as of')} {profile.checked_on}"
    yield f"  {cell('ends the bill', 16)}{say(profile.stops)}"
    yield f"  {cell('the trap', 16)}{say(profile.trap)}"
    yield f"  {cell('if we die', 16)}{say(profile.stops_the_meter)}"
    if profile.interruption:
        yield f"  {cell('taken back', 16)}{say(profile.interruption)}"
    named = [(disk.replace("`", ""), place) for disk, place in disks(profile, say)]
    width = max(text_width(disk) for disk, _ in named)
    yield "  " + " " * width + "".join(f"  {cell(event, 10)}" for event in _EVENTS)
    for disk, place in named:
        fates = "".join(f"  {cell(place.survives[event], 10)}" for event in _EVENTS)
        yield f"  {disk}{' ' * (width - text_width(disk))}{fates}"
    if profile.doubts:
        yield f"  {words.get('not confirmed', 'not confirmed')}: " + "; ".join(
            map(doubt, profile.doubts)
        )


def guide_pages() -> list[str]:
    """Return the names of the guide's pages, as `guide` takes them."""
    root = skill_directory() / "references"
    return sorted(
        page.relative_to(root).with_suffix("").as_posix() for page in root.glob("**/*.md")
    )


def guide_page(named: str, part: str | None = None) -> str:
    """Return that page of the guide, or only the part below one of its headings.

    Raises:
        BadRequest: there is no such page, or it has no such heading.
    """
    name, _, below = named.removeprefix("references/").partition("#")
    name, part = name.removesuffix(".md"), part or below
    if name not in guide_pages():
        raise BadRequest(f"the guide has no page {name!r}", remedy=f"{Command('guide')} lists them")
    page = (skill_directory() / "references" / f"{name}.md").read_text(encoding="utf-8")
    if not part:
        return page.rstrip()
    shown, level = list[str](), 0
    for line in page.splitlines():
        heading = re.match(r"(#+) (.*)", line)
        if heading and level and len(heading[1]) <= level:
            break
        if heading and not level and heading[2].strip().casefold().replace(" ", "-") == part:
            level = len(heading[1])
        if level:
            shown.append(line)
    if not shown:
        raise BadRequest(
            f"the page {name!r} has no part {part!r}",
            remedy=f"{Command('guide', name)} shows it all",
        )
    return "\n".join(shown).rstrip()
