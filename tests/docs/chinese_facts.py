"""The facts of a platform, as its Chinese runbook has them: the front matter's, in Chinese, for who reads that page alone."""

from collections.abc import Iterator

from gpu_tenant.domain.model import Profile
from gpu_tenant.domain.platform_comparison import comparison
from gpu_tenant.faces.chinese.facts import chinese_fact
from gpu_tenant.faces.dashboard.runbook_i18n import CONFIDENCE, NAMES, STEPS
from gpu_tenant.faces.dashboard.runbook_page import name_fact

_MONEY_AND_LOSS = ("billing", "verbs", "clocks", "interrupt", "deadman")
_FOR_THE_PROGRAM = ("billing.price_source", "verbs.park.how", "verbs.destroy.how", "deadman.in_box")


def chinese_facts(profile: Profile) -> str:
    """Return what the page says between its marks."""
    survival = comparison([profile], chinese_fact).partition("\n\n")[0]
    rows = [line.partition("| ")[2].partition(" | ")[2] for line in survival.splitlines()]
    table = "\n".join(f"| {row}" for row in rows)
    return "\n".join(
        (
            f"**事实**，核对于 {profile.checked_on}（“?”：未经证实，按“否”处理；“-”：没有这种事）",
            "",
            table,
            "",
            *_lines(profile),
            "",
        )
    )


def _lines(profile: Profile) -> Iterator[str]:
    yield f"- 停止计费：{chinese_fact(profile.stops)}"
    yield f"- 陷阱：{chinese_fact(profile.trap)}"
    if profile.console:
        yield f"- 在哪里：{chinese_fact(profile.console.where)}"
        for verb, (_, words) in STEPS.items():
            if said := getattr(profile.console, verb):
                yield f"- {words}：{chinese_fact(said)}"
    for fact in profile.facts:
        part = fact.place.partition(".")[0].partition("[")[0]
        wanted = part in _MONEY_AND_LOSS and fact.place not in _FOR_THE_PROGRAM
        if not wanted or fact.place.endswith(".id") or fact.value in ("n/a", ""):
            continue
        name, value = name_fact(fact.place, fact.value, "zh")
        doubt = CONFIDENCE[fact.confidence][1]
        weak = f"（{doubt}）" if fact.confidence in ("folklore", "unknown") else ""
        yield f"- {name.replace(': ', '，')}：{value}{weak}"
    for fact in profile.facts:
        if fact.place.endswith((".quota_gb", ".inode_cap")):
            path = fact.place.partition("[")[2].partition("]")[0]
            yield f"- `{path}`，{NAMES[fact.place.rpartition('.')[2]][1]}：{chinese_fact(fact.value)}"
