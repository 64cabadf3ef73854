"""The lease card, as a host finds it: a page beside some answers, which changes none of them."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.client.extension import advertise
from mcp.server.apps import APP_MIME_TYPE, EXTENSION_ID
from parts import required

from gpu_tenant.faces.mcp import chat_card
from gpu_tenant.faces.mcp.server import TOOLS, make_server

ERAS = ["auto", "legacy"]
RENDERS = advertise(EXTENSION_ID, {"mimeTypes": [APP_MIME_TYPE]})
"""What a host says that draws such pages."""

PART = Path(chat_card.__file__).parent
SINKS = (
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "eval(",
    "Function(",
    "srcdoc",
    "DOMParser",
    "createContextualFragment",
    "javascript:",
    "fetch(",
    "XMLHttpRequest",
    "WebSocket",
    "EventSource",
    "sendBeacon",
    "localStorage",
    "sessionStorage",
    "import(",
    "ui/open-link",
    "ui/message",
    "ui/update-model-context",
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPU_TENANT_HOME", str(tmp_path / "state"))
    return tmp_path


async def ui_of_the_tools(era: str) -> dict[str, dict[str, Any]]:
    async with Client(make_server(), mode=era) as client:
        return {tool.name: (tool.meta or {})["ui"] for tool in (await client.list_tools()).tools}


@pytest.mark.parametrize("era", ERAS)
async def test_the_card_is_listed_and_read_as_an_app(era: str) -> None:
    async with Client(make_server(), mode=era) as client:
        listed = {r.uri: r for r in (await client.list_resources()).resources}[chat_card.URI]
        (read,) = (await client.read_resource(chat_card.URI)).contents

    assert listed.mime_type == read.mime_type == APP_MIME_TYPE
    assert listed.meta == {"ui": {"prefersBorder": True}}
    assert read.text == chat_card.page()  # type: ignore[union-attr]


@pytest.mark.parametrize("era", ERAS)
async def test_the_tools_whose_answers_it_draws_name_it(era: str) -> None:
    uis = await ui_of_the_tools(era)

    assert {name for name, ui in uis.items() if ui.get("resourceUri") == chat_card.URI} == {
        "list_leases",
        "monitor",
        "collect",
        "provision",
        "change_lease",
        "verify_and_teardown",
    }
    assert sum(len(json.dumps(ui)) for ui in uis.values()) < 1000


async def test_the_card_may_call_nothing_that_changes_or_ends_anything() -> None:
    uis = await ui_of_the_tools("auto")
    callable_from_it = {name for name, ui in uis.items() if "app" in ui.get("visibility", ["app"])}

    assert callable_from_it == {"list_leases", "monitor"}
    assert not any(TOOLS[name].destructive_hint for name in callable_from_it)
    async with Client(make_server("read-only")) as client:
        looks = {tool.name for tool in (await client.list_tools()).tools}
    assert callable_from_it <= looks
    named = set(re.findall(r'again\([^,()]+, "(\w+)"', chat_card.page()))
    assert named == callable_from_it


async def test_a_host_that_renders_it_gets_the_same_answers(home: Path) -> None:
    """And one of the older protocol is not told of it, and misses nothing."""
    answers, advertised = [], []
    for era, extensions in (("auto", [RENDERS]), ("auto", []), ("legacy", [])):
        async with Client(make_server(), mode=era, extensions=extensions) as client:
            result = await client.call_tool("list_leases", {})
            answers.append((result.structured_content, [c.model_dump() for c in result.content]))
            advertised.append(EXTENSION_ID in (client.server_capabilities.extensions or {}))

    assert answers[0] == answers[1] == answers[2]
    assert answers[0][0] is not None
    assert json.loads(answers[0][1][0]["text"]) == answers[0][0]
    assert advertised == [True, True, False]


def test_the_page_is_one_text_and_has_no_way_to_make_markup_of_words_or_to_load_anything() -> None:
    page = re.sub(r"(?m)^const SENTENCES = .*;$", "", chat_card.page())

    assert [sink for sink in SINKS if sink in page] == []
    assert re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]+", page) == []
    assert re.findall(r"\s(?:src|href|action|on[a-z]+)=", page) == []
    assert "default-src 'none'" in page
    assert page.count("<script") == page.count("</script>") == page.count("</style>") == 1
    assert len(page.encode()) < 44_000
    assert len(chat_card.page().encode()) < 450_000, "with the Chinese of every sentence"


def test_its_script_is_one(tmp_path: Path) -> None:
    required("node")
    ran = subprocess.run(
        ["node", "--input-type=module", "--check"],
        capture_output=True,
        encoding="utf-8",
        check=False,
        input="".join((PART / name).read_text("utf-8") for name in ("words.js", "card.js")),
    )

    assert ran.returncode == 0, ran.stderr


def test_every_sentence_of_its_own_has_its_chinese() -> None:
    card, words = ((PART / name).read_text("utf-8") for name in ("card.js", "words.js"))
    entries = re.findall(r'(?:"([^"]+)"|\b(\w+)):\s+"([^"]+)",', words)
    chinese = {quoted or bare: said for quoted, bare, said in entries}
    said = {
        sentence
        for how in (r'\b(?:t|heading|again|bullets|allLeases)\("([^"]+)"', r'\["([^"]+)", ')
        for sentence in re.findall(how, card)
    }
    assert len(said) > 70
    assert said - {"B", "parked", "intended", "active"} - chinese.keys() == set(), (
        "no unit, no state"
    )
    unsaid = {sentence for sentence in chinese if f'"{sentence}"' not in card}
    assert {sentence for sentence in unsaid if not sentence.startswith("job ")} == set(), (
        "what a job came to is a word of the server"
    )
    holes = re.compile(r"\{\w+\}")
    for english, other in chinese.items():
        assert sorted(holes.findall(english)) == sorted(holes.findall(other)), english
