"""Links to experiment trackers in a log: only of known forms, with nothing secret in them."""

import pytest

from gpu_tenant.domain.trackers import (
    BESIDE_RUNS,
    OFFLINE_RUNS,
    kept_by_default,
    link_words,
    tracker_links,
)


@pytest.mark.parametrize(
    ("line", "link"),
    [
        (
            "wandb: 🚀 View run at https://wandb.ai/ada/letters/runs/3k9x2a1b",
            "https://wandb.ai/ada/letters/runs/3k9x2a1b",
        ),
        (
            "wandb: View run at https://tracking.example.com/ada/letters/runs/3k9x2a1b",
            "https://tracking.example.com/ada/letters/runs/3k9x2a1b",
        ),
        (
            "🏃 View run calm-fox at: https://mlflow.example.org:8443/#/experiments/7/runs/0a1b2c",
            "https://mlflow.example.org:8443/#/experiments/7/runs/0a1b2c",
        ),
        (
            "at https://tensorboard.dev/experiment/EDZb7XgKSBKo6Gznh3i8hg/",
            "https://tensorboard.dev/experiment/EDZb7XgKSBKo6Gznh3i8hg",
        ),
        ("pushed: https://huggingface.co/ada/tiny-gpt.", "https://huggingface.co/ada/tiny-gpt"),
    ],
)
def test_the_page_of_a_run_is_found(line: str, link: str) -> None:
    assert tracker_links(f"before\n{line}\nafter {line}") == (link,)


@pytest.mark.parametrize(
    "line",
    [
        "http://wandb.ai/ada/letters/runs/3k9x2a1b",
        "https://ada:secret@wandb.ai/ada/letters/runs/3k9x2a1b",
        "https://wandb.ai/ada/letters/runs/3k9x2a1b?token=secret",
        "https://wandb.ai/ada/letters/runs/3k9x2a1b#secret",
        "https://wandb.ai/ada/letters/runs/x;rm",
        "https://huggingface.co/ada/tiny-gpt/resolve/main/model.bin",
        "https://huggingface.co/docs/transformers",
        "https://example.com/login",
        "https://wandb.ai.example/ada",
        "TensorBoard 2.18.0 at http://localhost:6006/",
    ],
)
def test_what_is_no_plain_page_of_a_tracker_is_not_shown(line: str) -> None:
    assert tracker_links(line) == ()


def test_few_links_are_told_however_many_the_log_prints() -> None:
    log = "\n".join(f"https://wandb.ai/ada/letters/runs/r{n}" for n in range(1000))

    assert len(tracker_links(log)) == 4


def test_links_of_strangers_do_not_crowd_out_the_tracker() -> None:
    strangers = "\n".join(f"https://host{n}.example/ada/letters/runs/r" for n in range(10))

    assert tracker_links(f"{strangers}\nhttps://wandb.ai/ada/letters/runs/r")[0].startswith(
        "https://wandb.ai/"
    )


@pytest.mark.parametrize(
    "link",
    [
        "https://wandb.ai/ada/letters/runs/3k9x2a1b",
        "https://ada.wandb.io/ada/letters/runs/3k9x2a1b",
        "https://tensorboard.dev/experiment/EDZb7XgKSBKo6Gznh3i8hg",
        "https://huggingface.co/ada/tiny-gpt",
        "https://dbc-1.cloud.databricks.com/ml/experiments/7/runs/0a1b2c",
    ],
)
def test_a_link_to_a_known_tracker_is_shown_as_it_is(link: str) -> None:
    assert tracker_links(link) == (link,)
    assert link_words(link) == link


@pytest.mark.parametrize(
    "link",
    [
        "https://evil.example/ada/letters/runs/3k9x2a1b",
        "https://wandb.ai.evil.example/ada/letters/runs/3k9x2a1b",
        "https://notwandb.ai/ada/letters/runs/3k9x2a1b",
        "https://evil.example/#/experiments/7/runs/0a1b2c",
        "https://cloud.databricks.com.evil.example/ml/experiments/7/runs/0a1b2c",
    ],
)
def test_a_link_to_any_other_host_is_marked_as_the_box_s_words(link: str) -> None:
    assert tracker_links(link) == (link,)
    assert link_words(link) == f'"{link}" (only the box says that this is a tracker)'


def test_a_long_line_without_an_end_takes_no_time_to_speak_of() -> None:
    assert tracker_links("https://a" + ".a" * 200_000) == ()


def test_runs_are_kept_unless_somebody_says_otherwise() -> None:
    assert kept_by_default(("out/",), ()) == (
        ("out/", *OFFLINE_RUNS),
        (*OFFLINE_RUNS, *BESIDE_RUNS),
    )
    assert kept_by_default(("out/",), ("wandb/",)) == (
        ("out/", OFFLINE_RUNS[1]),
        ("wandb/", OFFLINE_RUNS[1]),
    )


@pytest.mark.parametrize(
    "said", ["notes-on-wandb.txt", "wandbox/", "my_events_list.csv", "*", "out/**", "tfevents.md"]
)
def test_a_name_that_only_resembles_a_tracker_s_decides_nothing(said: str) -> None:
    assert kept_by_default((said,), ())[0] == (said, *OFFLINE_RUNS)


@pytest.mark.parametrize("said", ["wandb", "out/wandb/**", "wandb/offline-run-*/", "w*b/"])
def test_whoever_names_the_place_of_wandb_decides_about_it(said: str) -> None:
    assert kept_by_default((), (said,)) == ((OFFLINE_RUNS[1],), (said, OFFLINE_RUNS[1]))


@pytest.mark.parametrize("said", ["*tfevents*", "lightning_logs/**/events.out.tfevents.*"])
def test_whoever_names_event_files_decides_about_them(said: str) -> None:
    kept, given_up = kept_by_default((said,), ())

    assert kept == (said, OFFLINE_RUNS[0])
    assert given_up == (OFFLINE_RUNS[0], *BESIDE_RUNS)
