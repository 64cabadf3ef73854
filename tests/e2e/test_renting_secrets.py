"""The account's key is a canary: it must show nowhere but in the header that it is meant for."""

import json
import os
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from contract.staged import PROFILES, RENTED
from contract.test_providers import caught
from e2e.leased import command
from e2e.renting import EVERYTHING, FOREVER, NearClock, Tenant
from mcp import Client
from parts import required

from gpu_tenant.emulators.server import Stage
from gpu_tenant.emulators.world import KEY
from gpu_tenant.faces.mcp.server import make_server

WITH_KEY = [slug for slug in RENTED if slug != "gcp"]
"""Google's rehearsal takes callers without one."""
JOB = "mkdir out && env | sort > out/env.txt && echo '{}' > out/model.json"


@contextmanager
def watched_argv(root: Path) -> Iterator[set[bytes]]:
    """The command line of every process that was begun with something below `root` in its environment."""
    seen = {(Path("/proc/self") / "cmdline").read_bytes()}
    over = threading.Event()

    def sample() -> None:
        while not over.wait(0.03):
            for entry in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):
                    if os.fsencode(root) in (entry / "environ").read_bytes():
                        seen.add((entry / "cmdline").read_bytes())

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield seen
    finally:
        over.set()
        sampler.join()


def on_the_command_line(stage: Stage, root: Path, patch: pytest.MonkeyPatch) -> None:
    """Commands in this process are on that stage, and wait no longer than they must."""
    for name, value in {**stage.environment, "HOME": str(root)}.items():
        patch.setenv(name, value)
    patch.delenv("SSH_AUTH_SOCK", raising=False)
    patch.setattr("gpu_tenant.app._clock", lambda url: NearClock(stage))


def files_below(directory: Path) -> dict[Path, bytes]:
    found = {}
    for path in directory.rglob("*"):
        with suppress(OSError):  # what a job or sqlite has just removed
            if path.is_file() and not path.is_symlink():
                found[path] = path.read_bytes()
    return found


@pytest.mark.parametrize("provider", RENTED)
def test_a_whole_lease_shows_no_key_anywhere(
    provider: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    required("sshd")
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "train.py").write_text("print('hello')\n", encoding="utf-8")
    told: list[str] = []

    def does(*words: str) -> str:
        status, out, err = command(*words)
        told.extend((out, err))
        assert status == 0 or words[0] == "audit", (words, status, err)
        return out

    with Stage(provider, tmp_path / "stage", way="ssh") as stage:
        on_the_command_line(stage, tmp_path, monkeypatch)
        home = Path(stage.environment["GPU_TENANT_HOME"])
        with watched_argv(tmp_path) as argv:
            quote = json.loads(does("offers", "--json"))["cheapest"]
            does("provision", "--quote", quote, "--smoke", "none")
            for words in (
                ("doctor",),
                ("audit",),
                ("push", str(tree)),
                ("launch", "--artifact", "out/", "--", JOB),
                ("monitor", "--wait-s", "30"),
                ("leases",),
                ("collect",),
            ):
                does(*words)
            on_the_box = files_below(stage.directory / "boxes")
            receipt = json.loads(does("teardown", "--json"))["receipt"]
        kept = files_below(home)
        requests = [f"{line.path}?{line.query}" for line in stage.world.state.requests]
        bodies = str([line.body for line in stage.world.state.requests])
        own_keys = [str(t.facts.get("api_key") or "-") for t in stage.world.state.things.values()]

    assert receipt["ground"] == "verified"
    assert any(path.name == "env.txt" for path in on_the_box)
    assert any(path.name == "env.txt" for path in kept)
    assert len(argv) > 3, "sshd, ssh-keygen and what ran on the box were seen"
    # Less its first line, which all keys have in common.
    private = list((home / "ssh" / "id_ed25519").read_bytes().splitlines()[2:-1])
    places = {
        "argv": b"\n".join(argv),
        "the terminal": "\n".join(told).encode(),
        "URLs": "\n".join(requests).encode(),
        "bodies": bodies.encode(),
        **{
            str(path): content
            for path, content in {**on_the_box, **kept}.items()
            # A rehearsed box's own environment, which a real one has in its first process.
            if path != home / "ssh" / "id_ed25519" and path.name != ".rehearsal.json"
        },
    }
    secrets = [KEY.encode(), *private, *(key.encode() for key in own_keys if key != "-")]
    assert provider != "vastai" or len(secrets) > 1 + len(private), "Vast.ai gives each box a key"
    print(f"{provider}: {len(secrets)} secrets, {len(argv)} command lines, {len(places)} places")
    assert [at for at, content in places.items() if any(s in content for s in secrets)] == []


SAID: dict[str, Callable[[Tenant, str, str], Awaitable[object]]] = {
    "find_offers": lambda t, q, lease: t.tenancy.find_offers(),
    "list_leases": lambda t, q, lease: t.tenancy.list_leases(),
    "provision": lambda t, q, lease: t.tenancy.provision(smoke="none", quotes=[q], wait_s=0),
    "park": lambda t, q, lease: t.tenancy.change_lease(lease, "park"),
    "doctor": lambda t, q, lease: t.tenancy.doctor(),
    "adopt": lambda t, q, lease: t.tenancy.provision(t.slug, target="nobody"),
    "teardown": lambda t, q, lease: t.tenancy.verify_and_teardown(lease),
}


@pytest.mark.parametrize("tenant", RENTED, indirect=True)
async def test_what_fails_repeats_no_key_that_the_provider_repeats(tenant: Tenant) -> None:
    quotes = await tenant.quotes()
    card = await tenant.tenancy.provision(smoke="none", quotes=quotes[:1], wait_s=3600)
    said: list[str] = []
    for status in (400, 401, 418):
        tenant.fault(
            "status",
            "",
            EVERYTHING,
            status=status,
            times=FOREVER,
            body={"error": f"no such key {KEY}", "api_key": KEY, "env": {"A": KEY}},
        )
        for verb in SAID.values():
            results: list[object] = []

            async def result(verb: Any = verb, results: list[object] = results) -> None:
                results.append(await verb(tenant, quotes[0], card.lease))

            error = await caught(result())
            said += [str(answer) for answer in results]
            if error is not None:
                said += [*traceback.format_exception(error), repr(error), repr(vars(error))]
        tenant.all_is_well()

    assert len(said) > 12
    assert [words for words in said if KEY in words] == []
    assert [
        p for p, content in files_below(tenant.home.root).items() if KEY.encode() in content
    ] == []


@pytest.mark.parametrize("tenant", RENTED, indirect=True)
async def test_no_key_is_in_what_a_model_reads(
    tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_the_command_line(tenant.stage, tenant.root, monkeypatch)
    said: list[str] = []

    async with Client(make_server()) as client:

        async def call(tool: str, **arguments: object) -> Any:
            answer = await client.call_tool(tool, arguments)
            said.append(answer.model_dump_json())
            return answer.structured_content or {}

        found = await call("find_offers", explain="explain")
        card = await call("provision", quotes=[found["cheapest"]], smoke="none", wait_s=0)
        await call("list_leases")
        await call("doctor")
        tenant.destroy_fails("status", status=401, body={"error": f"bad key {KEY}"})
        await call("verify_and_teardown", lease=card["lease"])
        tenant.all_is_well()
        ended = await call("verify_and_teardown", lease=card["lease"])

    assert ended["state"] == "gone"
    assert [words for words in said if KEY in words] == []


@pytest.mark.parametrize("how", ["cmd", "file"])
@pytest.mark.parametrize("provider", WITH_KEY)
def test_a_key_is_found_where_the_configuration_says_and_goes_nowhere_else(
    provider: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "vault"
    secret.write_text(f"{KEY}\n", encoding="utf-8")
    place = PROFILES[provider].credential
    assert place is not None
    with Stage(provider, tmp_path / "stage", way="local", time="frozen") as stage:
        on_the_command_line(stage, tmp_path, monkeypatch)
        for name in place.env:
            monkeypatch.delenv(name, raising=False)
        home = Path(stage.environment["GPU_TENANT_HOME"])
        home.mkdir(exist_ok=True)
        assert "no key" in command("offers", "--on", provider)[2], "there is none elsewhere"
        reference = f"cmd:cat {secret}" if how == "cmd" else f"file:{secret}"
        (home / "config.toml").write_text(
            f'[credentials]\n{provider} = "{reference}"\n', encoding="utf-8"
        )

        with watched_argv(tmp_path) as argv:
            told = [command(*words) for words in (("offers", "--json"), ("doctor", "--json"))]
        kept = files_below(home)

    assert json.loads(told[0][1])["cheapest"], told[0]
    assert KEY not in str(told)
    assert not any(KEY.encode() in line for line in argv)
    assert [path for path, content in kept.items() if KEY.encode() in content] == []


def test_a_key_written_where_a_reference_belongs_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Stage("vastai", tmp_path / "stage", way="local", time="frozen") as stage:
        on_the_command_line(stage, tmp_path, monkeypatch)
        home = Path(stage.environment["GPU_TENANT_HOME"])
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text(f'[credentials]\nvastai = "{KEY}"\n', encoding="utf-8")

        told = [command(*words) for words in (("offers",), ("leases",), ("doctor",))]

    assert "is not a reference" in str(told)
    assert KEY not in str(told)
