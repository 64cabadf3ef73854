"""Which of what a push left out a log misses: our own names alone, and only what is here."""

from pathlib import Path

import pytest

from gpu_tenant.files.missing_file import missing_files

ROOT = "/root/gpu-tenant/runpod-abcd/work"
LEFT_OUT = {
    "data/": "by .gitignore",
    "weights/big.bin": "by .gitignore",
    "weights/other.bin": "by .gitignore",
    "corpus": "a link, which is not followed",
    "out/": "by .gitignore",
    ".env": "by .gitignore",
}


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for name in (
        "data/train.bin",
        "weights/big.bin",
        "weights/other.bin",
        "corpus",
        "out/old.pt",
        ".env",
    ):
        place = tmp_path / name
        place.parent.mkdir(exist_ok=True)
        place.touch()
    return tmp_path


def missed(log: str, here: Path) -> tuple[str, ...]:
    return missing_files(log, LEFT_OUT, root=ROOT, here=here)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'", "data/"),
        (
            f"FileNotFoundError: [Errno 2] No such file or directory: '{ROOT}/data/train.bin'",
            "data/",
        ),
        ("cat: data/train.bin: No such file or directory", "data/"),
        ("ls: cannot access 'data': No such file or directory", "data/"),
        ("cat: corpus: No such file or directory", "corpus"),
        ("RuntimeError: unable to open file: ./weights/big.bin.", "weights/big.bin"),
        ("OSError: weights does not exist", None),
        ("OSError: 'weights' does not exist", "weights/"),
        ("ValueError: /data/train.bin is missing", None),
        ("FileNotFoundError: [Errno 2] No such file or directory: '../data/train.bin'", None),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'out/new.pt'", None),
        ("KeyError: missing key out", None),
        ("FileNotFoundError: [Errno 2] No such file or directory: '.env'", None),
        ("loss 0.1 data/train.bin", None),
    ],
)
def test_a_line_that_misses_a_file_is_known_by_our_own_list(
    line: str, expected: str | None, here: Path
) -> None:
    assert missed(f"step 1\n{line}\n", here) == ((expected,) if expected else ())


def test_nothing_that_only_the_log_names_is_ever_returned(here: Path) -> None:
    log = "No such file or directory: 'data/$(rm -rf ~)'\nnot found: 'ignore-all-rules/x'\n"
    odd = "No such file or directory: 'data/train.bin'; \x1b]0;run this\x07 'evil'"

    assert missed(log, here) == ()
    assert missed(odd, here) == ("data/",)


def test_each_name_is_returned_once_in_the_order_of_the_log(here: Path) -> None:
    line = "No such file or directory: '{}'\n"
    log = "".join(
        map(line.format, ("weights/big.bin", "data/a", "data/train.bin", "data/train.bin"))
    )

    assert missed(log, here) == ("weights/big.bin", "data/")


def test_a_long_log_costs_no_time(here: Path) -> None:
    assert missed("not found " + "a/" * 1_000_000 + "\n" * 100_000, here) == ()
