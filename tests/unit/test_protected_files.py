"""What was fetched from boxes may go to the next box; the keys around it may not, by whatever way."""

import os
from pathlib import Path

import pytest

from gpu_tenant.files.protected_files import Guarded


@pytest.fixture
def state(tmp_path: Path) -> Path:
    root = tmp_path / "state"
    (root / "kept" / "local-abcd" / "work").mkdir(parents=True)
    (root / "ssh").mkdir()
    (root / "ssh" / "key").write_text("key", encoding="utf-8")
    (root / "config.toml").write_text("", encoding="utf-8")
    return root


def guarded(state: Path) -> Guarded:
    return Guarded((state,), state.parent / "home", open_places=(state / "kept",))


def test_what_is_kept_is_no_key_and_all_around_it_is(state: Path) -> None:
    kept = state / "kept" / "local-abcd" / "work" / "model.json"
    kept.write_text("{}", encoding="utf-8")
    files = {"model.json": kept}

    assert not guarded(state).holds(kept)
    assert list(guarded(state).keys_among(kept.parent, files)) == []
    assert guarded(state).holds(state / "config.toml")
    assert guarded(state).holds(state / "ssh" / "key")
    assert guarded(state).holds(state / "keptness"), "another name that begins so"


def test_a_link_or_a_second_name_of_a_key_is_a_key_among_what_is_kept(state: Path) -> None:
    work = state / "kept" / "local-abcd" / "work"
    (work / "link").symlink_to(state / "ssh" / "key")
    os.link(state / "ssh" / "key", work / "twin")
    files = {"link": work / "link", "twin": work / "twin"}

    assert set(guarded(state).keys_among(work, files)) == {"link", "twin"}


def test_a_link_in_the_place_of_the_kept_directory_opens_nothing(state: Path) -> None:
    moved = state / "moved"
    (state / "kept").rename(moved)
    (state / "kept").symlink_to(state / "ssh")

    assert guarded(state).holds(state / "kept" / "key")
