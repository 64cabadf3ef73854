"""One job over several boxes: its lines, the network it goes by, and what a preflight that failed says."""

import shlex

import pytest
from pydantic import ValidationError

from gpu_tenant.domain.errors import BadRequest, Refused
from gpu_tenant.domain.model import LeaseId
from gpu_tenant.jobs.multinode.interfaces import Interface, choose_interface, shared_addresses
from gpu_tenant.jobs.multinode.launcher import Launcher, Node, lines
from gpu_tenant.jobs.multinode.preflight import NodeReport, Pair, judge_pairs


def node(number: int, *, processes: int = 8, infiniband: bool = True) -> Node:
    return Node(
        LeaseId(f"vast-{number}"),
        f"10.0.0.{number}",
        f"eth{number}",
        processes=processes,
        gpus=processes,
        infiniband="active" if infiniband else "none",
    )


def told(line: str) -> tuple[dict[str, str], list[str]]:
    """The environment of that line, and what it runs."""
    first, *words = shlex.split(line)
    assert first == "env"
    environment = {}
    while "=" in words[0]:
        name, _, environment[name] = words.pop(0).partition("=")
    return environment, words


def made(*nodes: Node, command: str = "train.py --lr '1e 3'", launcher: Launcher = "torchrun"):  # type: ignore[no-untyped-def]
    pythons = ["python3"] * len(nodes)
    return lines(nodes, command, launcher=launcher, run_id="run-7", port=29400, pythons=pythons)


def test_torchrun_is_told_one_endpoint_and_each_node_its_own_rank() -> None:
    for rank, line in enumerate(made(node(1), node(2, processes=4))):
        _, words = told(line)
        assert words[:3] == ["python3", "-m", "torch.distributed.run"]
        assert words[-3:] == ["train.py", "--lr", "1e 3"]
        assert set(words[3:-3]) == {
            "--nnodes=2",
            f"--node-rank={rank}",
            f"--nproc-per-node={(8, 4)[rank]}",
            "--rdzv-backend=static",
            "--rdzv-id=run-7",
            "--rdzv-endpoint=10.0.0.1:29400",
            "--master-addr=10.0.0.1",
            "--master-port=29400",
        }


def test_accelerate_counts_all_processes_and_wants_as_many_on_each() -> None:
    for rank, line in enumerate(made(node(1), node(2), node(3), launcher="accelerate")):
        assert {"--num_machines=3", "--num_processes=24", f"--machine_rank={rank}"} < set(
            told(line)[1]
        )

    with pytest.raises(BadRequest, match="8 on vast-1, 4 on vast-2"):
        made(node(1), node(2, processes=4), launcher="accelerate")


def test_each_node_is_told_its_own_interface_by_its_whole_name() -> None:
    for number, line in enumerate(made(node(1), node(2)), 1):
        environment, _ = told(line)
        # Without `=` NCCL takes every interface whose name begins so.
        assert environment["NCCL_SOCKET_IFNAME"] == f"=eth{number}"
        assert environment["GLOO_SOCKET_IFNAME"] == f"eth{number}"
        assert "NCCL_IB_DISABLE" not in environment


def test_infiniband_is_used_by_all_or_by_none() -> None:
    for line in made(node(1), node(2, infiniband=False)):
        assert told(line)[0]["NCCL_IB_DISABLE"] == "1"


@pytest.mark.parametrize("command", ["python3 train.py", "/usr/bin/torchrun train.py", " "])
def test_a_launcher_starts_python_itself(command: str) -> None:
    with pytest.raises(BadRequest, match="starts python by itself"):
        made(node(1), node(2), command=command)


def has(**interfaces: str) -> list[Interface]:
    return [Interface(name=name, addresses=(said,)) for name, said in interfaces.items()]


def test_the_private_network_that_all_are_in_is_chosen_whatever_its_name() -> None:
    seen = {
        "a": has(lo="127.0.0.1/8", docker0="172.17.0.1/16", eth0="8.8.8.8/24", eth1="10.1.0.4/16"),
        "b": has(lo="127.0.0.1/8", docker0="172.17.0.1/16", eth0="8.8.8.9/24", ens7="10.1.9.4/16"),
    }

    network, at = choose_interface(seen, None)

    assert network == "10.1.0.0/16"
    assert [at[box].words for box in "ab"] == ["eth1 10.1.0.4", "ens7 10.1.9.4"]
    assert choose_interface(seen, "10.1.0.0/16")[1]["b"].interface == "ens7"


def test_where_all_call_one_address_their_own_there_is_no_network() -> None:
    inside = {box: has(eth0="172.17.0.2/16") for box in "ab"}

    with pytest.raises(Refused, match="in which each has its own address"):
        choose_interface(inside, None)
    assert shared_addresses(choose_interface(inside, "eth0")[1]) == {"172.17.0.2": ["a", "b"]}


def test_an_interface_that_one_lacks_is_said_with_what_it_has() -> None:
    with pytest.raises(BadRequest, match=r"b has no address on eth1 \(it has eth0 10.0.0.2\)"):
        choose_interface({"a": has(eth1="10.0.0.1/24"), "b": has(eth0="10.0.0.2/24")}, "eth1")


@pytest.mark.parametrize(
    "odd",
    [
        {"interfaces": [{"name": "eth0\x1b[2J", "addresses": ["10.0.0.1/24"]}]},
        {"interfaces": [{"name": "eth0", "addresses": ["fe80::1%\x1b[2J/64"]}]},
        {"interfaces": [{"name": "eth0", "addresses": [], "mtu": 10**12}]},
        {"infiniband": ["mlx5_0\n; reboot"]},
        {"ports": [1024, 10**12]},
    ],
)
def test_what_no_network_has_is_not_believed_of_a_box(odd: dict[str, object]) -> None:
    sober = {"interfaces": [{"name": "eth0@if5", "addresses": ["10.0.0.1/24"]}], "gpus": 8}
    NodeReport.model_validate(sober)

    with pytest.raises(ValidationError):
        NodeReport.model_validate({**sober, **odd})


def went(outcome: str, *, port: int = 29400, **more: object) -> Pair:
    """What is made of the way from a to b, where it went so."""
    at = choose_interface({"a": has(eth0="10.0.0.1/24"), "b": has(eth0="10.0.0.2/24")}, "eth0")[1]
    first = [{"to": "b", "port": 29400, "outcome": "talks", "source": "10.0.0.1"}]
    tries = [
        *(first if port != 29400 else []),
        {"to": "b", "port": port, "outcome": outcome, **more},
    ]
    listening = {"29400": "yes", "40000": "yes"}
    said = {
        "a": {"listening": listening, "pairs": tries},
        "b": {"listening": listening, "pairs": [{**tries[0], "to": "a", "source": "10.0.0.2"}]},
    }
    return judge_pairs(said, at, (29400, 40000))[0]


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        (went("silent"), r"nothing comes back from 10\.0\.0\.2:29400: a firewall"),
        (went("silent", port=40000), "10.0.0.2:40000 is not let through, although 29400 is"),
        (went("other", who="c"), "c answers: the address does not lead to b"),
        (went("stranger"), "none of these boxes"),
        (went("stalls"), "small messages reach 10.0.0.2:29400, but large ones do not"),
        (went("no_way", said="No route to host\x1b[2J"), r'no way to .* \("No route to host"\)'),
    ],
)
def test_what_is_wrong_is_said_in_words(pair: Pair, says: str) -> None:
    import re

    assert (pair.state, bool(re.search(says, pair.words))) == ("does not", True), pair.words


def test_a_translated_address_is_told_and_is_no_fault() -> None:
    pair = went("talks", source="192.0.2.7")

    assert (pair.state, "arrives as 192.0.2.7" in pair.words) == ("talks", True)
