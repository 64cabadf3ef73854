"""Looks, before money is spent, whether a project lets anybody reach a box of ours: its network, and the rule for ssh."""

from collections.abc import Sequence
from typing import Any

from gpu_tenant.domain.errors import Rejected
from gpu_tenant.providers.gcp.client import GcpClient

_NO_NETWORK = "the project has no network `default`, which a box would be on: `gcloud compute networks create default` makes one"
_NO_RULE = (
    "no rule of the project's network lets ssh in from anywhere: `gcloud compute firewall-rules create default-allow-ssh "
    "--network default --allow tcp:22` makes one"
)


async def obstacles(calls: GcpClient) -> Sequence[str]:
    """Return in words what would keep us from a new box.

    Raises:
        ProviderTrouble: Google did not say, or this account may not ask.
    """
    try:
        await calls.ask("Networks", "get", {"network": "default"})
    except Rejected as error:
        if error.status != 404:
            raise
        return [_NO_NETWORK]
    rules = await calls.pages("Firewalls")
    return [] if any(map(_lets_ssh_in, rules)) else [_NO_RULE]


def _lets_ssh_in(rule: Any) -> bool:
    """Whether the rule lets ssh reach a box without tags from anywhere. A rule that denies it is not looked for."""
    is_ours = rule.network.endswith("/networks/default") and not rule.disabled
    if not is_ours or rule.direction != "INGRESS":
        return False
    if not {"0.0.0.0/0", "::/0"} & set(rule.source_ranges):
        return False  # it is for some addresses, and ours may not be one of them
    if rule.target_tags or rule.target_service_accounts:
        return False
    return any(
        entry.I_p_protocol.lower() in ("all", "tcp", "6")
        and (not entry.ports or any(map(_has_22, entry.ports)))
        for entry in rule.allowed
    )


def _has_22(ports: str) -> bool:
    first, _, last = ports.partition("-")
    return first.isdigit() and int(first) <= 22 <= int(last if last.isdigit() else first)
