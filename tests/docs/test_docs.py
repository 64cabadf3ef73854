"""What is written for people and agents is true: generated parts, links, sizes, and the skill's form."""

import inspect
import os
import re
from functools import partial
from pathlib import Path

import pytest
from docs import architecture, drawing
from docs.chinese_facts import chinese_facts
from docs.decisions import FOLDER, ORDER, contents, decisions

from gpu_tenant.domain import errors
from gpu_tenant.domain.errors import TenantError
from gpu_tenant.domain.platform_comparison import survival
from gpu_tenant.faces.chinese.facts import chinese_fact
from gpu_tenant.providers.profiles import load_profiles

ROOT = Path(__file__).resolve().parents[2]
PROFILES = load_profiles(ROOT / "profiles")
PAGES = [
    ROOT / "SKILL.md",
    ROOT / "README.md",
    ROOT / "mcp_server/MANUAL.md",
    *sorted(ROOT.glob("references/**/*.md")),
    *sorted(ROOT.glob("profiles/*.md")),
]
KILOBYTE = 1024
CODE = "mcp_server/gpu_tenant"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def platforms() -> str:
    ways = {
        "created": "rented by `provision`, or adopted by its id",
        "adopted": "adopted from its console",
        "either": "rented by `provision`, or adopted by its id or from its console",
        "none": "none; a runbook alone",
    }
    special = {"local": "made for the lease", "own": "adopted: you name it"}
    return table(
        ("platform", "what", "its boxes are", "teardown"),
        [
            (
                f"`{p.id}`",
                p.title,
                special.get(p.id, ways[p.lease]),
                {
                    "adopted": "asks you",
                    "either": "deletes; from a console: asks you",
                    "none": "",
                }.get(p.lease, "deletes")
                if p.destroy == "deletes"
                else "hands back",
            )
            for p in PROFILES.values()
        ],
    )


def selector() -> str:
    return table(
        ("platform", "ends the bill", "the trap"),
        [(f"`profiles/{p.id}.md`", p.stops, p.trap) for p in PROFILES.values()],
    )


def error_page() -> str:
    classes = sorted(
        (
            c
            for _, c in inspect.getmembers(errors, inspect.isclass)
            if issubclass(c, TenantError) and c is not TenantError
        ),
        key=lambda c: (c.exit_status, c.__mro__.__len__(), c.code),
    )
    rows = [
        (f"`{c.code}`", str(c.exit_status), (inspect.getdoc(c) or "").split("\n")[0])
        for c in classes
    ]
    return (
        "# Errors\n\nRead this when an error's code is not clear by itself. Every error also names the next call. "
        "`run` exits with 10 while it waits for a person. By hand the caretaker also says `AT_WORK`: a process of no job is at work.\n\n"
        + table(("code", "exit status", "what is true"), rows)
    )


def survival_page() -> str:
    return (
        "# What survives what\n\n"
        "Read this to compare platforms. What a stop, the end and no credit cost is in their pages: "
        "`gpu-tenant profiles --compare`, or here `grep -E 'bills:|guaranteed|after_destroy|zero_balance' profiles/*.md`.\n\n"
        "`yes`: the bytes are still there. days, hours: no longer than that. `?`: not confirmed, so treat it as no. `-`: no such event.\n\n"
        + survival(list(PROFILES.values()))
    )


def with_block(page: Path, name: str, content: str) -> str:
    text = page.read_text(encoding="utf-8")
    pattern = re.compile(rf"(<!-- generated: {name} [^\n]*-->\n).*?(<!-- end -->)", re.DOTALL)
    assert pattern.search(text), f"{page.name} has no block {name}"
    return pattern.sub(lambda m: m[1] + content + m[2], text)


DESIGN = [
    ROOT / "mcp_server/DESIGN.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "mcp_server/decisions").glob("*.md")),
]
ROWS_OF_A_SCREEN = 40

GENERATED = {
    "mcp_server/MANUAL.md": lambda: with_block(
        ROOT / "mcp_server/MANUAL.md", "platforms", platforms()
    ),
    "SKILL.md": lambda: with_block(ROOT / "SKILL.md", "selector", selector()),
    "mcp_server/architecture.svg": architecture.picture,
    "mcp_server/decisions/README.md": contents,
    "tests/e2e/pictures/demo.svg": lambda: drawing.demo(
        (ROOT / "tests/e2e/pictures/demo.txt").read_text(encoding="utf-8")
    ),
    "references/errors.md": error_page,
    "references/survival.md": survival_page,
    **{
        f"profiles/zh/{slug}.md": partial(
            lambda profile: with_block(
                ROOT / f"profiles/zh/{profile.id}.md", "facts", chinese_facts(profile)
            ),
            PROFILES[slug],
        )
        for slug in sorted(PROFILES)
        if (ROOT / f"profiles/zh/{slug}.md").is_file()
    },
}


@pytest.mark.parametrize("name", GENERATED)
def test_the_generated_parts_are_fresh(name: str) -> None:
    """`make docs` writes them."""
    fresh, page = GENERATED[name](), ROOT / name
    if os.environ.get("GPU_TENANT_SNAPSHOTS") == "write":
        page.write_text(fresh, encoding="utf-8")

    assert page.read_text(encoding="utf-8") == fresh


@pytest.mark.parametrize("slug", sorted(p.stem for p in (ROOT / "profiles/zh").glob("*.md")))
def test_a_profile_leads_to_its_chinese_page_which_states_the_facts_by_itself(slug: str) -> None:
    profile, chinese = PROFILES[slug], (ROOT / f"profiles/zh/{slug}.md").read_text("utf-8")
    stated = chinese.partition("<!-- end -->")[0]

    assert f"](zh/{slug}.md)" in (ROOT / f"profiles/{slug}.md").read_text("utf-8")
    assert f"- 陷阱：{chinese_fact(profile.trap)}\n" in stated
    assert all(f"| `{place.path}`" in stated for place in profile.places)
    assert "](profiles/zh)" in (ROOT / "SKILL.md").read_text("utf-8")


def test_a_profile_fits_a_page() -> None:
    assert all(
        len((ROOT / f"profiles/{slug}.md").read_bytes()) <= 9 * KILOBYTE for slug in PROFILES
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = {
        *re.findall(r"\]\((?!https?:|#)([^)#]+)\)", text),
        *re.findall(r"`((?:profiles|references|scripts)/[\w./-]+\.\w+)`", text),
    }

    assert [
        name for name in named if not ((page.parent / name).exists() or (ROOT / name).exists())
    ] == []


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 900


def test_every_command_that_a_page_shows_exists() -> None:
    from gpu_tenant.faces.cli import SUMMARIES

    for page in PAGES:
        shown = set(re.findall(r"`?gpu-tenant ([a-z]+)\b", page.read_text(encoding="utf-8")))
        prose = {"rents", "contributors", "is"}
        assert shown - prose <= set(SUMMARIES), page.name


@pytest.mark.parametrize("page", DESIGN, ids=lambda page: page.name)
def test_every_file_that_a_page_of_the_design_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    linked = re.findall(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)", text)
    folders = [
        path.name for path in [ROOT, *ROOT.iterdir(), *(ROOT / CODE).iterdir()] if path.is_dir()
    ]
    named = {
        name
        for name in re.findall(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|md|sh|yaml|json))`", text)
        if name.split("/")[0] in folders
    }
    places = [page.parent, ROOT, ROOT / CODE, ROOT / CODE / "faces/dashboard"]

    assert [name for name in linked if not (page.parent / name).exists()] == []
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


@pytest.mark.parametrize("name", ORDER)
def test_a_decision_has_its_parts_and_fits_a_screen(name: str) -> None:
    for decision in decisions(FOLDER / f"{name}.md"):
        date, _, *rest = decision.body.splitlines()

        assert re.fullmatch(r"20\d\d-\d\d-\d\d", date), decision.title
        for part in (r"\*\*Decision\.\*\*", r"\*\*Why\.\*\*", r"\*\*(Cost|Rejected)\.\*\*"):
            assert re.search(rf"^{part} ", "\n".join(rest), re.MULTILINE), (
                f"{decision.title}: {part}"
            )
        assert len(rest) < ROWS_OF_A_SCREEN, decision.title


def test_every_page_of_decisions_is_in_the_table_of_contents() -> None:
    assert {page.stem for page in FOLDER.glob("*.md")} == {*ORDER, "README"}
