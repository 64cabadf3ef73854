"""The dashboard's server, spoken to as a page, as other pages, and as programs without manners would."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio
from looked import gpu as gpu_seen
from looked import seen as seen_job
from waited import over

from gpu_tenant.app import open_tenancy
from gpu_tenant.faces.dashboard.auth import MOST_BYTES, Gate
from gpu_tenant.faces.dashboard.lease_rows import Working
from gpu_tenant.faces.dashboard.poller import Looks
from gpu_tenant.faces.dashboard.prometheus import metrics_text
from gpu_tenant.faces.dashboard.server import Extra, application

PORT, TOKEN = 4567, "t" * 43
US = f"http://127.0.0.1:{PORT}"
KNOWN = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "GPU_TENANT_HOME": str(tmp_path / "state"),
    }


class Served:
    """The application behind its gate, in this process."""

    def __init__(self, environ: dict[str, str], signs: str = "nobody") -> None:
        self.looks = Looks(lambda: open_tenancy(environ))
        self.terminal: list[str] = []
        self.app = application(self.looks, self.terminal.append if signs == "person" else None)
        gate = Gate(self.app, port=PORT, token=TOKEN)
        transport = httpx2.ASGITransport(gate, raise_app_exceptions=False)
        self.page = httpx2.AsyncClient(transport=transport, base_url=US, headers=KNOWN)
        self.stranger = httpx2.AsyncClient(transport=transport, base_url=US)

    async def done(self, begun: httpx2.Response) -> dict[str, object]:
        """The errand, when it has ended."""
        assert begun.status_code == 202, begun.text
        while True:
            told = (await self.page.get("/api/errands")).json()["errands"]
            (errand,) = [each for each in told if each["id"] == begun.json()["id"]]
            if errand["state"] != "running":
                return dict(errand)
            await asyncio.sleep(0.02)

    async def aclose(self) -> None:
        await self.page.aclose()
        await self.stranger.aclose()
        await self.looks.tenancy.aclose()


@pytest_asyncio.fixture
async def served(environ: dict[str, str]) -> AsyncIterator[Served]:
    made = Served(environ)
    yield made
    await made.aclose()


async def lease_of(served: Served) -> str:
    return (await served.looks.tenancy.provision("local", hours=2, smoke="none")).lease


# Who may speak


STRANGERS = {
    "no token": ({}, 401),
    "another token": ({"authorization": "Bearer " + "u" * 43}, 401),
    "the token in a cookie": ({"cookie": f"token={TOKEN}"}, 401),
    "another kind of word": ({"authorization": f"Basic {TOKEN}"}, 401),
    "a name that was made to lead here": ({**KNOWN, "host": f"evil.example:{PORT}"}, 421),
    "another port": ({**KNOWN, "host": "127.0.0.1:80"}, 421),
    "a name by which another may listen": ({**KNOWN, "host": f"localhost:{PORT}"}, 421),
    "our own name, and another": ({**KNOWN, "host": f"127.0.0.1:{PORT}.evil.example"}, 421),
    "a page of another site": ({**KNOWN, "origin": "https://evil.example"}, 403),
    "a page of another port": ({**KNOWN, "origin": "http://127.0.0.1:1"}, 403),
    "a page of no origin": ({**KNOWN, "origin": "null"}, 403),
    "what a browser calls same-site": ({**KNOWN, "sec-fetch-site": "same-site"}, 403),
    "what a browser calls cross-site": ({**KNOWN, "sec-fetch-site": "cross-site"}, 403),
    "what was typed into a browser": ({**KNOWN, "sec-fetch-site": "none"}, 403),
}


@pytest.mark.parametrize(("headers", "status"), STRANGERS.values(), ids=STRANGERS)
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_nobody_else_is_answered(
    served: Served, headers: dict[str, str], status: int, method: str
) -> None:
    path = "/api/overview" if method == "GET" else "/api/leases/x/teardown"
    said = {**headers, "content-type": "application/json"}
    answered = await served.stranger.request(method, path, headers=said, content="{}")

    assert answered.status_code == status
    assert set(answered.json()) == {"code", "message", "remedy"}
    assert "access-control-allow-origin" not in answered.headers


@pytest.mark.parametrize(
    ("headers", "content", "status"),
    [
        ({"content-type": "text/plain"}, "{}", 415),
        ({"content-type": "application/x-www-form-urlencoded"}, "a=b", 415),
        ({"content-type": "application/json"}, " " * (MOST_BYTES + 1), 413),
    ],
)
async def test_what_a_form_can_send_changes_nothing(
    served: Served, headers: dict[str, str], content: str, status: int
) -> None:
    answered = await served.page.post("/api/leases/x/teardown", headers=headers, content=content)

    assert answered.status_code == status


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
async def test_no_other_method_is_spoken(served: Served, method: str) -> None:
    assert (await served.page.request(method, "/api/overview")).status_code == 405
    assert (await served.stranger.request(method, "/")).status_code == 405
    assert (await served.stranger.post("/")).status_code == 405


async def test_a_link_elsewhere_opens_the_page_and_reads_nothing(served: Served) -> None:
    other = {"sec-fetch-site": "cross-site"}

    linked = await served.stranger.get("/", headers={**other, "sec-fetch-mode": "navigate"})
    script = await served.stranger.get(
        "/page/app.js", headers={**other, "sec-fetch-mode": "no-cors"}
    )

    assert (linked.status_code, script.status_code) == (200, 403)


@pytest.mark.parametrize(
    ("lang", "title", "row", "none"),
    [
        ("en", "All platforms compared", "<td>yes</td>\n<td>15 days</td>", "there is no stop"),
        ("zh", "各平台对比", "<td>是</td>\n<td>15 天</td>", "没有关机"),
    ],
)
async def test_the_platforms_are_compared_as_at_the_terminal(
    served: Served, lang: str, title: str, row: str, none: str
) -> None:
    page = (await served.page.get(f"/runbooks/compare?lang={lang}")).text

    assert f"<h1>{title}</h1>" in page
    assert f"<td>autodl</td>\n<td><code>~</code></td>\n{row}" in page
    assert f"<td>{none}</td>" in page


@pytest.mark.parametrize(
    "path",
    ["/", "/page/app.js", "/api/overview", "/api/nothing", "/runbooks/vastai", "/runbooks/compare"],
)
async def test_every_answer_leaves_with_strict_headers(served: Served, path: str) -> None:
    told = (await served.page.get(path)).headers

    policy = dict(part.split(" ", 1) for part in told["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert policy["frame-ancestors"] == policy["form-action"] == policy["base-uri"] == "'none'"
    assert told["cache-control"] == "no-store"
    assert told["x-content-type-options"] == "nosniff"
    assert told["referrer-policy"] == "no-referrer"


async def test_no_file_beside_the_page_is_served(served: Served) -> None:
    for path in (
        "/page/../gate.py",
        "/page/%2e%2e/gate.py",
        "/page//etc/passwd",
        "/page/..%2fgate.py",
    ):
        assert (await served.stranger.get(path)).status_code == 404


async def test_the_page_comes_compressed_and_what_the_api_tells_does_not(served: Served) -> None:
    asks = {"Accept-Encoding": "gzip"}

    script = await served.stranger.get("/page/parts/widgets.js", headers=asks)
    told = await served.page.get("/api/overview", headers=asks)

    assert script.headers["content-encoding"] == "gzip"
    assert int(script.headers["content-length"]) < len(script.content) / 2
    assert "content-encoding" not in told.headers


# What it tells and does


async def test_a_lease_is_told_whole_and_ended_over_the_same_law(served: Served) -> None:
    lease = await lease_of(served)

    seen = (await served.page.get("/api/overview")).json()
    (row,) = seen["leases"]
    assert (row["card"]["lease"], row["title"], row["blind"]) == (lease, "This computer", None)
    assert {"extend", "teardown"} <= set(row["verbs"])

    extended = await served.done(
        await served.page.post(f"/api/leases/{lease}/extend", json={"hours": 5})
    )
    assert extended["state"] == "done"
    assert 17_900 < extended["result"]["deadline_in_s"] <= 18_000  # type: ignore[index]

    detail = (await served.page.get(f"/api/leases/{lease}")).json()
    assert [line["kind"] for line in detail["events"]][:2] == ["intended", "bound"]
    assert all(line["words"] for line in detail["events"])
    assert detail["files"] is None
    assert detail["receipt"] is None

    ended = await served.done(await served.page.post(f"/api/leases/{lease}/teardown", json={}))
    assert ended["result"]["receipt"]["ground"] == "never_used"  # type: ignore[index]
    over = (await served.page.get(f"/api/leases/{lease}")).json()
    assert over["receipt"]["ground"] == "never_used"
    assert (await served.page.get("/api/history")).json()["leases"][0]["lease"] == lease


async def test_a_refusal_has_its_words_and_the_next_step(served: Served) -> None:
    lease = await lease_of(served)
    tenancy = served.looks.tenancy
    tree = Path(tenancy.home.root).with_name("tree")
    tree.mkdir()
    (tree / "a.py").write_text("1", encoding="utf-8")
    await tenancy.push(lease, str(tree))
    await tenancy.launch_detached(lease, "echo 1 > kept.txt", ["kept.txt"], name="train")
    await over(tenancy, lease, "train")

    refused = await served.done(await served.page.post(f"/api/leases/{lease}/teardown", json={}))
    assert refused["state"] == "failed"
    assert refused["error"]["code"] == "UNVERIFIED"  # type: ignore[index]
    assert "collect" in refused["error"]["remedy"]  # type: ignore[index]

    losses = (await served.page.get(f"/api/leases/{lease}/losses")).json()
    assert losses["losses"]
    told = (await served.page.get(f"/api/signatures/{losses['asked']}")).json()
    assert (told["by"], tuple(told["asked"]["words"])) == ("none", tuple(losses["losses"]))
    signed = await served.page.post(
        f"/api/signatures/{losses['asked']}", json={"shown": told["shown"], "typed": lease}
    )
    assert signed.status_code == 409
    assert f"gpu-tenant sign {losses['asked']}" in signed.json()["remedy"]
    unsigned = await served.done(await served.page.post(f"/api/leases/{lease}/waive", json={}))
    assert unsigned["error"]["code"] == "SIGNATURE_WANTED"  # type: ignore[index]
    assert tenancy.ledger.lease(lease).state.live


async def test_a_kept_file_a_log_and_a_report_are_saved_whole_and_never_shown(
    served: Served,
) -> None:
    lease, tenancy = await lease_of(served), served.looks.tenancy
    line = "0123456789abcde"
    await tenancy.launch_detached(
        lease,
        f"yes {line} | head -n 200000; seq 9 > 'a b.txt'; ln -s /etc link",
        ["*"],
        name="train",
    )
    await over(tenancy, lease, "train")
    await tenancy.collect(lease)

    saved = await served.page.get(f"/api/leases/{lease}/file", params={"name": "work/a b.txt"})
    assert saved.text == "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
    log = await served.page.get(f"/api/leases/{lease}/jobs/train/log/file")
    assert log.text == f"{line}\n" * 200_000
    report = await served.page.get(f"/api/leases/{lease}/report", params={"form": "md"})
    assert lease in report.text
    for answer, name in ((saved, "a%20b.txt"), (log, f"gpu-tenant-{lease}-train.log")):
        assert answer.headers["content-disposition"] == f"attachment; filename*=UTF-8''{name}"
        assert answer.headers["content-type"] == "application/octet-stream"

    kept = Path(tenancy.ledger.lease(lease).kept_in) / "work" / "a b.txt"
    kept.unlink()
    kept.symlink_to("/etc/passwd")
    for name in (
        "work/a b.txt",
        "work/link",
        "work/link/passwd",
        "../../etc/passwd",
        "/etc/passwd",
        "",
    ):
        refused = await served.page.get(f"/api/leases/{lease}/file", params={"name": name})
        assert refused.status_code >= 400, name
        assert "root:" not in refused.text
    lost = await served.page.get(f"/api/leases/{lease}/jobs/other/log/file")
    assert lost.status_code == 400


async def test_a_waiver_wants_the_id_the_loss_that_was_shown_and_the_terminal_s_code(
    environ: dict[str, str],
) -> None:
    served = Served(environ, signs="person")
    lease = await lease_of(served)
    tenancy = served.looks.tenancy
    await tenancy.launch_detached(lease, "echo 1 > kept.txt", ["kept.txt"], name="train")
    await over(tenancy, lease, "train")

    async def said(**otherwise: str) -> httpx2.Response:
        losses = (await served.page.get(f"/api/leases/{lease}/losses")).json()
        asked = f"/api/signatures/{losses['asked']}"
        shown = (await served.page.get(asked)).json()["shown"]
        code = served.terminal[-1].rpartition(" ")[2]
        right = {"shown": shown, "typed": lease, "code": code}
        return await served.page.post(asked, json={**right, **otherwise})

    for wrong in ({"shown": "0" * 64}, {"code": ""}, {"code": "aaaaaa"}):
        assert (await said(**wrong)).status_code == 409
    # A code is good for once, whatever came of it.
    spent = served.terminal[-1].rpartition(" ")[2]
    for typed in ("", "yes", lease[:-1]):
        assert (await said(typed=typed)).status_code == 409
    assert (await said(code=spent)).status_code == 409
    assert tenancy.ledger.lease(lease).state.live

    assert (await said(typed=f"{lease} ")).status_code == 200
    waived = await served.page.post(f"/api/leases/{lease}/waive", json={})
    assert (await served.done(waived))["state"] == "done"
    assert tenancy.ledger.receipt(tenancy.ledger.lease(lease).id).ground == "waived"  # type: ignore[union-attr]
    await served.aclose()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("leases/x/fly", {}),
        ("leases/x/extend", {"hours": 1}),
        ("leases/{lease}/extend", {}),
        ("leases/{lease}/extend", {"hours": -1}),
        ("leases/{lease}/extend", {"hours": 1, "force": True}),
        ("leases/{lease}/collect", {"discard": ["x" * 500]}),
        ("boxes/adopt", {"provider": "vastai"}),
    ],
)
async def test_a_wrong_request_is_told_what_is_wrong_and_does_nothing(
    served: Served, path: str, body: dict[str, object]
) -> None:
    lease = await lease_of(served)

    answered = await served.page.post(f"/api/{path.format(lease=lease)}", json=body)

    assert answered.status_code == 400, answered.text
    assert answered.json()["remedy"]
    assert (await served.page.get("/api/errands")).json() == {"errands": []}


async def test_offers_are_asked_for_by_the_words_of_a_form(served: Served) -> None:
    """Without a key of any account nothing is found, and that is an answer."""
    found = await served.page.get("/api/offers?hours=4&trust=any")
    wrong = await served.page.get("/api/offers?hours=4&trust=blind")

    assert found.status_code == 200, found.text
    assert "offers" in found.json()
    assert wrong.status_code == 400
    assert "trust" in wrong.json()["message"]


async def test_what_another_program_writes_is_noticed(
    served: Served, environ: dict[str, str]
) -> None:
    before = served.looks.tenancy.ledger.newest_event()
    await served.looks.overview()
    assert served.looks.tenancy.ledger.newest_event() == before
    other = open_tenancy(environ)
    await other.provision("local", smoke="none")
    await other.aclose()

    assert served.looks.tenancy.ledger.newest_event() > before


# Keys


async def test_a_reference_is_kept_with_all_else_in_the_file_as_it_was(
    served: Served, environ: dict[str, str], tmp_path: Path
) -> None:
    configuration = served.looks.tenancy.home.configuration
    configuration.write_text("# mine\n[own]\nx = 1  # note\n", encoding="utf-8")
    key = tmp_path / "key"
    key.write_text("s3cr3t-of-vast", encoding="utf-8")

    answered = await served.page.post(
        "/api/credentials", json={"provider": "vastai", "reference": f"file:{key}"}
    )

    assert answered.status_code == 200, answered.text
    assert answered.json()["written"] == f"file:{key}"
    assert answered.json()["test"]["ok"] is False  # nobody answers here
    text = configuration.read_text(encoding="utf-8")
    assert text.startswith("# mine\n[own]\nx = 1  # note\n")
    assert f'vastai = "file:{key}"' in text
    assert configuration.stat().st_mode & 0o777 == 0o600
    known = {p["id"]: p for p in (await served.page.get("/api/platforms")).json()}
    assert known["vastai"]["credential"]["reference"] == f"file:{key}"
    assert "s3cr3t" not in answered.text + json.dumps(known)


@pytest.mark.parametrize(
    "reference",
    [
        "s3cr3t-0123456789abcdef",
        "cmd:cat /etc/passwd",
        "text:s3cr3t-0123456789abcdef",
        "env:NOT_SET_ANYWHERE",
        "file:/no/such/file",
        "file:a\nb = 1",
        "env:",
    ],
)
async def test_what_is_no_reference_is_not_written_and_not_repeated(
    served: Served, reference: str
) -> None:
    answered = await served.page.post(
        "/api/credentials", json={"provider": "vastai", "reference": reference}
    )

    assert answered.status_code == 400
    assert "s3cr3t" not in answered.text
    assert not served.looks.tenancy.home.configuration.exists()


@pytest.mark.parametrize("scheme", ["env", "file", "keyring"])
async def test_a_key_that_was_typed_behind_a_scheme_is_not_repeated(
    served: Served, scheme: str
) -> None:
    said = {"provider": "vastai", "reference": f"{scheme}:rpa_S3CR3T0123456789abcdef"}

    answered = await served.page.post("/api/credentials", json=said)

    assert answered.status_code == 400
    assert "S3CR3T" not in answered.text
    assert not served.looks.tenancy.home.configuration.exists()


# For Prometheus


SAMPLE = re.compile(
    r"([a-z_]+)(?:\{((?:[a-z_]+=\"(?:[^\"\\\n]|\\[\\\"n])*\",?)+)\})? (-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)"
)


def parsed(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """The samples by metric; anything that the text format does not allow fails."""
    assert text.endswith("\n")
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    helped = ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            helped = line.split(" ")[2]
            assert helped not in found, "a metric comes once, with all of its samples"
        elif line.startswith("# TYPE "):
            assert line == f"# TYPE {helped} gauge"
            found[helped] = []
        else:
            sample = SAMPLE.fullmatch(line)
            assert sample, line
            name, labels, value = sample.groups()
            assert name == helped
            pairs = re.findall(r"([a-z_]+)=\"((?:[^\"\\]|\\.)*)\"", labels or "")
            assert dict(pairs) not in [known for known, _ in found[name]], "no sample comes twice"
            found[name].append((dict(pairs), float(value)))
    return found


async def test_prometheus_reads_what_bills_only_where_the_owner_wants_it_and_with_the_token(
    served: Served,
) -> None:
    off = await served.page.get("/metrics")
    assert off.status_code == 400
    assert "dashboard --metrics" in off.json()["remedy"]

    served.app.state.extras = frozenset({Extra.METRICS})
    assert (await served.stranger.get("/metrics")).status_code == 401
    lease = await lease_of(served)
    answer = await served.page.get("/metrics")

    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    told = parsed(answer.text)
    assert told["gpu_tenant_leases"] == [({"state": "ready", "provider": "local"}, 1.0)]
    assert told["gpu_tenant_alarms"] == [({}, 0.0)]
    assert told["gpu_tenant_burning_usd_per_hour"] == [({}, 0.0)]
    ((labels, left_s),) = told["gpu_tenant_lease_deadline_seconds"]
    assert labels == {"lease": lease, "provider": "local"}
    assert 0 < left_s <= 7200
    assert "gpu_tenant_lease_usd_per_hour" not in told, "what is unknown is no 0"


async def test_prometheus_reads_no_sum_before_anybody_has_looked(served: Served) -> None:
    seen = await served.looks.overview()
    row = seen.leases
    unseen = seen.model_copy(update={"burning_usd_h": None, "spent_usd": None})

    told = parsed(metrics_text(unseen))

    assert row == ()
    assert "gpu_tenant_burning_usd_per_hour" not in told
    assert "gpu_tenant_spent_usd" not in told


async def test_the_use_of_each_gpu_is_told_to_prometheus_while_it_is_seen(served: Served) -> None:
    lease = await lease_of(served)
    (row,) = (await served.looks.overview()).leases
    watched = seen_job(gpu_seen(), gpu_seen(1), job='a"b\\c', lease=lease)
    job = Working.of(watched, at=served.looks.tenancy.clock.now())
    overview = await served.looks.overview()

    def told(*, is_old: bool) -> dict[str, list[tuple[dict[str, str], float]]]:
        shown = row.model_copy(update={"job": job, "is_old": is_old})
        return parsed(metrics_text(overview.model_copy(update={"leases": (shown,)})))

    used = told(is_old=False)["gpu_tenant_gpu_use_ratio"]
    assert [labels for labels, _ in used] == [{"lease": lease, "gpu": n} for n in "01"]
    assert all(0 <= share <= 1 for _, share in used)
    assert "gpu_tenant_gpu_use_ratio" not in told(is_old=True)
