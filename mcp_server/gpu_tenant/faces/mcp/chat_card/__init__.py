"""The lease card: a page that a chat shows with an answer, if the chat's program (host) supports such pages."""

import json
from pathlib import Path

from gpu_tenant.faces import chinese

URI = "ui://gpu-tenant/lease.html"
"""The page for all answers. It decides by the content of an answer what to draw."""

_PARTS = Path(__file__).parent

_SHOWN = frozenset(
    {"list_leases", "monitor", "collect", "provision", "change_lease", "verify_and_teardown"}
)
"""The tools whose answers the page draws."""

_ASKS = frozenset({"list_leases", "monitor"})
"""The tools that the page itself may call. They only read."""


def page() -> str:
    """Return the whole page as one text. The page loads no other files."""
    html = (_PARTS / "card.html").read_text(encoding="utf-8")
    sentences = json.dumps(dict(chinese.sentences()), ensure_ascii=False).replace("<", "\\u003c")
    translator = chinese.TRANSLATOR.read_text(encoding="utf-8").replace("\nexport ", "\n")
    html = html.replace("/* translate.js */", f"{translator}\nconst SENTENCES = {sentences};")
    for name in ("card.css", "words.js", "card.js"):
        html = html.replace(f"/* {name} */", (_PARTS / name).read_text(encoding="utf-8"))
    return html


def meta_of(tool: str) -> dict[str, object]:
    """Return the metadata of a tool for a host: its page, if it has one, and whether the page may call the tool.

    By this, a host that follows the protocol does not let the page call tools that change or end a lease.
    """
    told: dict[str, object] = {}
    if tool in _SHOWN:
        told["resourceUri"] = URI
    if tool not in _ASKS:
        told["visibility"] = ["model"]
    return {"ui": told}
