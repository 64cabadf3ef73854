"""Count the characters in windows of this project's own text: Python, Markdown and JSON.

    python3 count_letters.py CHECKOUT > letters.csv

One window of 64 characters a line: how often each of 64 signs, or groups of signs, occurs in it (16
stands for more as well), then the kind of file it was cut from. The last fifth of every file is for
testing, all before it for training, and no window reaches across that border. Within one set two
neighbours may share half their text. 1,440 windows to train on come first, then 360 to test with,
each kind a third of both.
"""

import argparse
import random
import string
import sys
from pathlib import Path

KINDS = ("py", "md", "json")
FOLDERS = ("mcp_server", "scripts", "tests", "profiles", "references", "evals")
LENGTH = 64
MOST = 16
TRAIN_WINDOWS, TEST_WINDOWS = 480, 120  # of each kind

SIGNS = string.ascii_lowercase + string.punctuation + " \n"


def texts(checkout: Path, kind: str) -> list[str]:
    """Every file of that kind: first those at the top of the checkout, then those in its folders."""
    found = sorted(checkout.glob(f"*.{kind}"))
    for folder in FOLDERS:
        found += sorted((checkout / folder).rglob(f"*.{kind}"))
    return [path.read_text(encoding="utf-8") for path in found]


def apart(text: str) -> tuple[str, str]:
    """Split the text into what is for training and what is for testing."""
    border = len(text) * 4 // 5
    return text[:border], text[border:]


def windows(text: str) -> list[str]:
    """A window from every half window's place in the text."""
    starts = range(0, len(text) - LENGTH + 1, LENGTH // 2)
    return [text[start : start + LENGTH] for start in starts]


def counts(window: str) -> list[int]:
    """Return the 64 numbers for a window: first its signs, then four things that signs do not show."""
    folded = window.lower()
    seen = [folded.count(sign) for sign in SIGNS]
    seen.append(sum(sign in string.ascii_uppercase for sign in window))
    seen.append(sum(sign in string.digits for sign in window))
    seen.append(sum(not sign.isascii() for sign in window))
    seen.append(window.count("  "))
    return [min(MOST, number) for number in seen]


def draw_lines(cut: dict[str, list[str]], number: int, draw: random.Random) -> list[list[int]]:
    """The lines of one set: so many windows of every kind, in a random order.

    Raises:
        ValueError: there are not so many windows of a kind.
    """
    lines = [
        [*counts(window), KINDS.index(kind)]
        for kind, of_kind in cut.items()
        for window in draw.sample(of_kind, number)
    ]
    draw.shuffle(lines)
    return lines


def main() -> None:
    """Both sets are on stdout, the same every time for the same checkout."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("checkout", type=Path)
    checkout = parser.parse_args().checkout

    to_train: dict[str, list[str]] = {kind: [] for kind in KINDS}
    to_test: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for kind in KINDS:
        for text in texts(checkout, kind):
            before, after = apart(text)
            to_train[kind] += windows(before)
            to_test[kind] += windows(after)

    draw = random.Random(64)  # noqa: S311 (a sample, not a key)
    try:
        lines = draw_lines(to_train, TRAIN_WINDOWS, draw) + draw_lines(to_test, TEST_WINDOWS, draw)
    except ValueError:
        sys.exit(f"error: {checkout} has too little text of one kind: {', '.join(KINDS)}")
    for line in lines:
        print(*line, sep=",")


if __name__ == "__main__":
    main()
