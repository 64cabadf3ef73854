"""One next step, in the words of whoever reads it."""

import pytest

from gpu_tenant.domain.wording import TOOL_OF, in_commands, in_tools


@pytest.mark.parametrize(
    ("command", "call"),
    [
        ("`gpu-tenant leases` looks again", "`list_leases()` looks again"),
        (
            "`gpu-tenant teardown vastai-ab12` again",
            "`verify_and_teardown(lease='vastai-ab12')` again",
        ),
        ("`gpu-tenant resume own-ab12`", "`change_lease(lease='own-ab12', action='resume')`"),
        (
            "`gpu-tenant extend x --hours 8`, then",
            "`change_lease(lease='x', hours=8, action='extend')`, then",
        ),
        (
            "`gpu-tenant collect x --artifact 'PATTERN'`",
            "`collect(lease='x', artifacts=['PATTERN'])`",
        ),
        ("`gpu-tenant smoke DIR -- COMMAND`", "`smoke_test(directory='DIR', command='COMMAND')`"),
        ("go without by name: --smoke none", "go without by name: smoke='none'"),
        (
            "by name: provision with --unguarded accept; then",
            "by name: provision with unguarded='accept'; then",
        ),
        ("--recover same, or a provider", "recover=['same'], or a provider"),
        ("give --hours 8.", "give hours=8."),
        ("`gpu-tenant hold x 30m`", "`change_lease(lease='x', hours=0.5, action='hold')`"),
        ("`gpu-tenant leases --all`", "`list_leases(which='all')`"),
        ("`gpu-tenant push DIR x`", "`push(directory='DIR', lease='x')`"),
        ("`gpu-tenant adopt user@host[:port]`", "`provision(target='user@host[:port]')`"),
        ("`gpu-tenant offers --provider vastai`", "`find_offers(provider='vastai')`"),
        ("`gpu-tenant audit it's`", "`audit()`"),
        ("`gpu-tenant waive own-ab12` at a terminal", "`gpu-tenant waive own-ab12` at a terminal"),
        ("`gpu-tenant teardown x --ended`", "`gpu-tenant teardown x --ended`"),
        ("`gpu-tenant adopt ... --password-stdin`", "`gpu-tenant adopt ... --password-stdin`"),
    ],
)
def test_an_agent_is_told_the_call_unless_only_a_person_can_do_it(command: str, call: str) -> None:
    assert in_tools(command) == call


@pytest.mark.parametrize(
    ("tools", "commands"),
    [
        ("launch_detached", "gpu-tenant launch"),
        ("monitor; then verify_and_teardown", "monitor; then gpu-tenant teardown"),
        ("change_lease resume; it bills", "gpu-tenant resume; it bills"),
        ("change_lease", "change_lease"),
    ],
)
def test_a_person_is_told_the_command(tools: str, commands: str) -> None:
    assert in_commands(tools) == commands


def test_every_name_goes_there_and_back() -> None:
    alone = {
        verb: tool for verb, tool in TOOL_OF.items() if tool not in ("provision", "change_lease")
    }

    assert {in_commands(tool) for tool in alone.values()} == {
        f"gpu-tenant {verb}" for verb in alone
    }
