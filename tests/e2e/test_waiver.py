"""What a person signs for is what they were shown, by name, also while a job runs; and nobody else signs."""

import json
import re
import shlex
import sys
from pathlib import Path

from e2e.owner import Owner
from sshd import wait_until
from terminal import typed_at

from gpu_tenant.domain.model import LeaseState

WRITES = (
    "mkdir -p out; for n in 1 2 3 4 5 6 7; do head -c 1000 /dev/urandom >out/step-$n.bin; done;"
    " echo 1 >forgotten.txt; touch ready; while [ ! -e enough ]; do sleep 0.1; done"
)
LOADED = [f"work/out/step-{n}.bin" for n in range(1, 8)]


def test_while_a_job_runs_a_person_sees_every_name_before_signing(owner: Owner) -> None:
    lease = owner.has_launched(WRITES)
    wait_until(lambda: (owner.work(lease) / "ready").exists())

    status, out, shown = typed_at(["waive", lease], lease)

    assert status == 0, shown
    assert "a job is still running" in shown
    for name in (*LOADED, "forgotten.txt"):
        assert re.search(rf"- \S*{name}", shown), name
    assert "so far" in shown
    assert "waived" in out
    assert owner.stands(lease) is LeaseState.GONE


def test_the_whole_list_is_there_for_a_program_too(owner: Owner) -> None:
    lease = owner.has_launched(WRITES)
    wait_until(lambda: (owner.work(lease) / "ready").exists())

    refused = owner.is_told(3, "SIGNATURE_WANTED", "waive", lease)
    (asked,) = json.loads(owner.does("sign", "--json"))["open"]

    assert asked["code"] in refused
    assert asked["subject"] == lease
    for name in (*LOADED, "forgotten.txt"):
        assert any(name in words for words in asked["words"]), name


def test_more_of_the_same_job_is_covered_and_anything_else_is_not(owner: Owner) -> None:
    lease = owner.has_launched(WRITES)
    wait_until(lambda: (owner.work(lease) / "ready").exists())
    code = re.search(
        r"gpu-tenant sign (\w{6})", owner.is_told(3, "SIGNATURE_WANTED", "waive", lease)
    )
    assert code is not None
    assert typed_at(["sign", code[1]], lease)[0] == 0

    (owner.work(lease) / "enough").touch()
    owner.sees_the_end(lease)
    owner.is_told(3, "UNVERIFIED", "teardown", lease)
    assert "this is not what was signed for" in owner.is_told(3, "SIGNATURE_WANTED", "waive", lease)

    assert owner.stands(lease) is LeaseState.ACTIVE


SIGN_FOR_ITSELF = """
import asyncio, os, sys
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import ElicitResult

lease, home = sys.argv[1:]
asked = []

async def accept(context, params):
    asked.append(params.message)
    return ElicitResult(action="accept", content={"lease_id": lease})

async def main(mark):
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "GPU_TENANT_HOME": home, **mark}
    server = StdioServerParameters(command=sys.executable, args=["-m", "gpu_tenant", "serve"], env=env)
    async with Client(stdio_client(server), elicitation_callback=accept) as client:
        for _ in range(2):
            answer = await client.call_tool(
                "verify_and_teardown", {"lease": lease, "on_refusal": "ask_owner"}
            )
            print(bool(asked), "".join(part.text for part in answer.content)[:18])

asyncio.run(main({"GPU_TENANT_UNATTENDED": "1"}))
asyncio.run(main({}))
"""


def test_a_command_of_an_agent_that_speaks_to_a_server_of_its_own_signs_nothing(
    owner: Owner,
) -> None:
    lease = owner.has_run()
    (owner.tree / "selfsign.py").write_text(SIGN_FOR_ITSELF, encoding="utf-8")

    command = f"{shlex.quote(sys.executable)} selfsign.py {lease} {owner.state}"
    ran = owner.does("smoke", str(owner.tree), "--time-limit-s", "400", "--json", "--", command)

    said = json.loads(ran)["log_tail"].splitlines()
    assert said[:2] == ["False REFUSED: nobody is"] * 2
    # Where the smoke test is kept from this computer's files, its server has a ledger of its own.
    assert said[2:] in (["True SIGNATURE_WANTED: "] * 2, ["False UNKNOWN_LEASE: no "] * 2)
    assert owner.stands(lease) is LeaseState.ACTIVE
    assert owner.work(lease).exists()


def test_a_sweep_is_accepted_by_a_person_and_by_no_pipe(owner: Owner, tmp_path: Path) -> None:
    lease = owner.has_box()
    owner.does("push", str(owner.tree), lease)
    owner.does("launch", lease, "--matrix", "x=1", "--artifact", "{cell}/", "--", "exit {x}")
    wait_until(lambda: "failed" in owner.does_or_not("sweep"))

    piped = owner.starts("sweep", "--settle")
    _, err = piped.communicate(b"sw-1\n")
    assert (piped.returncode, b"SIGNATURE_WANTED" in err) == (3, True), err

    status, out, shown = typed_at(["sweep", "--settle"], "sw-1")
    assert status == 0, shown
    assert "typed at a terminal" in out
