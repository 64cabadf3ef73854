"""The records of decisions: their parts, and the table of contents over all pages."""

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "mcp_server/decisions"
ORDER = [
    "ownership",
    "evidence",
    "signatures",
    "renting",
    "money",
    "providers",
    "watch",
    "transfers",
    "jobs",
    "isolation",
    "faces",
    "code",
]
"""As in DESIGN.md: the law first, then in the order of a lease."""


@dataclass(frozen=True, slots=True)
class Decision:
    title: str
    body: str

    @property
    def anchor(self) -> str:
        """As GitHub makes it of a heading."""
        kept = re.sub(r"[^\w\- ]", "", self.title.lower())
        return kept.replace(" ", "-")


def decisions(page: Path) -> list[Decision]:
    _, *parts = re.split(r"^### ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [Decision(*part.split("\n", 1)) for part in parts]


def contents() -> str:
    lines = [
        "# How each subject works, and why",
        "",
        "A page for each subject. It says first how the subject works now, then lists its decisions. A decision says what was",
        "decided, why, and what it costs or what was rejected. `make docs` writes this page.",
    ]
    for name in ORDER:
        page = FOLDER / f"{name}.md"
        title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        lines += ["", f"## [{title}]({page.name})", ""]
        lines += [f"- [{d.title}]({page.name}#{d.anchor})" for d in decisions(page)]
    return "\n".join(lines) + "\n"
