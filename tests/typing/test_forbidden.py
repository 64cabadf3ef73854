"""The type checker is one of the law's locks: what must not compile does not."""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
FORBIDDEN = Path(__file__).with_name("forbidden.py")

_MARK = re.compile(r"# E: (?P<fragment>.+)$")
_ERROR = re.compile(r"^(?P<file>[^:]+):(?P<line>\d+): error: (?P<words>.+)$")


def marked() -> dict[int, str]:
    """What the checker must say, by line."""
    lines = FORBIDDEN.read_text(encoding="utf-8").splitlines()
    found = ((number, _MARK.search(line)) for number, line in enumerate(lines, start=1))
    return {number: mark["fragment"] for number, mark in found if mark}


def said() -> dict[int, str]:
    """What the checker says, by line."""
    checked = subprocess.run(
        [
            *(sys.executable, "-m", "mypy"),
            *("--config-file", "pyproject.toml", "--cache-dir", ".mypy_cache/forbidden"),
            *("--no-pretty", "--show-error-codes", "--no-error-summary", str(FORBIDDEN)),
        ],
        cwd=ROOT,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert checked.returncode == 1, checked.stdout + checked.stderr
    words: defaultdict[int, str] = defaultdict(str)
    for line in checked.stdout.splitlines():
        error = _ERROR.match(line)
        if error:
            assert (ROOT / error["file"]).resolve() == FORBIDDEN, line
            words[int(error["line"])] += error["words"]
    return dict(words)


def test_every_forbidden_use_is_an_error_and_nothing_else_is() -> None:
    expected, found = marked(), said()

    compiles = sorted(line for line in expected if expected[line] not in found.get(line, ""))
    unexpected = {line: words for line, words in found.items() if line not in expected}

    assert len(expected) > 60
    assert not unexpected
    assert not compiles, f"holes in the law, forbidden.py lines {compiles}: {found}"
