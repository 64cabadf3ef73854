"""The operations of `service.py` that an errand uses (its verbs). An errand does everything by these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from decimal import Decimal

    from gpu_tenant.artifacts.collect import Collected
    from gpu_tenant.artifacts.push import Pushed
    from gpu_tenant.box.audit.run import Audited
    from gpu_tenant.box.environment.prepare import Prepared
    from gpu_tenant.domain.choices import Trust
    from gpu_tenant.domain.order import Order
    from gpu_tenant.domain.ports import Clock
    from gpu_tenant.domain.terms import RentRequest
    from gpu_tenant.jobs.launch import Launched
    from gpu_tenant.jobs.monitor import Watched
    from gpu_tenant.jobs.smoke import SmokeReceipt
    from gpu_tenant.leases.cards import Card, Leases, TornDown
    from gpu_tenant.leases.context import Context
    from gpu_tenant.leases.gpu_gate import GateResult
    from gpu_tenant.leases.offers import Found
    from gpu_tenant.ledger import Ledger


class Verbs(Protocol):
    """One user's leases, and the operations on them that an errand uses. `Tenancy` implements this."""

    @property
    def context(self) -> Context: ...

    @property
    def ledger(self) -> Ledger: ...

    @property
    def clock(self) -> Clock: ...

    async def run_smoke(
        self,
        directory: str,
        command: str,
        time_limit_s: float = ...,
        include: Sequence[str] = ...,
        hear: Callable[[float, str], None] | None = ...,
    ) -> SmokeReceipt: ...

    async def search_offers(
        self,
        gpu: str | None = ...,
        *,
        provider: str | None = ...,
        order: str | Order = ...,
        hours: float,
        max_price_usd_h: Decimal | None,
        vram_gib: float | None,
        trust: Trust,
        interruptible: str,
        smoke: str | None,
    ) -> Found: ...

    async def rent(
        self,
        asked: RentRequest,
        *,
        provider: str = ...,
        target: str | None = ...,
        smoke: str | None = ...,
        quotes: Sequence[str] = ...,
        wait_s: float = ...,
    ) -> Card: ...

    async def audit(
        self, lease: str, gpus: int | None = ..., vram_gib: float | None = ...
    ) -> Audited: ...

    async def push(
        self,
        lease: str,
        directory: str,
        include_secrets: list[str] = ...,
        overwrite: list[str] = ...,
        include: list[str] = ...,
    ) -> Pushed: ...

    async def prepare(
        self,
        lease: str,
        source: str | None = ...,
        clone: str | None = ...,
        replay: str | None = ...,
        env: list[str] = ...,
        wait_s: float = ...,
    ) -> Prepared: ...

    async def try_on_gpu(self, lease: str, command: str, limit_s: float) -> GateResult: ...

    async def launch_detached(
        self,
        lease: str,
        command: str,
        artifacts: list[str],
        discard: list[str] = ...,
        env: list[str] = ...,
        max_runtime_h: float | None = ...,
        name: str | None = ...,
        *,
        stalled_after_s: float | None = ...,
    ) -> Launched: ...

    async def follow(
        self, lease: str, job: str | None, *, cursor: int | None, wait_s: float, limit_bytes: int
    ) -> Watched: ...

    async def collect(
        self,
        lease: str,
        to: str | None = ...,
        artifacts: list[str] = ...,
        discard: list[str] = ...,
    ) -> Collected: ...

    async def change_lease(self, lease: str, action: Literal["park", "resume"]) -> Card: ...

    async def verify_and_teardown(self, lease: str) -> TornDown: ...

    async def list_leases(self) -> Leases: ...
