"""The platforms' runbooks in Chinese, from `profiles/zh/<slug>.md`. Each translates the body of `profiles/<slug>.md`."""

from gpu_tenant.files.skill_files import skill_directory


def chinese_runbook(slug: str) -> str | None:
    """Return the platform's runbook in Chinese. None if it has no translation.

    It is read here and not with the profile, because every command reads the profiles, but very few show a runbook.
    """
    path = skill_directory() / "profiles" / "zh" / f"{slug}.md"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return text.partition("\n---\n")[2].strip()
