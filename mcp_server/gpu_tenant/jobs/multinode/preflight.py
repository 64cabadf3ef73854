"""Tests whether several boxes can all reach one another, on the interface that their job will use."""

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gpu_tenant.box.script_replies import reply_of
from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import BoxTrouble, TenantError
from gpu_tenant.domain.model import Lease
from gpu_tenant.domain.ports import Transport
from gpu_tenant.domain.record import Record
from gpu_tenant.domain.untrusted_text import plain, quote_text
from gpu_tenant.files.skill_files import script
from gpu_tenant.jobs.multinode.interfaces import (
    Foothold,
    Interface,
    choose_interface,
    shared_addresses,
)

_LIST_WITHIN_S = 40
_MEET_WITHIN_S = 110
"""A box has this many seconds to test its ways to the others. The program on the box ends by itself before that."""
_TRIED_PORTS = 2
"""This many random ports are tested besides the rendezvous port: NCCL and Gloo use ports that the system chooses."""

_FROM_STDIN = "import sys; exec(compile(sys.stdin.read(int(sys.argv.pop(1))), 'pairs.py', 'exec'))"
"""A program that reads Python code from its input and runs it, so that no file is written on the box.

Its argument is the length of the code. The request for the code follows in the input.
"""


Port = Annotated[int, Field(ge=1, le=65535)]


class _Said(BaseModel):
    """An answer of a box. Fields that this version does not know are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class NodeReport(_Said):
    """What one box reports about itself: its network interfaces, GPUs and InfiniBand."""

    interfaces: tuple[Interface, ...]
    gpus: int = Field(ge=0, le=1024)
    infiniband: tuple[Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")], ...] = ()
    ports: tuple[Port, Port] = (32768, 60999)


class _Try(_Said):
    to: str
    port: Port
    outcome: Literal["talks", "stranger", "other", "stalls", "silent", "refused", "no_way"]
    who: str | None = None
    source: str | None = None
    said: str = ""
    rtt_ms: float | None = Field(default=None, allow_inf_nan=False)
    mb_s: float | None = Field(default=None, allow_inf_nan=False)


class _Met(_Said):
    listening: dict[int, str]
    pairs: tuple[_Try, ...]


class Pair(Record):
    """The result of the test from one box to another."""

    source: str
    target: str
    state: Literal["talks", "does not", "unknown"]
    words: str
    rtt_ms: float | None = None
    mb_s: float | None = Field(default=None, description="in MB/s, while all others sent as well")


class Spot(Record):
    """The place of one box in the chosen network."""

    lease: str
    interface: str
    address: str
    mtu: int | None
    gpus: int
    infiniband: tuple[str, ...]


class Preflight(Record):
    """The result for every ordered pair of several boxes. If one pair cannot talk, no job over these boxes may begin."""

    network: str
    port: int
    nodes: tuple[Spot, ...]
    pairs: tuple[Pair, ...]
    trouble: tuple[str, ...] = Field(description="why they cannot talk, in words")
    warnings: tuple[str, ...]
    next: str

    @property
    def passed(self) -> bool:
        """Whether all the boxes can reach one another."""
        return not self.trouble


async def preflight(
    leases: Sequence[Lease],
    ways: Mapping[str, Transport],
    *,
    wanted: str | None,
    port: int,
) -> Preflight:
    """Find out what each box has, choose a network, and test every ordered pair of boxes in it.

    While this runs, one process on each box listens on `port` and on two other ports. It ends by itself, after some
    twenty seconds at most if something is wrong.

    Raises:
        BadRequest, Refused: there is no suitable network.
        BoxUnreachable, BoxTrouble: a box did not report its network interfaces.
    """
    names = [str(lease.id) for lease in leases]
    listed = await asyncio.gather(*(_look_at(lease, ways[lease.id]) for lease in leases))
    seen = dict(zip(names, listed, strict=True))
    network, at = choose_interface({name: each.interfaces for name, each in seen.items()}, wanted)
    spots = tuple(
        Spot(
            lease=name,
            interface=at[name].interface,
            address=at[name].address,
            mtu=at[name].mtu,
            gpus=each.gpus,
            infiniband=each.infiniband,
        )
        for name, each in seen.items()
    )
    trouble = [
        f"{' and '.join(boxes)} each claim the address {address}: it belongs to the inside of a container, or is behind "
        "address translation, and leads nowhere; publish an address of each box's own (host network), or name another --interface"
        for address, boxes in shared_addresses(at).items()
    ]
    pairs: tuple[Pair, ...] = ()
    if not trouble:
        ports = [port, *_others(port, [each.ports for each in listed])]
        nodes = {name: foothold.address for name, foothold in at.items()}
        secret = secrets.token_hex(32)
        met = await asyncio.gather(
            *(_meet(lease, ways[lease.id], nodes, ports, secret) for lease in leases)
        )
        pairs = judge_pairs(dict(zip(names, met, strict=True)), at, ports)
        trouble += [f"{x.source} -> {x.target}: {x.words}" for x in pairs if x.state != "talks"]
    warnings = [*_unlike(spots), *(_public(at))]
    again = str(Command("preflight", *names))
    return Preflight(
        network=network,
        port=port,
        nodes=spots,
        pairs=pairs,
        trouble=tuple(trouble),
        warnings=tuple(warnings),
        next=f"correct that, then run {again} again"
        if trouble
        else str(Command("launch", *names, then="train.py", together="torchrun", artifact="out/")),
    )


async def _look_at(lease: Lease, way: Transport) -> NodeReport:
    said = await _ask(lease, way, "list", {}, within_s=_LIST_WITHIN_S)
    try:
        return NodeReport.model_validate(said)
    except ValidationError as error:
        raise BoxTrouble(
            f"what {lease.id} says about its network could not be understood",
            remedy=f"{Command('ssh', lease.id)} opens a shell on the box",
        ) from error


async def _meet(
    lease: Lease, way: Transport, nodes: Mapping[str, str], ports: Sequence[int], secret: str
) -> object:
    """Return the box's report on which other boxes it reached, or the error if there is no report.

    The error is returned and not raised, so that the reports of the other boxes are not lost.
    """
    request = {"secret": secret, "me": lease.id, "nodes": dict(nodes), "ports": list(ports)}
    try:
        return await _ask(lease, way, "meet", request, within_s=_MEET_WITHIN_S)
    except TenantError as trouble:
        return trouble


async def _ask(
    lease: Lease, way: Transport, verb: str, request: Mapping[str, object], *, within_s: float
) -> object:
    text = script("pairs.py").read_text(encoding="ascii")
    finished = await way.run(
        ["python3", "-I", "-S", "-c", _FROM_STDIN, str(len(text)), verb],
        stdin=(text + json.dumps(request)).encode(),
        timeout_s=within_s,
    )
    if finished.exit_status == 127:
        raise BoxTrouble(
            f"there is no python3 on the box of {lease.id}", remedy=str(Command("audit", lease.id))
        )
    reply = reply_of(finished)
    if reply is None:
        lines = plain(finished.stderr.decode("utf-8", "replace"), max_line=200).split("\n")
        words = next((line for line in reversed(lines) if line.strip()), "nothing")
        raise BoxTrouble(
            f"{lease.id} did not say what it sees: {quote_text(words)}",
            remedy=f"{Command('audit', lease.id)} looks at the box",
        )
    return reply


def _others(port: int, ranges: Sequence[tuple[int, int]]) -> list[int]:
    """Choose random ports that the systems of all boxes may assign to a program."""
    low, high = max(low for low, _ in ranges), min(high for _, high in ranges)
    free = [number for number in range(max(low, 1024), high + 1) if number != port]
    return secrets.SystemRandom().sample(free, min(_TRIED_PORTS, len(free)))


# Judging the answers


def judge_pairs(
    said: Mapping[str, object], at: Mapping[str, Foothold], ports: Sequence[int]
) -> tuple[Pair, ...]:
    """Judge every ordered pair of those boxes, by what each box reported, or by the error if it did not report."""
    met = {box: _understand(box, answer) for box, answer in said.items()}
    return tuple(_pair(a, b, at, met, ports) for a in met for b in met if a != b)


def _understand(box: str, answer: object) -> _Met | str:
    if isinstance(answer, TenantError):
        return answer.message
    try:
        return _Met.model_validate(answer)
    except ValidationError:
        return f"what {box} says about its network could not be understood"


def _pair(
    source: str,
    target: str,
    at: Mapping[str, Foothold],
    met: Mapping[str, _Met | str],
    ports: Sequence[int],
) -> Pair:
    there, mine = met[target], met[source]
    if isinstance(mine, str):
        return Pair(source=source, target=target, state="unknown", words=mine)
    tries = [x for x in mine.pairs if x.to == target]
    failed = next((x for x in tries if x.outcome != "talks"), None)
    first = tries[0] if tries else None
    if isinstance(there, _Met):
        for port in ports:
            held = quote_text(there.listening.get(port, "yes"))
            if held != "yes":
                words = f"{target} cannot listen on {at[target].address}:{port} ({held})"
                if port == ports[0]:
                    words += (
                        f": an earlier job may use that port: {Command('monitor', target)} shows it; or name "
                        "another --port"
                    )
                return Pair(source=source, target=target, state="does not", words=words)
    if first is None or failed is not None:
        words = (
            _why(failed, target, at[target], ports)
            if failed
            else f"the way to {target} was not tested"
        )
        return Pair(
            source=source, target=target, state="does not" if failed else "unknown", words=words
        )
    words = "talks"
    if first.source is not None and first.source != at[source].address:
        words = f"talks, but arrives as {quote_text(first.source)}: its address is translated on the way"
    return Pair(
        source=source,
        target=target,
        state="talks",
        words=words,
        rtt_ms=first.rtt_ms,
        mb_s=first.mb_s,
    )


def _why(failed: _Try, target: str, there: Foothold, ports: Sequence[int]) -> str:
    place = f"{there.address}:{failed.port}"
    match failed.outcome:
        case "silent" if failed.port != ports[0]:
            return (
                f"{place} is not let through, although {ports[0]} is: NCCL listens on ports of its own, so open "
                "all ports between the nodes, but only on the private network"
            )
        case "silent":
            return (
                f"nothing comes back from {place}: a firewall or another network; open all ports between the nodes "
                f"at the provider, or name another --interface; {Command('ssh', target)} opens a shell on the box"
            )
        case "refused":
            return (
                f"{place} refuses: something on the way answers in its place, or {target} did not begin in time; "
                "run the same command again"
            )
        case "other":
            return (
                f"at {place}, {quote_text(failed.who or '?')} answers: the address does not lead to {target}; "
                "name an --interface on which each box has its own address"
            )
        case "stranger":
            return (
                f"the machine that answers at {place} is none of these boxes; name another --interface or "
                "--port"
            )
        case "stalls":
            return (
                f"small messages reach {place}, but large ones do not: frames are cut on the way; "
                f"set the same MTU everywhere ({there.interface} of {target} has {there.mtu})"
            )
        case _:
            return (
                f"there is no way to {place} ({quote_text(failed.said)}); name another --interface"
            )


def _unlike(spots: Sequence[Spot]) -> list[str]:
    words = []
    if len({spot.mtu for spot in spots}) > 1:
        listed = ", ".join(f"{spot.lease} {spot.mtu}" for spot in spots)
        words.append(
            f"their MTUs differ ({listed}): large messages may hang; set the same MTU everywhere"
        )
    if len({spot.gpus for spot in spots}) > 1:
        listed = ", ".join(f"{spot.lease} {spot.gpus}" for spot in spots)
        words.append(f"they have different numbers of GPUs ({listed})")
    having = [spot.lease for spot in spots if spot.infiniband]
    if having and len(having) < len(spots):
        words.append(f"only {', '.join(having)} has InfiniBand: InfiniBand is switched off for all")
    return words


def _public(at: Mapping[str, Foothold]) -> list[str]:
    return [
        f"{box} is reached at a public address: neither NCCL nor the rendezvous authenticates anybody, "
        "so let only these boxes in"
        for box, foothold in at.items()
        if foothold.is_public
    ]
