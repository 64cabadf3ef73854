"""How RunPod states money: a pod's cost by periods of time, a volume's rate, and the balance."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from gpu_tenant.domain.billing import Balance, Billed
from gpu_tenant.domain.errors import ProviderSilent
from gpu_tenant.domain.model import MARK_PREFIX, Lease
from gpu_tenant.domain.offers import USD_STEP, Leftover
from gpu_tenant.providers.http_client import Json, figure

PODS, GRAPHQL = "/v2/billing/pods", "/graphql"
MYSELF: Json = {"query": "query myself { myself { clientBalance currentSpendPerHr } }"}
"""REST v2 has no call for the balance. The older API has one, until that API is retired."""
WHO: Json = {"query": "query myself { myself { id } }"}
_LAST_CHANGE = "query pod($id: String!) { pod(input: {podId: $id}) { id lastStatusChange } }"
_BY_THE_HOUR = timedelta(days=3)
_PARTS = {"gpuAmount": "gpu", "cpuAmount": "cpu", "diskAmount": "disk"}
_EMPTY = (
    "at zero, pods with a network volume are stopped, and all others are terminated with their data"
)


def in_time(lease: Lease, now: datetime) -> dict[str, str]:
    """Return the query for what the lease's pod has cost: by the hour while the pod is young, then by the day."""
    since = lease.active_at or lease.created_at
    bucket = "hour" if now - since <= _BY_THE_HOUR else "day"
    return {
        "podId": str(lease.box_id),
        "bucketSize": bucket,
        "startTime": _moment(since),
        "endTime": _moment(now),
    }


def cost(answer: Mapping[str, Json], pod_id: str, now: datetime) -> Billed | None:
    """Return what those records say about the pod. None if they say nothing yet."""
    records = answer.get("records")
    if not isinstance(records, list):
        raise _unreadable()
    usd, by_part = Decimal(0), dict.fromkeys(_PARTS.values(), Decimal(0))
    covered: list[datetime] = []
    for record in records:
        if not isinstance(record, dict):
            raise _unreadable()
        if record.get("podId") != pod_id:
            continue
        usd += _usd(record.get("totalAmount"))
        for field, part in _PARTS.items():
            by_part[part] += _usd(record.get(field))
        begin, end = _time(record.get("startTime")), _time(record.get("endTime"))
        # The current period has only what was billed so far, and does not say until when.
        covered.append(end if end <= now else begin)
    if not covered:
        return None
    return Billed(
        usd=usd,
        until=max(covered),
        by_part={part: sum_usd for part, sum_usd in by_part.items() if sum_usd},
        words="RunPod's billing history of the pod",
    )


def balance(answer: Mapping[str, Json]) -> Balance | None:
    """Return what the account holds. None if the older API no longer says it."""
    data = answer.get("data")
    myself = data.get("myself") if isinstance(data, dict) else None
    if not isinstance(myself, dict) or myself.get("clientBalance") is None:
        return None
    spends = myself.get("currentSpendPerHr")
    return Balance(
        amount_usd=_usd(myself["clientBalance"]),
        spends_usd_h=None if spends is None else _usd(spends),
        words=_EMPTY,
    )


def owner(answer: Mapping[str, Json]) -> str | None:
    """Return the owner of the key. None if the older API does not name one."""
    data = answer.get("data")
    myself = data.get("myself") if isinstance(data, dict) else None
    name = myself.get("id") if isinstance(myself, dict) else None
    return name if isinstance(name, str) and name else None


def asks_last_change(pod_id: str) -> Json:
    """Return the query for what last happened to the pod. Only the older API says that."""
    return {"query": _LAST_CHANGE, "variables": {"id": pod_id}}


def last_change(answer: Mapping[str, Json], pod_id: str) -> str | None:
    """Return what last happened to the pod, with its time. None if the older API does not say it."""
    data = answer.get("data")
    pod = data.get("pod") if isinstance(data, dict) else None
    if not isinstance(pod, dict) or pod.get("id") != pod_id:
        return None
    said = pod.get("lastStatusChange")
    return said if isinstance(said, str) and said.strip() else None


def leftover(volume: Mapping[str, Json]) -> Leftover:
    """Describe a network volume, with what it costs."""
    name, size_gb = str(volume.get("name", "")), volume.get("size")
    usd_month = None
    if isinstance(size_gb, int) and volume.get("type") == "STANDARD":
        usd_month = standard_usd_month(size_gb)
    return Leftover(
        provider="runpod",
        kind="volume",
        id=str(volume.get("id")),
        name=name,
        mark=name if name.startswith(MARK_PREFIX) else None,
        size_gb=size_gb if isinstance(size_gb, int) else None,
        usd_month=usd_month,
    )


def standard_usd_month(size_gb: int) -> Decimal:
    """Return what a network volume of the standard tier costs a month."""
    # "0.05 above 1 TB" may apply to the whole volume or only to the part above 1 TB. This takes
    # the more expensive reading.
    each = Decimal("0.05") * size_gb + Decimal("0.02") * min(size_gb, 1000)
    return each.quantize(USD_STEP)


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _time(value: Json) -> datetime:
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise _unreadable()
    return at


def _usd(value: Json) -> Decimal:
    number = figure(value)
    if number is None:
        raise _unreadable()
    return Decimal(str(number))


def _unreadable() -> ProviderSilent:
    return ProviderSilent(
        "RunPod's answer about money has an unexpected form", remedy="look in its console"
    )
