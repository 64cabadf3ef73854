"""The verbs of the caretaker, and the part that has the function for each."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PART_OF = {  # this part has a function with the verb's name
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

LOOKS = {"status", "tail", "manifest", "patterns", "complete", "index"}
"""These may end at any moment: they begin no process, and remove and replace no file of a job."""


def function_of(verb: str) -> Callable[[str, dict], dict]:
    """Return the function that carries out that verb. Its part is compiled only now, with the parts that it imports."""
    part = __import__("box_scripts.caretaker." + PART_OF[verb], fromlist=[verb])
    function: Callable[[str, dict], dict] = getattr(part, verb)
    return function
