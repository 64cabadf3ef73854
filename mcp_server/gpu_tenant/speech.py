"""The same next step in the words of each face: tools for an agent, commands for a terminal."""

import re

TOOL_OF = {
    "smoke": "smoke_test", "offers": "find_offers", "adopt": "provision", "launch": "launch_detached",
    "stop": "stop_job", "teardown": "verify_and_teardown", "leases": "list_leases",
    "extend": "change_lease", "park": "change_lease", "resume": "change_lease",
}  # fmt: skip
"""The commands whose tool has another name; the others have the same."""

_SAME = ("audit", "push", "prepare", "monitor", "collect", "provision", "doctor")
_COMMAND_OF = {
    tool: verb for verb, tool in TOOL_OF.items() if tool not in ("provision", "change_lease")
}
_COMMAND = re.compile(rf"`gpu-tenant ({'|'.join([*TOOL_OF, *_SAME])})\b([^`]*)`")
_FOR_A_PERSON = re.compile(r"--(ended|password-stdin|setup)\b")
"""What only somebody at a terminal can do keeps its command."""
_TOOL = re.compile(rf"\b(?:({'|'.join(_COMMAND_OF)})|change_lease (extend|park|resume))\b")


def in_tools(words: str) -> str:
    """The words, for an agent that has tools and perhaps no terminal."""

    def tool(named: re.Match[str]) -> str:
        verb, rest = named[1], named[2].strip().replace("--", "")
        if _FOR_A_PERSON.search(named[2]):
            return named[0]
        name = TOOL_OF.get(verb, verb)
        return f"`{' '.join(filter(None, (name, verb if name == 'change_lease' else '', rest)))}`"

    return _COMMAND.sub(tool, words)


def in_commands(words: str) -> str:
    """The words, for a person at a terminal."""
    return _TOOL.sub(lambda named: f"gpu-tenant {named[2] or _COMMAND_OF[named[1]]}", words)
