"""A gotcha is proposed with all that a reviewer asks for: an entry, a question that it answers, and an origin."""

import re
import shutil
from pathlib import Path

import pytest
from evals.book import mappings
from evals.pages import folded

from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.faces.cli.registry import command

ROOT = Path(__file__).resolve().parents[2]
FILES = ("references/gotchas.md", "evals/answers/trouble.yaml", "evals/sources/gotchas.yaml")
GOTCHA = {
    "--part": "GPU health",
    "--symptom": "`ECC page retirement pending` after a warm boot",
    "--cause": "the row remap waits for a reset",
    "--fix": "collect, then another card",
    "--reproduced": "driver 570.1, an A100: `nvidia-smi -q -d PAGE_RETIREMENT`",
    "--holds": "cards with ECC memory",
    "--question": "nvidia-smi says that a page retirement is pending",
    "--says": "row remap",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def propose(*more: str, slug: str = "page-retirement", **instead: str) -> None:
    """Call the command; `part="x"` replaces `--part`."""
    said = GOTCHA | {f"--{name}": value for name, value in instead.items()}
    options = [word for option in said.items() for word in option]
    command("gotcha").main(["new", slug, *options, *more], standalone_mode=False)


def test_a_proposed_gotcha_stands_in_its_part_with_its_question_and_its_origin(
    checkout: Path,
) -> None:
    propose("--in", str(checkout))

    page = (checkout / FILES[0]).read_text("utf-8")
    part = page.partition("\n## GPU health\n")[2].partition("\n## ")[0]
    entry = part.partition("### page-retirement\n")[2].partition("\n###")[0]
    asked = mappings(checkout / FILES[1])[-1]
    origin = mappings(checkout / FILES[2])[-1]
    facts = asked["facts"]

    assert "pending` after a warm boot → the row remap" in " ".join(entry.split())
    assert page.replace(f"### page-retirement\n{entry}\n", "").split() == (
        (ROOT / FILES[0]).read_text("utf-8").split()
    )
    assert asked["id"] == origin["id"] == "page-retirement"
    assert isinstance(facts, list)
    assert isinstance(facts[0], dict)
    assert all(re.search(str(says), folded(entry)) for says in facts[0]["says"])
    assert origin["reproduced"] == GOTCHA["--reproduced"]
    assert origin["holds"] == "cards with ECC memory"


@pytest.mark.parametrize(
    ("instead", "words"),
    [
        ({"slug": "Page Retirement"}, "no name for a gotcha"),
        ({"slug": "dead-gpu"}, "already"),
        ({"part": "Weather"}, "no part"),
        ({"says": "thermal paste"}, "does not say thermal paste"),
        ({"fix": "collect " * 90}, "700 bytes"),
        ({"cause": "the row remap, hf_" + "aQ9zR7tW" * 4 + "xY"}, "looks like a secret"),
        (
            {"symptom": "Permission denied after docker run --gpus all, could not select device"},
            "said already, by docker-gpu",
        ),
    ],
)
def test_what_no_reviewer_would_take_is_refused_and_nothing_is_written(
    checkout: Path, instead: dict[str, str], words: str
) -> None:
    before = [(checkout / name).read_bytes() for name in FILES]

    with pytest.raises(BadRequest, match=re.escape(words)):
        propose("--in", str(checkout), **instead)

    assert [(checkout / name).read_bytes() for name in FILES] == before


def test_another_gotcha_that_looks_alike_is_taken_once_somebody_has_read_the_first(
    checkout: Path,
) -> None:
    symptom = "Permission denied after docker run --gpus all, could not select device"

    propose("--in", str(checkout), "--unlike", "docker-gpu", symptom=symptom)

    assert "### page-retirement" in (checkout / FILES[0]).read_text("utf-8")


def test_a_directory_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="no checkout"):
        propose("--in", str(tmp_path))


def test_without_a_checkout_one_file_has_all_of_it_and_is_never_overwritten(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path_factory.mktemp("installed")
    (installed / "references").mkdir()
    shutil.copy(checkout / FILES[0], installed / FILES[0])
    monkeypatch.setattr("gpu_tenant.faces.cli.gotcha.skill_directory", lambda: installed)
    here = tmp_path_factory.mktemp("here")
    monkeypatch.chdir(here)

    propose()
    written = (here / "gotcha-page-retirement.md").read_text("utf-8")
    with pytest.raises(BadRequest, match="already"):
        propose()

    assert all(name in written for name in FILES)
    assert "cards with ECC memory" in written


def test_every_recorded_origin_has_its_entry_and_its_question() -> None:
    slugs = set(re.findall(r"(?m)^### (\S+)$", (ROOT / FILES[0]).read_text("utf-8")))
    asked = {entry["id"] for entry in mappings(ROOT / FILES[1])}

    for origin in mappings(ROOT / FILES[2]):
        assert set(origin) == {"id", "reproduced", "holds", "on"}
        assert origin["id"] in slugs & asked
