"""What a provider answers that is not known is kept without anybody's secrets, and is never taken for an end."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from arranged import setting
from contract.documents.known_fields import RENTED, known
from contract.staged import Staged, on_stage
from liar import Liar, Said, each

from gpu_tenant.app import connect
from gpu_tenant.domain.errors import ProviderSilent
from gpu_tenant.domain.model import BoxState
from gpu_tenant.domain.offers import Wish
from gpu_tenant.domain.ports import Connector, Market
from gpu_tenant.files.rehearsal_marker import Rehearsal, put_rehearsal
from gpu_tenant.providers.drift import (
    Drift,
    Drifted,
    drift_directory,
    form_of,
    known_fields,
    read_drift,
    without_ids,
)


@pytest.fixture
def runpod(tmp_path: Path) -> Iterator[Staged]:
    with on_stage("runpod", tmp_path) as staged:
        yield staged


def lied_to(staged: Staged, liar: Liar) -> Connector:
    """A connector that asks the liar."""
    put_rehearsal(staged.home.root, Rehearsal(provider=staged.profile.id, url=liar.url))
    made = connect(staged.profile, staged.home, staged.stage.environment, staged.clock)
    assert made is not None
    return made


def kept(staged: Staged) -> list[Drifted]:
    return [drifted for found in read_drift(staged.home.root) for drifted in found.seen]


@pytest.mark.parametrize("slug", RENTED)
async def test_nothing_that_a_provider_documents_and_its_emulator_says_is_taken_for_new(
    slug: str, tmp_path: Path
) -> None:
    assert set(known(slug)) <= set(known_fields(slug)), "run contract/documents/known_fields.py"
    with on_stage(slug, tmp_path) as staged:
        assert isinstance(staged.connector, Market)
        await staged.connector.offers(Wish(hours=1))
        await staged.connector.create(await staged.intent())
        await staged.connector.list_boxes()

        assert kept(staged) == []


async def test_a_field_that_nobody_knows_is_kept_once_and_the_box_stays_readable(
    runpod: Staged,
) -> None:
    intent = await runpod.intent()
    box = await runpod.connector.create(intent)

    def lie(said: Said) -> Said:
        if "/v2/pods" in said.path and "pods" in said.body:
            said.body["pods"][0]["placement"] = {"alice@example.com": "10.0.0.7"}
        return said

    with Liar(runpod.stage.url, lie) as liar:
        for _ in range(2):
            boxes = await lied_to(runpod, liar).list_boxes()
            assert [b.id for b in boxes] == [box.id]

    (drifted,) = kept(runpod)
    assert (drifted.kind, drifted.what, drifted.where) == ("field", "placement", "GET /v2/pods")
    raw = (drift_directory(runpod.home.root) / "runpod.json").read_text(encoding="utf-8")
    assert not [s for s in ("alice", "10.0.0.7", str(box.id), str(intent.mark), "ssh-") if s in raw]


async def test_a_state_that_nobody_knows_is_kept_with_its_word_and_the_box_is_not_gone(
    runpod: Staged,
) -> None:
    await runpod.connector.create(await runpod.intent())

    def lie(said: Said) -> Said:
        def change(row: dict[str, Any]) -> None:
            if "status" in row and "gpu" in row:
                row["status"] = "MIGRATING"

        return Said(**{**vars(said), "body": each(said.body, change)})

    with Liar(runpod.stage.url, lie) as liar:
        (box,) = await lied_to(runpod, liar).list_boxes()

    assert box.state is BoxState.UNKNOWN
    assert [(d.kind, d.what) for d in kept(runpod)] == [("state", "status MIGRATING")]


async def test_a_price_in_another_form_is_kept_with_the_price(runpod: Staged) -> None:
    await runpod.connector.create(await runpod.intent())

    def lie(said: Said) -> Said:
        def change(row: dict[str, Any]) -> None:
            if "cost" in row:
                row["cost"] = f"{row['cost']} USD"

        return Said(**{**vars(said), "body": each(said.body, change)})

    with Liar(runpod.stage.url, lie) as liar:
        await lied_to(runpod, liar).list_boxes()

    assert ("form", "cost (a text)") in [(d.kind, d.what) for d in kept(runpod)]


async def test_a_list_that_goes_on_in_an_unknown_way_is_kept_and_proves_nothing(
    runpod: Staged,
) -> None:
    await runpod.connector.create(await runpod.intent())

    def lie(said: Said) -> Said:
        if "/v2/pods" in said.path and "pods" in said.body:
            said.body = {"pods": [], "links": {"next": "/v2/pods?after=secret-token"}}
        return said

    with (
        Liar(runpod.stage.url, lie) as liar,
        pytest.raises(ProviderSilent, match="nothing can be concluded"),
    ):
        await lied_to(runpod, liar).list_boxes()

    assert ("page", "next") in [(d.kind, d.what) for d in kept(runpod)]
    assert "secret-token" not in json.dumps([d.answer for d in kept(runpod)])


def test_of_an_answer_only_names_prices_and_states_stay() -> None:
    answer = {
        "id": "b-17",
        "status": "running",
        "price_hourly": 1.5,
        "env": {"A KEY": "v"},
        "users": [{"name": "Alice"}, {"name": "Bob"}],
        "ok": True,
        "status_msg": "hello Alice",
    }

    assert form_of(answer) == {
        "id": "a text",
        "status": "running",
        "price_hourly": 1.5,
        "env": {"a name of 5 characters": "a text"},
        "users": [{"name": "a text"}],
        "ok": True,
        "status_msg": "a text",
    }
    assert without_ids("/v2/pods/abc123XYZ/action?key=1") == "/v2/pods/ID/action"


def test_what_is_kept_of_one_provider_is_bounded(tmp_path: Path) -> None:
    for start in (0, 300):  # two processes
        drift = Drift(setting(tmp_path, "local"))
        for number in range(start, start + 300):
            drift.note("field", f"field_{number}", {f"f{i}": ["x"] * 9 for i in range(3000)})

    (found,) = read_drift(tmp_path)
    assert len(found.seen) == 40
    assert (drift_directory(tmp_path) / "local.json").stat().st_size < 40 * (17 << 10)
