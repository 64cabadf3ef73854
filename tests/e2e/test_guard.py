"""A rented box is armed before its job starts, says what was proved, and ends its own bill."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from arranged import eventually
from e2e.renting import Tenant, tenant_at

from gpu_tenant.box.caretaker import Caretaker
from gpu_tenant.box.guard import arm
from gpu_tenant.box.guard_record import last_armed, note_gone
from gpu_tenant.box.session import Session
from gpu_tenant.domain.errors import Refused
from gpu_tenant.domain.protection import GuardState
from gpu_tenant.files.skill_files import script
from gpu_tenant.transports.local import LocalTransport

PROVED = (
    "it stops the jobs, then the box stops itself with its own key (proved); while a watchdog is still "
    "ending the lease, it waits at most 15 min longer"
)


def guard_on(tenant: Tenant, box: str) -> Callable[[], dict[str, Any]]:
    top = tenant.top_of(box)
    return lambda: json.loads(next(top.glob("gpu-tenant/*/caretaker/guard.json")).read_bytes())


def told(tenant: Tenant, lease: str) -> list[str]:
    return [line.kind for line in tenant.tenancy.ledger.events(lease)]


async def test_a_box_is_armed_before_its_job_begins_and_again_when_its_lease_is_extended(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        card = await tenant.rented()
        lease, key = tenant.lease(card), str(tenant.thing(card.box).facts["api_key"])

        launched = await tenant.tenancy.launch_detached(lease.id, "exec sleep 600", ["out/"])

        assert launched.guard == f"armed: at {lease.terms.deadline_at:%Y-%m-%d %H:%M} UTC {PROVED}"
        kinds = told(tenant, lease.id)
        assert kinds.index("guarded") < kinds.index("launched")
        assert kinds.count("guarded") == 1
        assert key not in "".join(
            p.read_text(errors="replace")
            for p in tenant.home_of(card.box or "").rglob("*.json")
            if p.name != ".rehearsal.json"
        )
        await tenant.tenancy.change_lease(lease.id, "extend", hours=9)
        said = last_armed(lease, tenant.tenancy.ledger)
        assert said is not None
        later = tenant.lease(lease.id).terms.deadline_at
        assert f"at {later:%Y-%m-%d %H:%M} UTC" in said.words


async def test_a_key_that_is_taken_away_while_the_lease_lives_is_told_and_tried_until_it_works(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        card = await tenant.rented()
        assert card.box is not None
        thing = tenant.thing(card.box)
        await tenant.tenancy.launch_detached(card.lease, "exec sleep 600", ["out/"])
        key, thing.facts["api_key"] = thing.facts["api_key"], "another"

        await tenant.tenancy.change_lease(card.lease, "extend", hours=1 / 3600)

        said = last_armed(tenant.lease(card), tenant.tenancy.ledger)
        assert said is not None
        assert (said.state, said.ends_the_meter) == ("armed", False)
        assert said.words.startswith(
            "armed to stop the jobs only: nothing on this box can end the bill ("
        )
        guard = guard_on(tenant, card.box)
        assert eventually(lambda: isinstance(guard().get("meter"), dict))
        assert guard()["meter"]["status"] == 401
        thing.facts["api_key"] = key
        assert eventually(lambda: thing.phase == "parked")


async def test_a_box_that_cannot_be_armed_is_told_and_stops_nobody(tmp_path: Path) -> None:
    async with tenant_at("vastai", tmp_path) as tenant:
        card = await tenant.rented()
        lease, nowhere = tenant.lease(card), LocalTransport(tmp_path / "nowhere")
        ledger = tenant.tenancy.ledger
        caretaker = Caretaker(lease, nowhere, script("caretaker.py"))

        async def armed() -> GuardState:
            return await arm(
                Session(lease, tenant.profile, nowhere, caretaker),
                ledger=ledger,
            )

        still = await armed()
        note_gone(lease, ledger=ledger)
        gone = await armed()

        assert (still.state, still.ends_the_meter) == ("armed", True), "what it held, it holds"
        assert "the guard could not be told about later changes: " in still.words
        assert (gone.state, gone.ends_the_meter) == ("not armed", False)
        assert gone.words.startswith("not armed: ")
        assert last_armed(lease, ledger) == gone


async def test_a_store_that_the_box_cannot_write_to_is_told_and_its_key_is_not_left_there(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        card = await tenant.rented()
        assert card.box is not None
        lease, ledger = tenant.lease(card), tenant.tenancy.ledger

        armed = await arm(
            tenant.tenancy.context.session(lease),
            ledger=ledger,
            store={"kind": "directory", "path": "/nowhere/at/all"},
        )

        assert (
            "the guard cannot write to the store: the store is no directory on this box"
            in armed.words
        )
        assert guard_on(tenant, card.box)()["store"] is None


async def test_a_lease_extended_beyond_its_providers_own_timer_says_so(tmp_path: Path) -> None:
    async with tenant_at("gcp", tmp_path) as tenant:
        card = await tenant.rented(hours=2)

        extended = await tenant.tenancy.change_lease(card.lease, "extend", hours=12)
        same = await tenant.tenancy.change_lease(card.lease, "extend", hours=1)

        assert extended.alarm is not None
        assert "itself stops the box at" in extended.alarm
        assert "stops the box" not in (same.alarm or "")
        assert (
            "if its box does nothing for 2 h, that ends it before this deadline; "
            f"`gpu-tenant terms {card.lease} --idle-h 12.0` moves this limit"
        ) in extended.next
        assert "does nothing" not in same.next


async def test_what_our_own_guard_stopped_is_told_as_ours_and_comes_home_after_a_resume(
    tmp_path: Path,
) -> None:
    async with tenant_at("vastai", tmp_path, time="runs") as tenant:
        card = await tenant.rented()
        job = "mkdir out; echo whole > out/a.txt; exec sleep 600"
        await tenant.tenancy.launch_detached(card.lease, job, ["out/"])
        await tenant.tenancy.change_lease(card.lease, "extend", hours=2 / 3600)
        assert eventually(lambda: tenant.thing(card.box).phase == "parked")

        (shown,) = (await tenant.tenancy.list_leases()).leases

        assert (shown.phase, "not because we asked" in (shown.alarm or "")) == ("parked", False)
        with pytest.raises(Refused, match="stopped again at once") as refusal:
            await tenant.tenancy.change_lease(card.lease, "resume")
        assert "--hours 1" in refusal.value.remedy
        await tenant.tenancy.change_lease(card.lease, "resume", hours=1)
        await tenant.tenancy.collect(card.lease)
        assert (tenant.home.artifacts_of(card.lease) / "work/out/a.txt").read_text() == "whole\n"
        assert (await tenant.tenancy.verify_and_teardown(card.lease)).receipt.ground == "verified"
