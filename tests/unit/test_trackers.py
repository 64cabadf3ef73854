"""Links to experiment trackers in a log: only of known forms, with nothing secret in them."""

import pytest

from gpu_tenant.domain.trackers import BESIDE_RUNS, OFFLINE_RUNS, kept_by_default, tracker_links


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
