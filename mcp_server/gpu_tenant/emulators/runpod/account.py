"""RunPod's account in a rehearsal: the credit that is left, and what each pod has cost, by the meter."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from gpu_tenant.emulators.runpod.responses import problem
from gpu_tenant.emulators.world import Thing, World

_STEPS = {"hour": timedelta(hours=1), "day": timedelta(days=1)}
_FIELDS = {"gpu": "gpuAmount", "cpu": "cpuAmount", "disk": "diskAmount"}


class RunpodAccount:
    """The money of one account."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def credit_usd(self) -> Decimal:
        """What is left of the credit, by the meter."""
        spent = (sum(self._world.cost_of(t).values()) for t in self._world.state.things.values())
        return self._world.state.balance_usd - sum(spent, Decimal(0))

    async def graphql(self, request: Request) -> Response:
        """The older API. Only its queries for the balance, the account and a pod's last change are known here."""
        asked = json.loads(await request.body() or b"{}")
        if "lastStatusChange" in str(asked.get("query")):
            pod = self._world.state.things.get(str(asked.get("variables", {}).get("id")))
            told: JsonValue = None
            if pod is not None and pod.status != "TERMINATED":
                told = {"id": pod.id, "lastStatusChange": str(pod.facts["last_change"])}
            return JSONResponse({"data": {"pod": told}})
        if "{ id }" in str(asked.get("query")):
            return JSONResponse(
                {"data": {"myself": {"id": f"user_{self._world.state.account[:20]}"}}}
            )
        if "clientBalance" not in str(asked.get("query")):
            return JSONResponse({"errors": [{"message": "Cannot query that in a rehearsal."}]})
        things = self._world.state.things.values()
        spends = sum((self._world.rate(thing) for thing in things), Decimal(0))
        myself = {"clientBalance": float(self.credit_usd), "currentSpendPerHr": float(spends)}
        return JSONResponse({"data": {"myself": myself}})

    async def pods(self, request: Request) -> Response:
        """What pods have cost, in periods that begin on the hour, or at midnight."""
        asked = request.query_params
        size, named = asked.get("bucketSize", "day"), asked.get("podId")
        now = datetime.fromtimestamp(self._world.now, UTC)
        if size not in _STEPS:
            return problem(400, "a rehearsal knows the bucketSize hour and day alone")
        try:
            begin = datetime.fromisoformat(asked.get("startTime", str(now - timedelta(days=30))))
            until = datetime.fromisoformat(asked.get("endTime", str(now)))
        except ValueError:
            return problem(400, "startTime and endTime are moments in RFC 3339")
        step = _STEPS[size]
        start = begin.replace(minute=0, second=0, microsecond=0)
        start = start.replace(hour=0) if size == "day" else start
        records: list[JsonValue] = []
        pods = [
            thing
            for thing in self._world.state.things.values()
            if thing.kind == "box" and named in (None, thing.id)
        ]
        totals = dict.fromkeys(("totalAmount", *_FIELDS.values()), Decimal(0))
        while start < until:
            for pod in pods:
                amounts = dict(self._amounts(pod, start, start + step))
                if not any(amounts.values()):
                    continue
                amounts["totalAmount"] = sum(amounts.values(), Decimal(0))
                totals = {name: sum_usd + amounts[name] for name, sum_usd in totals.items()}
                span = {"startTime": _moment(start), "endTime": _moment(start + step)}
                shown = {name: float(usd) for name, usd in amounts.items()}
                records.append({**span, "podId": pod.id, **shown})
            start += step
        query = {"startTime": _moment(begin), "endTime": _moment(until), "bucketSize": size}
        metadata: JsonValue = {
            "query": {**query, **({"podId": named} if named else {})},
            "recordCount": len(records),
            "totals": {name: float(usd) for name, usd in totals.items()},
            "uniquePodCount": len(pods),
        }
        return JSONResponse({"records": records, "metadata": metadata})

    def _amounts(self, pod: Thing, begin: datetime, end: datetime) -> Iterator[tuple[str, Decimal]]:
        for part, field in _FIELDS.items():
            usd = Decimal(0)
            for span in pod.spans:
                until = self._world.now if span.until is None else span.until
                seconds = min(until, end.timestamp()) - max(span.since, begin.timestamp())
                if span.component == part and seconds > 0:
                    usd += span.usd_h * Decimal(str(seconds)) / 3600
            yield field, usd.quantize(Decimal("0.000001"))


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
