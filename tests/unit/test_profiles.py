"""A profile means what it says, and one that is wrong is refused in a sentence that names the file."""

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from gpu_tenant.domain.errors import LocalTrouble
from gpu_tenant.faces.chinese.runbooks import chinese_runbook
from gpu_tenant.providers.profile_facts import read
from gpu_tenant.providers.profiles import load_profile, load_profiles

SHIPPED = Path(__file__).parents[2] / "profiles"
FACTS = (SHIPPED / "local.md").read_text(encoding="utf-8")
TRANSLATED = sorted(path.stem for path in (SHIPPED / "zh").glob("*.md"))
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)

every_translation = pytest.mark.parametrize("slug", TRANSLATED)


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    """A directory of profiles with the shipped schema and nothing else."""
    shutil.copy(SHIPPED / "_schema.json", tmp_path)
    return tmp_path


def write(directory: Path, text: str, *, slug: str = "local") -> Path:
    path = directory / f"{slug}.md"
    path.write_text(text, encoding="utf-8")
    return path


def front(directory: Path, facts: str) -> object:
    return read(write(directory, f"---\n{facts}\n---\n"))[0]


def read_by_a_new_process(directory: Path, noted: Path) -> str:
    """Whether all profiles there are valid, and whether they were checked for that; or the error."""
    code = f"""
import sys
from pathlib import Path
from gpu_tenant.domain.errors import LocalTrouble
from gpu_tenant.providers.profiles import load_profile, load_profiles
directory, noted = Path({str(directory)!r}), Path({str(noted)!r})
try:
    loaded = load_profiles(directory, noted)
except LocalTrouble as trouble:
    sys.exit(trouble.message)
was_checked = "jsonschema" in sys.modules
assert loaded == {{path.stem: load_profile(path) for path in directory.glob("*.md")}}
print("valid, checked" if was_checked else "valid")
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8")
    return (ran.stdout or ran.stderr).strip()


# What is shipped


def test_every_shipped_profile_is_valid_and_named_after_its_file() -> None:
    loaded = load_profiles(SHIPPED)

    assert {"local", "own"} <= set(loaded)
    assert all(profile.id == slug for slug, profile in loaded.items())
    assert all(profile.runbook.startswith("# ") for profile in loaded.values())
    assert all(profile.stops_the_meter for profile in loaded.values())


def test_what_a_box_may_lose_when_it_ends_is_accounted_for() -> None:
    """A machine of the owner's is handed back, and if it was rented, its console then destroys it."""
    loaded = load_profiles(SHIPPED)

    assert loaded["local"].accounted_paths == ("~",)
    assert loaded["own"].accounted_paths == ("~",)
    assert (loaded["local"].destroy, loaded["own"].destroy) == ("deletes", "hands_back")
    assert (loaded["local"].lease, loaded["own"].lease) == ("created", "adopted")


def test_the_schema_describes_itself_and_closes_every_object() -> None:
    schema = json.loads((SHIPPED / "_schema.json").read_text(encoding="utf-8"))

    def objects(node: object) -> list[dict[str, object]]:
        if isinstance(node, list):
            return [found for child in node for found in objects(child)]
        if not isinstance(node, dict):
            return []
        below = [found for child in node.values() for found in objects(child)]
        return [node, *below] if node.get("type") == "object" else below

    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    rest = [node.get("additionalProperties") for node in objects(schema)]
    # A map of the provider's own words is closed by what each may mean.
    assert all(more is False or (isinstance(more, dict) and "enum" in more) for more in rest)


# The Chinese runbooks


def both(slug: str) -> tuple[str, str]:
    """The platform's runbook in English and in Chinese."""
    return read(SHIPPED / f"{slug}.md")[1], chinese_runbook(slug) or ""


def depths(body: str) -> list[int]:
    return [len(marks) for marks in re.findall(r"(?m)^(#+) ", FENCED.sub("", body))]


def quoted(body: str) -> Counter[str]:
    """Every name and command inside of the prose."""
    return Counter(re.findall("`([^`]+)`", " ".join(FENCED.sub("", body).split())))


def test_the_runbooks_are_there_in_chinese_and_none_is_of_a_platform_that_is_gone() -> None:
    """A new platform may come without one. Those that have one keep it."""
    assert len(TRANSLATED) >= 17
    assert set(TRANSLATED) <= set(load_profiles(SHIPPED))


@every_translation
def test_a_chinese_runbook_translates_the_english_one_as_it_is_now(slug: str) -> None:
    facts, _ = read(SHIPPED / "zh" / f"{slug}.md")
    now = sha256(both(slug)[0].encode()).hexdigest()[:16]

    assert facts == {"of": now}, (
        f"the body of profiles/{slug}.md has changed: say the same in profiles/zh/{slug}.md, "
        f"then write `of: {now}` at its top"
    )


@every_translation
def test_a_chinese_runbook_has_the_headings_and_the_commands_of_the_english_one(slug: str) -> None:
    english, chinese = both(slug)

    assert depths(chinese) == depths(english)
    assert FENCED.findall(chinese) == FENCED.findall(english)
    assert quoted(chinese) == quoted(english)


@every_translation
def test_every_paragraph_of_a_chinese_runbook_is_in_chinese(slug: str) -> None:
    _, chinese = both(slug)

    parts = re.split(r"\n\n|\n(?=- )", re.sub(r"(?m)^#.*", "", FENCED.sub("", chinese)))
    assert [part for part in parts if part.strip() and not re.search("[\u4e00-\u9fff]", part)] == []


# YAML


@pytest.mark.parametrize(
    "text",
    [
        *("no", "yes", "off", "on", "No", "YES", "true", "false", "y", "n"),
        *("22:30", "1:30:00", "190:20:30.15", "12e03:1"),
        *("2026-11-20", "2026-11-20 12:00:00", "2026-11-20T12:00:00Z"),
        *("0o17", "017", "0x1f", "0b11", "1_000", "+", ".", "=", "<<"),
        *("1.2.3", ".inf", "-.inf", ".nan", "NaN"),
    ],
)
def test_text_that_yaml_takes_for_something_else_stays_text(tmp_path: Path, text: str) -> None:
    assert front(tmp_path, f"fact: {text}") == {"fact": text}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("60", 60),
        ("-3", -3),
        ("1.5", 1.5),
        ("2.5e+3", 2500.0),
        ("null", None),
        ("'no'", "no"),
        ("[no, 5]", ["no", 5]),
    ],
)
def test_numbers_stay_numbers(tmp_path: Path, text: str, value: object) -> None:
    assert front(tmp_path, f"fact: {text}") == {"fact": value}


@pytest.mark.parametrize(
    "text",
    ["!!python/object/apply:os.system [id]", "!!python/name:os.system", "!!timestamp 2026-13-99"],
)
def test_yaml_that_would_run_something_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(LocalTrouble, match=r"local\.md: "):
        front(tmp_path, f"fact: {text}")


def test_a_fact_that_is_stated_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LocalTrouble, match=r"local\.md: .*fact.* twice"):
        front(tmp_path, "fact: yes\nother: 1\nfact: no")


# What is refused, and how it is said


def without(line: str) -> Callable[[str], str]:
    return lambda text: text.replace(line, "")


def instead(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new)


WRONG: dict[str, tuple[Callable[[str], str], str]] = {
    "no front matter": (lambda text: "# This computer\n", "no front matter"),
    "front matter without an end": (lambda text: "---\nid: local\n", "no front matter"),
    "text before it": (lambda text: "hello\n" + text, "no front matter"),
    "empty": (lambda text: "", "no front matter"),
    "no mapping": (lambda text: "---\n- a\n- b\n---\n", "not a mapping"),
    "no yaml": (lambda text: "---\nid: [local\n---\n", "expected"),
    "another schema": (instead("profile/1", "profile/2"), "schema: "),
    "no schema": (without("schema: gpu-tenant/profile/1\n"), "'schema' is a required property"),
    "no survival": (
        instead("destroy: no, ", ""),
        "paths/0/survives: 'destroy' is a required property",
    ),
    "a survival nobody knows": (
        instead("destroy: no", "destroy: maybe"),
        "paths/0/survives/destroy: 'maybe'",
    ),
    "a boolean in quotes of the eye": (instead("destroy: no", "destroy: false"), "'false'"),
    "an unquoted home": (instead('"~"', "~"), "paths/0/path: None is not of type 'string'"),
    "a relative path": (instead('"~"', "work"), "paths/0/path: 'work' does not match"),
    "no paths": (instead('  - {path: "~"', '  # - {path: "~"'), "paths: None"),
    "a field nobody declared": (
        lambda text: text.replace("title:", "tittle: x\ntitle:"),
        "'tittle' was unexpected",
    ),
    "a lag in words": (
        instead("list_lag_s: 0", "list_lag_s: soon"),
        "gone/list_lag_s: 'soon' is not of type",
    ),
    "a lag below nothing": (instead("list_lag_s: 0", "list_lag_s: -1"), "gone/list_lag_s: -1"),
    "an endless lag": (instead("list_lag_s: 0", "list_lag_s: .inf"), "gone/list_lag_s: '.inf'"),
    "a lag that is no number": (
        instead("list_lag_s: 0", "list_lag_s: .nan"),
        "gone/list_lag_s: '.nan'",
    ),
    "a date that is none": (
        instead("2026-11-20", "20.11.2026"),
        "checked/on: '20.11.2026' does not match",
    ),
    "a price out of nowhere": (
        instead("price_source: owner", "price_source: guess"),
        "price_source: 'guess'",
    ),
    "another file's id": (instead("id: local", "id: remote"), "id is 'remote'"),
    "an id that is no slug": (instead("id: local", "id: Lo cal"), "id: 'Lo cal' does not match"),
}


@pytest.mark.parametrize(("spoil", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_profile_is_refused_in_a_sentence_that_names_it(
    profiles: Path, spoil: Callable[[str], str], words: str
) -> None:
    spoilt = spoil(FACTS)
    assert spoilt != FACTS
    path = write(profiles, spoilt)

    with pytest.raises(LocalTrouble) as told:
        load_profile(path)

    assert told.value.message.startswith("local.md: ")
    assert words in told.value.message
    assert "\n" not in told.value.message
    assert "correct that profile" in told.value.remedy


def test_a_profile_that_is_not_utf_8_is_refused_by_name(profiles: Path) -> None:
    path = profiles / "local.md"
    path.write_bytes(b"\xff\xfe" + FACTS.encode("utf-16-le"))

    with pytest.raises(LocalTrouble, match=r"local\.md: "):
        load_profile(path)


def test_one_wrong_profile_among_many_is_named(profiles: Path) -> None:
    write(profiles, FACTS)
    write(profiles, FACTS, slug="other")

    with pytest.raises(LocalTrouble, match=r"^LOCAL_TROUBLE: other\.md: id is 'local'"):
        load_profiles(profiles)


# What was found valid before


def test_what_was_valid_is_not_checked_again_and_what_changed_is(profiles: Path) -> None:
    noted = profiles / "noted.json"
    path = write(profiles, FACTS)
    assert read_by_a_new_process(profiles, noted) == "valid, checked"
    assert read_by_a_new_process(profiles, noted) == "valid"
    path.write_text(FACTS.replace("destroy: no", "destroy: perhaps"), encoding="utf-8")

    assert "local.md: " in read_by_a_new_process(profiles, noted)


def test_another_schema_has_everything_checked_again(profiles: Path) -> None:
    noted, schema = profiles / "noted.json", profiles / "_schema.json"
    write(profiles, FACTS)
    assert read_by_a_new_process(profiles, noted) == "valid, checked"
    schema.write_text(schema.read_text(encoding="utf-8") + "\n", encoding="utf-8")

    assert read_by_a_new_process(profiles, noted) == "valid, checked"


@pytest.mark.parametrize("spoilt", [b"", b"\0" * 99, b"[1]", b"{}"])
def test_a_spoilt_note_of_what_was_valid_is_not_believed(profiles: Path, spoilt: bytes) -> None:
    noted = profiles / "noted.json"
    write(profiles, FACTS)
    noted.write_bytes(spoilt)

    assert read_by_a_new_process(profiles, noted) == "valid, checked"
    assert read_by_a_new_process(profiles, noted) == "valid"


def test_where_nothing_can_be_noted_profiles_are_checked_each_time(profiles: Path) -> None:
    path = write(profiles, FACTS)

    for _ in range(2):
        assert read_by_a_new_process(profiles, path / "noted.json") == "valid, checked"


# What a leaf may be


def test_a_fact_may_carry_its_source_and_its_confidence(profiles: Path) -> None:
    sourced = "{v: yes, src: the manual, on: 2026-11-20, conf: docs1}"
    path = write(profiles, FACTS.replace("destroy: no", f"destroy: {sourced}"))

    assert load_profile(path).accounted_paths == ()


def test_a_sourced_fact_without_a_date_was_checked_when_the_page_was(profiles: Path) -> None:
    facts = FACTS.replace("destroy: no", "destroy: {v: no, src: m, conf: docs1}")
    facts = facts.replace(
        "host_loss: no", "host_loss: {v: no, src: m, on: 2026-11-23, conf: docs1}"
    )

    profile = load_profile(write(profiles, facts))

    on = {fact.place: fact.checked_on for fact in profile.facts}
    assert on["paths[~].survives.destroy"] == profile.checked_on
    assert str(on["paths[~].survives.host_loss"]) == "2026-11-23"


def test_survival_that_nobody_knows_counts_as_loss(profiles: Path) -> None:
    path = write(profiles, FACTS.replace("destroy: no", "destroy: unknown"))

    assert load_profile(path).accounted_paths == ("~",)


def test_windows_line_ends_change_nothing(profiles: Path) -> None:
    path = profiles / "local.md"
    path.write_bytes(FACTS.replace("\n", "\r\n").encode())

    assert load_profile(path) == load_profile(SHIPPED / "local.md")
