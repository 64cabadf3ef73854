"""Reads a file of variables (`.env`): one `NAME=VALUE` a line. Nothing in it is expanded or run."""

import re
from pathlib import Path

from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.files.read_small import TooLarge, read_small

_MOST_BYTES = 1 << 20
_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_UNQUOTED_END = re.compile(r"\s+#.*")


def read_env_file(file: Path) -> dict[str, str]:
    """Return the variables of the file. Blank lines and comments are passed over, and quotes around a value removed.

    Raises:
        BadRequest: it is no regular file that can be read, or a line is not `NAME=VALUE`. No value is repeated.
    """
    try:
        content = read_small(file, _MOST_BYTES, links="followed")
        text = None if content is None else content.decode("utf-8-sig")
    except (TooLarge, UnicodeDecodeError):
        text = None
    if text is None or "\0" in text:
        raise BadRequest(
            f"{file} cannot be read as a file of variables",
            remedy="name a file with one NAME=VALUE a line",
        )
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        found = _LINE.fullmatch(stripped)
        if found is None:
            raise BadRequest(
                f"line {number} of {file} is not NAME=VALUE", remedy="correct that line"
            )
        name, value = found.groups()
        if value[:1] in ("'", '"') and (end := value.find(value[0], 1)) > 0:
            values[name] = value[1:end]
        else:
            values[name] = _UNQUOTED_END.sub("", value)
    return values
