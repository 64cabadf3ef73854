"""Reads a requirements file as pip does, and finds what only the computer has that wrote it."""

import codecs
import re

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_OF_A_COMPUTER = re.compile(
    r"^(?:[\w.\[\]-]+\s*@\s*|(?:-e|--editable)[\s=]+)?(?:file://)?(?P<path>/[^\s;#]+)", re.MULTILINE
)


def paths_of_a_computer(content: bytes) -> list[str]:
    """Return the absolute paths that the requirements name, as `pip freeze` writes them in a conda environment."""
    encoding = next((name for mark, name in _MARKS if content.startswith(mark)), "utf-8")
    text = content.decode(encoding, "replace").lstrip("\ufeff")
    return [found["path"] for found in _OF_A_COMPUTER.finditer(text)]
