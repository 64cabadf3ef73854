"""The verbs, each a function of one part."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PART_OF = {  # what each verb does stands in that part, under the verb's name
    "start": "launch",
    "status": "status",
    "tail": "status",
    "stop": "stop",
    "manifest": "seal",
    "patterns": "pattern_bounds",
    "complete": "complete",
    "prune": "prune",
    "index": "push",
    "receive": "push",
    "place": "push",
    "guard": "guard",
}


def function_of(verb: str) -> Callable[[str, dict], dict]:
    """The function that carries out that verb. Only now its part is compiled, with what that part imports."""
    part = __import__("box_scripts.caretaker." + PART_OF[verb], fromlist=[verb])
    function: Callable[[str, dict], dict] = getattr(part, verb)
    return function
