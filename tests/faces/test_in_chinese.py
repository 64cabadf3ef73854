"""Every sentence that the server can say to a reader of the page, the card or the live view has its Chinese."""

import json
import re
import subprocess
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import get_args

import pytest
from arranged import NOON, lease
from parts import required
from server_words import modules, sentences

from gpu_tenant.domain.platform_comparison import comparison
from gpu_tenant.domain.policy import LookedAfter, rules_of
from gpu_tenant.domain.protection import protection
from gpu_tenant.faces import chinese
from gpu_tenant.faces.chinese import in_chinese
from gpu_tenant.faces.chinese.facts import chinese_fact
from gpu_tenant.providers.profiles import load_profiles

HERE = Path(__file__).parent
HOLE = re.compile(r"\{#?\d+\}")
ENGLISH = re.compile(r"\b(?!gpu-tenant\b)[a-z]{2,} [a-z]{2,}")
HAN = re.compile("[\u4e00-\u9fff]")
AS_IT_IS = json.loads((HERE / "as_it_is.json").read_text("utf-8"))
"""What is the same in both languages: names with a figure beside them, and lines to type."""


def filled(sentence: str, how: str) -> str:
    return re.sub(r"\{(\d+)\}", lambda hole: how.format(7000 + int(hole[1])), sentence)


def shown(text: str) -> str:
    """The text in Chinese, without its commands, its quotations and its options."""
    return re.sub(r"`[^`]*`|\"[^\"]*\"|--\S+ \w+", "", in_chinese(text))


TERMS: tuple[dict[str, object], ...] = (
    *({}, {"when_done": "park"}, {"when_done": "keep"}, {"on_deadline": "waive"}),
    *({"store": "/s"}, {"budget_usd": Decimal(5)}, {"idle_h": 2.0}, {"recover": ("same",)}),
)


def is_chinese(sentence: str) -> bool:
    """Whether it is Chinese with figures in its holes, or with commands, and no English is left between them."""
    for how in ("{}", "`c {}`"):
        bare = shown(filled(sentence, how))
        if HAN.search(bare) and not ENGLISH.search(bare):
            return True
    return False


def test_every_sentence_of_the_server_has_its_chinese() -> None:
    said = sentences()
    assert len(modules()) > 300
    assert len(said) > 2000

    missing = {text: where for text, where in said.items() if not is_chinese(text)}

    assert missing.keys() - set(AS_IT_IS) == set()


def test_nothing_is_excused_that_nobody_says_or_that_is_translated() -> None:
    assert [text for text in AS_IT_IS if text not in sentences() or is_chinese(text)] == []


def test_each_translation_fills_in_the_same_words() -> None:
    for english, said in chinese.sentences().items():
        assert Counter(HOLE.findall(english)) == Counter(HOLE.findall(said)), english


def test_no_sentence_is_translated_in_two_files() -> None:
    counted = Counter(
        english
        for path in (Path(chinese.__file__).parent / "sentences").glob("*.json")
        for english in json.loads(path.read_text("utf-8"))
    )

    assert [english for english, times in counted.items() if times > 1] == []


def test_what_fills_a_hole_is_translated_and_commands_and_words_of_a_box_are_not() -> None:
    said = in_chinese(
        'its budget is over; its job ended: "the deadline is near"; `gpu-tenant collect gt-1`, then `gpu-tenant teardown gt-1`: its work has ended\nthe box boots'
    )

    assert '"the deadline is near"' in said
    assert "`gpu-tenant collect gt-1`" in said
    assert said.endswith("\nthe box boots")
    assert "任务已经结束" in said


def test_money_and_time_stay_what_they_are() -> None:
    assert (
        in_chinese(
            "it costs 2.10 USD/h, but its owner's cap is 1 USD/h; its box goes on billing, at 2.10 USD/h"
        )
        == "价格为 2.10 USD/h，而机主的上限是 1 USD/h；机器继续计费，每小时 2.10 USD"
    )


@pytest.mark.parametrize(
    ("english", "chinese_words"),
    [
        ("its box bills at 2.10 USD/h", "机器按每小时 2.10 USD 计费"),
        ("park keeps every disk at 0.02 USD/h", "关机保留所有磁盘，每小时 0.02 USD"),
        (
            "alarms do not reach you over the channel phone: it answered 500",
            "渠道 phone 无法把警报送达你",
        ),
    ],
)
def test_a_sentence_from_parts_reads_as_one_in_chinese(english: str, chinese_words: str) -> None:
    assert in_chinese(english).startswith(chinese_words)


def test_the_terms_and_what_ends_the_bill_are_chinese_at_every_platform() -> None:
    """They are put together from parts, so each part may have its Chinese, and the whole none."""
    said = set[str]()
    for slug, profile in load_profiles(HERE.parents[1] / "profiles").items():
        for changed in ({}, {"parked_at": NOON}, {"price_usd_h": Decimal("1.2")}):
            for terms in TERMS:
                taken = lease(provider=slug)
                taken = taken.model_copy(
                    update={**changed, "terms": taken.terms.model_copy(update=terms)}
                )
                said.add(protection(profile, taken, None).words)
                for looked in get_args(LookedAfter):
                    said.update(rules_of(taken, profile, looked_after=looked))

    assert len(said) > 80
    assert [text for text in sorted(said) if ENGLISH.search(shown(text))] == []


NO_PROSE = re.compile(
    r"console\.bootstrap|names|.*\.(?:src|id|path|command|env|file)|image\.python|.*speed_up"
)
"""Places of a profile whose value is a name, a path, a variable or something to paste."""
PROSE = re.compile(r"(?:(?<![\w/.`-])[a-z]{2,}(?![\w/.`_-]).*){3}", re.DOTALL)


def test_what_the_facts_of_a_platform_say_is_chinese() -> None:
    """A value that is three words or more is a sentence, and not a word with a table of its own."""
    lacking: dict[str, str] = {}
    count = 0
    for slug, profile in load_profiles(HERE.parents[1] / "profiles").items():
        said = [("trap", profile.trap), ("stops", profile.stops)]
        said += [("stops_the_meter", profile.stops_the_meter)]
        said += [(fact.place, str(fact.value)) for fact in profile.facts]
        for place, value in said:
            if NO_PROSE.fullmatch(place) or not PROSE.search(value) or value in AS_IT_IS:
                continue
            count += 1
            if value not in chinese.sentences() or not HAN.search(in_chinese(value)):
                lacking[f"{slug}: {place}"] = value

    assert count > 150
    assert lacking == {}


def test_the_comparison_of_all_platforms_is_chinese() -> None:
    profiles = list(load_profiles(HERE.parents[1] / "profiles").values())
    cells = [
        cell.strip()
        for line in comparison(profiles, chinese_fact).splitlines()
        for cell in line.strip("| ").split("|")[1:]
    ]

    assert len(cells) > 200
    assert [cell for cell in cells if ENGLISH.search(cell) or cell in ("yes", "no")] == []


def test_the_page_translates_as_the_terminal_does() -> None:
    required("node")
    texts = [filled(text, how) for text in list(sentences())[::3] for how in ("{}", "`c {}`")]
    texts += [
        f"{one}; {other} ({one})" for one, other in zip(texts[::9], texts[4::9], strict=False)
    ]
    script = (
        f"{chinese.TRANSLATOR.read_text('utf-8')}"
        f"const told = JSON.parse(require('fs').readFileSync(0));"
        "const say = makeTranslator(told.sentences);"
        "console.log(JSON.stringify(told.texts.map(say)));"
    ).replace("export function", "function")
    ran = subprocess.run(
        ["node", "-e", script],
        input=json.dumps({"sentences": dict(chinese.sentences()), "texts": texts}),
        capture_output=True,
        encoding="utf-8",
        check=True,
    )

    assert json.loads(ran.stdout) == [in_chinese(text) for text in texts]


@pytest.mark.parametrize(
    ("locale", "is_wanted"), [("zh_CN.UTF-8", True), ("en_GB.UTF-8", False), ("C", False)]
)
def test_a_terminal_is_in_chinese_by_its_locale(
    monkeypatch: pytest.MonkeyPatch, locale: str, is_wanted: bool
) -> None:
    monkeypatch.setenv("LANG", "zh_TW.UTF-8")
    monkeypatch.setenv("LC_ALL", locale)

    assert chinese.is_wanted() is is_wanted
