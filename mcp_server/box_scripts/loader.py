"""Compiles each part of a script when it is first imported. `build.py` copies this code into each script."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

PARTS = {}  # type: dict[str, str]


class Loader:
    """Makes modules from the texts in PARTS when they are needed. Compiling all would take longer than most calls."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name not in PARTS:
            return None
        return ModuleSpec(name, self, is_package=not PARTS[name])  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None  # an ordinary module

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        module.__file__ = __file__
        place = "%s: %s" % (__file__, name.rpartition(".")[2])
        text = PARTS[name][1:]  # without the newline after the opening quotes
        exec(compile(text, place, "exec", dont_inherit=True), module.__dict__)  # noqa: S102


sys.meta_path.insert(0, Loader())
