"""The page in Chinese: each of its sentences has one translation, in one file of its subject."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gpu_tenant.domain.timeline import KINDS
from gpu_tenant.faces import dashboard

PAGE = Path(dashboard.__file__).parent / "page"
TRANSLATIONS = sorted(PAGE.glob("chinese/*.js"))
SCRIPTS = sorted({*PAGE.glob("*.js"), *PAGE.glob("parts/*.js")})

STRING = r'"(?:[^"\\]|\\.)*"'
SAID = re.compile(rf"\bt\(\s*({STRING})")
ENTRY = re.compile(rf"^  ({STRING}|\w+):\s*({STRING}),\n", re.MULTILINE)
REMARK = re.compile(r"^ *//.*\n|^\n", re.MULTILINE)
HOLE = re.compile(r"\{\w+\}")


def unquoted(literal: str) -> str:
    return literal.strip('"').replace('\\"', '"')


def entries(files: Sequence[Path] = TRANSLATIONS) -> list[tuple[str, str]]:
    """Each sentence with its Chinese, as they stand in the files."""
    scripts = [path.read_text("utf-8") for path in files]
    return [
        (unquoted(key), unquoted(said)) for text in scripts for key, said in ENTRY.findall(text)
    ]


def said() -> set[str]:
    """Every sentence that the page says by its very words."""
    return {unquoted(key) for path in SCRIPTS for key in SAID.findall(path.read_text("utf-8"))}


def test_the_files_hold_nothing_but_sentences() -> None:
    assert TRANSLATIONS
    for path in TRANSLATIONS:
        rest = REMARK.sub("", ENTRY.sub("", path.read_text("utf-8")))
        assert rest == "export default {\n};\n", path.name


def test_every_sentence_of_the_page_has_its_chinese() -> None:
    assert len(said()) > 300
    assert said() - dict(entries()).keys() == set()


def test_no_sentence_is_translated_twice() -> None:
    """The files are merged: of two translations one would be lost, and which is nowhere written."""
    counted = Counter(key for key, _ in entries())

    assert {key for key, times in counted.items() if times > 1} == set()


def test_each_translation_fills_in_the_same_words() -> None:
    for english, chinese in entries():
        assert Counter(HOLE.findall(english)) == Counter(HOLE.findall(chinese)), english


def test_no_translation_is_of_a_sentence_that_nobody_says() -> None:
    """Kinds of event are said as the ledger has them."""
    scripts = "".join(path.read_text("utf-8") for path in SCRIPTS)
    unsaid = {key for key, _ in entries() if json.dumps(key, ensure_ascii=False) not in scripts}

    assert unsaid - KINDS.keys() == set()
