"""The platforms' runbooks in Chinese, from `profiles/zh/<slug>.md`. Each translates the body of `profiles/<slug>.md`.

The page also states the platform's facts, for who reads it by itself. They are left out here: every face that shows a
runbook states them beside it.
"""

import re

from gpu_tenant.files.skill_files import skill_directory

_FACTS = re.compile(r"<!-- generated: facts .*?<!-- end -->\n+", re.DOTALL)


def chinese_runbook(slug: str) -> str | None:
    """Return the platform's runbook in Chinese. None if it has no translation.

    It is read here and not with the profile, because every command reads the profiles, but very few show a runbook.
    """
    path = skill_directory() / "profiles" / "zh" / f"{slug}.md"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return _FACTS.sub("", text.partition("\n---\n")[2]).strip()
