"""Nothing that a box, a provider or another web page says runs in the dashboard, reads it or steers it."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from browser.conftest import NewTab
from browser.served import Dashboard
from browser.states import Renter, Work, dashboard_of, renter_at
from browser.tab import Tab
from desk import Answer, Desk
from e2e.leased import end_processes
from playwright.async_api import Browser, expect
from waited import over

from gpu_tenant.emulators.vastai.market import ASKS

pytestmark = pytest.mark.asyncio(loop_scope="session")

EVIL = '<img src=x onerror="window.__pwned=1"><svg onload=window.__pwned=2>'
FILE = "<img src=x onerror=window.__pwned=3>.json"
JOB = (
    f"printf '%s\\n' '{EVIL}';"
    " printf '\\033]8;;javascript:window.__pwned=4\\033\\\\a link\\033]8;;\\033\\\\\\n';"
    " printf '\\033]0;<script>window.__pwned=5</script>\\007\\033[2J\\033[1;31mred\\033[0m words\\n';"
    f" mkdir -p out && echo '[1]' >'out/{FILE}' && echo done"
)


@dataclass
class Scene:
    """A dashboard over hostile words, and the lease whose job said most of them."""

    renter: Renter
    dashboard: Dashboard
    lease: str


@pytest.fixture(scope="module")
def renter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Renter]:
    root = tmp_path_factory.mktemp("safety")
    with renter_at("vastai", root) as made:
        yield made
        end_processes(root / "stage" / "tenant" / "boxes")


@pytest.fixture(scope="module")
def hostile_hosts() -> Iterator[None]:
    """Every host in the market says where it stands in words of its own."""
    with pytest.MonkeyPatch.context() as patch:
        for ask in ASKS:
            patch.setitem(ask, "geolocation", EVIL)
        yield


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def scene(renter: Renter, hostile_hosts: None) -> AsyncIterator[Scene]:
    work = Work(renter.root / "work")
    async with renter.tenancy() as tenancy:
        lease = await work.launched(tenancy, command=JOB)
        assert (await over(tenancy, lease)).state == "finished"
        await tenancy.collect(lease)
    renter.befalls("foreign_box")
    renter.befalls("leftover")
    # A provider passes on whatever its hosts and its customers say.
    for volume in renter.stage.world.things("volume"):
        volume.facts["label"] = EVIL
    with dashboard_of(renter, renter.root) as dashboard:
        yield Scene(renter, dashboard, lease)


@pytest.fixture
def dashboard(scene: Scene) -> Dashboard:
    return scene.dashboard


@pytest.fixture
def elsewhere() -> Iterator[Desk]:
    """Another site, at another port of this computer."""
    desk = Desk()
    yield desk
    desk.close()


async def pwned(tab: Tab) -> object:
    return await tab.page.evaluate("() => window.__pwned ?? null")


async def test_what_a_box_and_a_provider_say_is_shown_as_text_and_runs_nowhere(
    tab: Tab, scene: Scene
) -> None:
    # The words of others stand in quotation marks, so those that they hold themselves are escaped.
    await tab.says(EVIL.replace('"', '\\"'))
    await tab.go("#/offers")
    await tab.button("Find offers").click()
    # A place is named in our own sentence, so it keeps its letters and loses what quotes or marks up.
    await tab.says("img src=x onerror= window.__pwned=1 svg onload=window.__pwned=2")

    await tab.go(f"#/lease/{scene.lease}/log")
    await tab.says(EVIL)
    await tab.says("red")
    await tab.go(f"#/lease/{scene.lease}/files")
    await tab.says(re.compile(re.escape(FILE)))
    for place in ("job", "story", "terms"):
        await tab.go(f"#/lease/{scene.lease}/{place}")
        await expect(tab.page.locator(f".leasepage.is-{place}")).to_be_visible()

    for route in ("#/runbooks", "#/history", "#/settings", "#/"):
        await tab.go(route)
        await expect(tab.page.locator("main h1, main h2").first).to_be_visible()
    assert await pwned(tab) is None
    assert await tab.page.locator('a[href^="javascript:"]').count() == 0
    assert await tab.page.locator("img[src=x], svg[onload]").count() == 0


async def test_nothing_of_the_page_makes_html_or_code_out_of_text(tab: Tab) -> None:
    tab.may_say("TrustedHTML|TrustedScript|Content Security [Pp]olicy")

    refused = await tab.page.evaluate(
        """() => [
          () => { document.createElement("div").innerHTML = "<b>x</b>"; },
          () => { document.createElement("script").textContent = "window.__pwned = 6"; },
          () => { new DOMParser().parseFromString("<b>x</b>", "text/html"); },
          () => { document.createElement("div").setAttribute("onclick", "window.__pwned = 8"); },
          () => { trustedTypes.createPolicy("own", {createHTML: (text) => text}); },
        ].map((attempt) => { try { attempt(); return "done"; } catch (error) { return error.name; } })"""
    )
    assert set(refused) <= {"TypeError", "EvalError"}, refused
    assert await pwned(tab) is None


ATTACK = """<!doctype html><title>elsewhere</title><body><script>
const at = "%(url)s", lease = "%(lease)s", token = "%(token)s";
const tried = {};
const json = {"Content-Type": "application/json", Authorization: `Bearer ${token}`};
const attempts = {
  "reads with a request": () => fetch(`${at}/api/overview`),
  "reads with the token": () => fetch(`${at}/api/overview`, {headers: {Authorization: `Bearer ${token}`}}),
  "reads blindly": () => fetch(`${at}/api/overview`, {mode: "no-cors"}),
  "reads the page": () => fetch(`${at}/`),
  "posts": () => fetch(`${at}/api/leases/${lease}/extend`, {method: "POST", headers: json, body: '{"hours": 1}'}),
  "posts blindly": () => fetch(`${at}/api/leases/${lease}/extend`,
    {method: "POST", mode: "no-cors", headers: {"Content-Type": "text/plain"}, body: '{"hours": 1}'}),
};
const part = (kind, more) => new Promise((told) => {
  const made = Object.assign(document.createElement(kind), more);
  made.onload = () => told("loaded");
  made.onerror = () => told("refused");
  document.body.append(made);
});
const form = () => new Promise((told) => {
  const frame = document.createElement("iframe");
  frame.name = "answer";
  document.body.append(frame);
  const made = Object.assign(document.createElement("form"),
    {method: "POST", action: `${at}/api/leases/${lease}/extend`, target: "answer", enctype: "text/plain"});
  const field = Object.assign(document.createElement("input"), {name: '{"hours": 1, "x": "', value: '"}'});
  made.append(field);
  document.body.append(made);
  frame.onload = () => told("answered");
  made.submit();
});
window.whole = (async () => {
  for (const [name, attempt] of Object.entries(attempts)) {
    tried[name] = await attempt().then((answer) => `${answer.type} ${answer.status}`, () => "refused");
  }
  tried["loads a script"] = await part("script", {src: `${at}/page/app.js`});
  tried["loads an answer as a script"] = await part("script", {src: `${at}/api/overview`});
  tried["loads an image"] = await part("img", {src: `${at}/page/icon.svg`});
  await part("iframe", {src: `${at}/`, name: "framed"});
  await form();
  return tried;
})();
</script></body>"""


async def test_a_page_of_another_origin_reads_nothing_and_changes_nothing(
    chromium: Browser, scene: Scene, elsewhere: Desk
) -> None:
    served = scene.dashboard
    words = {"url": served.url, "lease": scene.lease, "token": served.token}
    page_of_theirs = Answer(body=ATTACK % words, headers={"Content-Type": "text/html"})
    before = served.shows(f"/api/leases/{scene.lease}")["lease"]["deadline_at"]
    elsewhere.says(page_of_theirs)

    page = await chromium.new_page()
    try:
        await page.goto(f"{elsewhere.url}/")
        tried = await page.evaluate("() => window.whole")
        shown = [frame.url for frame in page.frames if frame.name in ("framed", "answer")]
        framed = [await f.locator("main").count() for f in page.frames if f.name == "framed"]
    finally:
        await page.close()

    assert set(tried.values()) == {"refused"}, tried
    assert framed == [0], shown
    assert served.shows("/api/errands") == {"errands": []}
    assert served.shows(f"/api/leases/{scene.lease}")["lease"]["deadline_at"] == before


async def test_a_name_that_was_made_to_lead_here_is_refused(
    chromium: Browser, scene: Scene
) -> None:
    page = await chromium.new_page()
    try:
        # The browser was told that this name is at 127.0.0.1, as a rebound name would be.
        answer = await page.goto(f"http://rebound.test:{scene.dashboard.port}/")
        assert answer is not None
        assert answer.status == 421
        assert await page.locator("main").count() == 0
    finally:
        await page.close()


HEADERS = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


@pytest.mark.parametrize(
    "path",
    ["/", "/page/app.js", "/api/overview", "/runbooks/vastai", "/nowhere", "/api/leases/none"],
)
async def test_every_answer_leaves_with_the_strict_headers(scene: Scene, path: str) -> None:
    _, headers, _ = scene.dashboard.ask(path)
    sent = {name.lower(): value for name, value in headers.items()}

    assert {name: sent.get(name) for name in HEADERS} == HEADERS
    policy = dict(part.partition(" ")[::2] for part in sent["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert policy["trusted-types"] == "'none'"
    assert not any("unsafe" in value or "*" in value for value in policy.values())
    assert "set-cookie" not in sent
    assert "access-control-allow-origin" not in sent


EXTEND = {"hours": 1}


@pytest.mark.parametrize(
    ("status", "body", "changed"),
    [
        (421, None, {"Host": "rebound.test"}),
        (421, None, {"Host": "127.0.0.1"}),
        (401, None, {"Authorization": ""}),
        (401, None, {"Authorization": "Bearer wrong"}),
        (401, EXTEND, {"Authorization": ""}),
        (403, None, {"Origin": "http://127.0.0.1:1"}),
        (403, EXTEND, {"Origin": "null"}),
        (403, None, {"Sec-Fetch-Site": "cross-site"}),
        (403, EXTEND, {"Sec-Fetch-Site": "same-site"}),
        (415, EXTEND, {"Content-Type": "text/plain"}),
        (413, {"hours": 1, "more": "x" * 70_000}, {}),
    ],
)
async def test_whoever_is_not_this_page_with_this_token_is_refused(
    scene: Scene, status: int, body: object, changed: dict[str, str]
) -> None:
    path = f"/api/leases/{scene.lease}/extend" if body else "/api/overview"

    told, _, words = scene.dashboard.ask(path, body, headers=changed)

    assert told == status, words
    assert json.loads(words)["remedy"]
    assert scene.lease.encode() not in words


@pytest.mark.parametrize(
    "path",
    [
        "/page/../gate.py",
        "/page/%2e%2e/gate.py",
        "/page/..%2fgate.py",
        "/page//etc/passwd",
        "/page/parts/%2e%2e/%2e%2e/gate.py",
        "/runbooks/..%2f..%2fREADME",
    ],
)
async def test_no_file_beside_the_page_is_served(scene: Scene, path: str) -> None:
    status, _, body = scene.dashboard.ask(path)

    assert status in (400, 404), body
    assert b"import" not in body
    assert b"root:" not in body


async def test_the_token_leaves_the_address_at_once_and_is_said_only_at_the_terminal(
    new_tab: NewTab, scene: Scene
) -> None:
    token = scene.dashboard.token
    async with new_tab(scene.dashboard) as tab:
        await tab.open()
        await tab.go(f"#/lease/{scene.lease}")

        assert token not in tab.page.url
        assert token not in await tab.page.content()
        await tab.page.go_back()
        await tab.page.go_back()
        assert token not in tab.page.url
    assert scene.dashboard.said.count(token) == 1
