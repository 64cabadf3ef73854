"""Count the characters of letters.csv in windows of text, cut from a checkout of this project.

    python3 count_letters.py CHECKOUT > letters.csv

One window a line: how often each of 64 characters, or groups of them, occurs in it (16 stands for
more as well), then the kind of file it was cut from. The last fifth of every file is held out:
windows for testing come from there alone, and none reaches across the border. Within one set,
neighbours may share half their text. 1,440 windows for training come first, then 360 for testing,
a third of each for every kind.
"""

import random
import string
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

KINDS = (".py", ".md", ".json")
FOLDERS = ("mcp_server", "scripts", "tests", "profiles", "references", "evals")
WINDOW = 64
TRAIN_WINDOWS, TEST_WINDOWS = 480, 120  # of each kind
MOST = 16


def texts(checkout: Path, kind: str) -> list[str]:
    """The files of one kind: those at the top of the checkout, then those in its folders."""
    found = sorted(checkout.glob(f"*{kind}"))
    for folder in FOLDERS:
        found += sorted((checkout / folder).rglob(f"*{kind}"))
    return [path.read_text(encoding="utf-8") for path in found]


def windows(text: str) -> list[str]:
    """All of the text, cut at every half window; what is left at the end is dropped."""
    starts = range(0, len(text) - WINDOW + 1, WINDOW // 2)
    return [text[start : start + WINDOW] for start in starts]


def counts(window: str) -> list[int]:
    """The letters, the signs, then what is told of a window besides them."""
    seen = Counter(window.lower())
    each = [seen[sign] for sign in string.ascii_lowercase + string.punctuation + " \n"]
    capitals = sum(sign in string.ascii_uppercase for sign in window)
    digits = sum(sign in string.digits for sign in window)
    foreign = sum(not sign.isascii() for sign in window)
    return [min(MOST, n) for n in (*each, capitals, digits, foreign, window.count("  "))]


def chosen(
    checkout: Path, part: Callable[[str], str], number: int, draw: random.Random
) -> Iterator[list[int]]:
    """Of each kind as many windows, from the same part of every file, in a random order."""
    lines = []
    for kind, suffix in enumerate(KINDS):
        cut = [window for text in texts(checkout, suffix) for window in windows(part(text))]
        if len(cut) < number:
            sys.exit(
                f"error: {len(cut)} windows of {suffix} in {checkout}, and {number} are needed"
            )
        lines += [[*counts(window), kind] for window in draw.sample(cut, number)]
    draw.shuffle(lines)
    return iter(lines)


def main() -> None:
    """Both sets are on stdout, the same every time for the same checkout."""
    checkout = Path(sys.argv[1])
    draw = random.Random(1440)  # noqa: S311 (a sample, not a key)
    for part, number in (
        (lambda text: text[: len(text) * 4 // 5], TRAIN_WINDOWS),
        (lambda text: text[len(text) * 4 // 5 :], TEST_WINDOWS),
    ):
        for line in chosen(checkout, part, number, draw):
            print(*line, sep=",")


if __name__ == "__main__":
    main()
