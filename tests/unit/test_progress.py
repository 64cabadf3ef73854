"""What a job's log says of its progress."""

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_tenant.jobs.progress import read_progress, whole_lines


@pytest.mark.parametrize(
    ("log", "done", "total", "unit", "fraction"),
    [
        ("step 120/1000", 120, 1000, "step", 0.12),
        ("Step: 1,200 of 10,000", 1200, 10000, "step", 0.12),
        ("epoch 3/10", 3, 10, "epoch", 0.3),
        ("[120/1000]", 120, 1000, "step", 0.12),
        (" 45%|████ | 9/20 [00:12<00:10, 1.2it/s]", 9, 20, "it", 0.45),
        ("  0%|    | 1.50k/3.00M [00:12<1:02:03]", 1500, 3_000_000, "it", 0.0005),
        ("1%|█| 1/9 [00:01<00:08]\r22%|██| 2/9 [00:02<00:07]", 2, 9, "it", 2 / 9),
        ("120it [00:12, 9.8it/s]", 120, None, "it", None),
        ("iter 100: time 12ms", 100, None, "it", None),
        ("epoch 3/10 step 5/20 loss=0.1", 2.25, 10, "epoch", 0.225),
        ("Epoch 2/4\nstep 1/4\nstep 2/4", 1.5, 4, "epoch", 0.375),
        ("Train Epoch: 3 [1200/60000 (2%)]", 1200, 60000, "step", None),
        ('{"step": 5, "total_steps": 20, "epoch": 1}', 5, 20, "step", 0.25),
        ('{"epoch": 2, "num_epochs": 8}', 2, 8, "epoch", 0.25),
        ("{'loss': 0.1, 'epoch': 0.3}\n 50%|█ | 60/120 [00:01<00:01]", 60, 120, "it", 0.5),
        ("step 1/9\nstep 2/9\nsaved", 2, 9, "step", 2 / 9),
        ("\x1b[32mstep 7/9\x1b[0m", 7, 9, "step", 7 / 9),
        ("step 12/9", 12, 9, "step", 1.0),
        ("step 3/0", 3, 0, "step", None),
    ],
)
def test_the_last_place_in_the_log_is_found(
    log: str, done: float, total: float | None, unit: str, fraction: float | None
) -> None:
    told = read_progress(log)

    assert told is not None
    assert told.done == pytest.approx(done)
    assert (told.total, told.unit) == (total, unit)
    assert told.fraction == (None if fraction is None else pytest.approx(fraction))


@pytest.mark.parametrize(
    ("log", "metrics"),
    [
        ("loss=0.123", {"loss": 0.123}),
        ("loss: 0.123", {"loss": 0.123}),
        ("{'loss': 0.1, 'learning_rate': 2e-05}", {"loss": 0.1, "learning_rate": 2e-5}),
        ("val_loss 0.3 acc 0.9 lr=1e-4", {"val_loss": 0.3, "acc": 0.9, "lr": 1e-4}),
        ("train/loss=2 eval.f1: .5", {"train/loss": 2, "eval.f1": 0.5}),
        ("grad_norm=inf", {"grad_norm": math.inf}),
        ("loss=3\nloss=2\nval_acc=0.5", {"loss": 2, "val_acc": 0.5}),
        ('{"train_loss": -1.5, "seconds": 3, "tag": "x"}', {"train_loss": -1.5}),
    ],
)
def test_the_last_value_of_each_metric_is_found(log: str, metrics: dict[str, float]) -> None:
    told = read_progress(log)

    assert told is not None
    assert told.metrics == metrics


@pytest.mark.parametrize("log", ["loss=nan", '{"loss": NaN}', "loss: NaN"])
def test_a_loss_that_is_no_number_is_told_as_one(log: str) -> None:
    told = read_progress(log)

    assert told is not None
    assert math.isnan(told.metrics["loss"])


@pytest.mark.parametrize(
    "log",
    ["", "hello", "2026-01-02 12:00:01 loading", "[12/05] done", "port: 8080", '{"a": 1', "{}"],
)
def test_a_log_that_tells_of_no_progress_has_none(log: str) -> None:
    assert read_progress(log) is None


def test_losses_come_first_whatever_order_the_log_has() -> None:
    told = read_progress("step 3/9 lr=0.1 grad_norm=2 aux_loss=5 val_loss=4 loss=3")

    assert told is not None
    assert list(told.metrics) == ["loss", "val_loss", "aux_loss", "lr", "grad_norm"]


@pytest.mark.parametrize(
    ("tail", "whole"),
    [
        ("l_loss=9\nstep 2 loss=1\n", "step 2 loss=1\n"),
        ("l_loss=9\rstep 2 loss=1", "step 2 loss=1"),
        ("l_loss=9\r\nstep 2 loss=1", "step 2 loss=1"),
        ("all that there is", "all that there is"),
        ("all that there is\n", "all that there is\n"),
    ],
)
def test_the_line_at_which_a_tail_was_cut_is_left_out(tail: str, whole: str) -> None:
    assert whole_lines(tail) == whole


def test_a_name_that_only_json_can_spell_can_be_told_on() -> None:
    told = read_progress('{"step": 1, "loss\\ud800\\u202e": 2}')

    assert told is not None
    assert "loss" in told.model_dump_json()
    assert "\u202e" not in told.model_dump_json()


@given(st.text())
def test_no_log_is_too_odd_to_be_read(log: str) -> None:
    read_progress(log + " step " + log)


@pytest.mark.parametrize("stuff", ["a" * 100_000, "loss " * 20_000, "[" * 50_000, "1/" * 50_000])
def test_a_hostile_log_costs_no_time(stuff: str) -> None:
    began = time.process_time()

    read_progress(stuff)

    assert time.process_time() - began < 0.5
