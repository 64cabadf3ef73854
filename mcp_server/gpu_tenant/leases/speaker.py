"""Who stands behind a call: a person, an agent, or this program itself."""

from contextvars import ContextVar
from typing import Literal

Speaker = Literal["program", "agent", "person"]

speaker: ContextVar[Speaker] = ContextVar("speaker", default="program")
"""Who stands behind this call. The face sets it.

`person`: somebody who types at a terminal, or who is at the dashboard's page. `agent`: whoever calls a tool, or a
command whose input is no terminal. `program`: our own watch, which carries on what was agreed.
"""
