"""The cells of a sweep: named for good, quoted for the shell, and never in each other's way."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_tenant.domain.errors import BadRequest
from gpu_tenant.domain.sweep_grid import MOST_CELLS, grid_of, variables_of
from gpu_tenant.jobs.launch import _JOB_NAME

RUN = "train --lr {lr} --out out/{cell}"
OUT = ["out/{cell}/"]
values = st.one_of(st.text(max_size=80).filter(lambda v: "\0" not in v), st.integers(), st.floats())


def lr_of(*given: object) -> list[str]:
    """The cells' names for those learning rates."""
    grid = grid_of(RUN, artifacts=OUT, cells=[{"lr": value} for value in given])
    return [cell.name for cell in grid.cells]


def test_a_matrix_is_every_combination_in_the_order_that_was_given() -> None:
    grid = grid_of("t {lr} {bs}", artifacts=OUT, matrix={"lr": [0.1, 0.2], "bs": [1, 2]})

    assert [cell.name for cell in grid.cells] == [
        "lr-0.1_bs-1",
        "lr-0.1_bs-2",
        "lr-0.2_bs-1",
        "lr-0.2_bs-2",
    ]
    assert grid.command_of(grid.cells[2]) == "t 0.2 1"
    assert grid.artifacts_of(grid.cells[2]) == ("out/lr-0.2_bs-1/",)
    assert variables_of(grid.cells[2]) == {
        "GPU_TENANT_CELL": "lr-0.2_bs-1",
        "GPU_TENANT_PARAM_LR": "0.2",
        "GPU_TENANT_PARAM_BS": "1",
    }


@given(st.lists(values, min_size=1, max_size=12, unique_by=lambda v: str(v)))
@settings(deadline=None, max_examples=60)
def test_whatever_the_values_names_are_legal_unique_and_stable(given: list[object]) -> None:
    names = lr_of(*given)

    assert len({name.casefold() for name in names}) == len(given)
    assert all(_JOB_NAME.fullmatch(f"{name}.r2") for name in names)
    assert lr_of(*reversed(given)) == names[::-1]
    # A further attempt of one is none of the others.
    assert not {re.sub(r"\.r?\d+$", "", name) for name in names if name not in names} & set(names)


def test_only_names_that_would_meet_have_a_hash() -> None:
    plain, *alike = lr_of("x", "a b", "a/b", "A/B")

    assert plain == "lr-x"
    assert all(re.fullmatch(r"lr-[aA]-[bB]-[0-9a-f]{8}", name) for name in alike)


def test_a_cell_is_never_called_as_another_cell_s_second_attempt() -> None:
    zero, decimal = lr_of("0", "0.2")

    assert zero == "lr-0"
    assert re.fullmatch(r"lr-0\.2-[0-9a-f]{8}", decimal), "the second attempt of `lr-0` is `lr-0.2`"


@given(st.text(max_size=40).filter(lambda v: "\0" not in v and not re.search("[\ud800-\udfff]", v)))
@settings(deadline=None, max_examples=40)
def test_a_value_reaches_the_command_as_it_is_whatever_it_holds(value: str) -> None:
    grid = grid_of("printf %s {lr}", artifacts=OUT, cells=[{"lr": value}])

    assert shlex.split(grid.command_of(grid.cells[0])) == ["printf", "%s", value]


def test_the_shell_agrees(tmp_path: Path) -> None:
    nasty = "$(touch pwned); `id` 'x' \"y\" \\ *"
    grid = grid_of("printf %s {lr}", artifacts=OUT, cells=[{"lr": nasty}])

    ran = subprocess.run(
        ["sh", "-c", grid.command_of(grid.cells[0])], capture_output=True, text=True, cwd=tmp_path
    )

    assert ran.stdout == nasty
    assert list(tmp_path.iterdir()) == []


def test_a_doubled_brace_is_a_brace() -> None:
    grid = grid_of("awk '{{print $1}}' {lr}", artifacts=OUT, cells=[{"lr": 1}])

    assert grid.command_of(grid.cells[0]) == "awk '{print $1}' 1"


def test_a_value_in_a_pattern_stands_for_itself() -> None:
    grid = grid_of("t {lr}", artifacts=["out/{cell}/{lr}.json"], cells=[{"lr": "*"}])

    assert grid.artifacts_of(grid.cells[0])[0].endswith("/[*].json")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "a sweep needs cells"),
        ({"matrix": {"lr": [1]}, "cells": [{"lr": 1}]}, "a sweep needs cells"),
        ({"matrix": {"lr": []}}, "no list of values"),
        ({"matrix": {"lr": "12"}}, "no list of values"),
        ({"cells": [{"lr": [1]}]}, "neither a word nor a number"),
        ({"cells": [{"lr": None}]}, "neither a word nor a number"),
        ({"cells": [{"lr": 1}, {"lr": "1"}]}, "twice"),
        ({"cells": [{"lr": 1}, {"bs": 1}]}, "not every cell has"),
        ({"cells": [{"lr": 1, "cell": 2}]}, "cannot name a parameter"),
        ({"cells": [{"lr": 1, "a-b": 1, "a_b": 2}]}, "GPU_TENANT_PARAM_A_B"),
        ({"matrix": {"lr": [1], "bs": [1, 2]}}, "never uses the parameter bs"),
        ({"matrix": {"lr": range(MOST_CELLS + 1)}}, "more than 10,000"),
        ({"matrix": {"lr": [1]}, "command": "t {lr} {momentum}"}, "{momentum}"),
        ({"matrix": {"lr": [1]}, "command": "t {lr} }"}, "has no partner"),
        ({"matrix": {"lr": [1, 2]}, "artifacts": ["out/"]}, "overwrite the others"),
        ({"matrix": {"lr": [1, 2]}, "artifacts": ["out/{cell}*"]}, "begins the same"),
    ],
)
def test_a_grid_that_would_do_harm_is_refused_with_a_way_on(
    more: dict[str, object], words: str
) -> None:
    asked: dict[str, object] = {"command": RUN, "artifacts": OUT, **more}

    with pytest.raises(BadRequest, match=re.escape(words)) as refused:
        grid_of(**asked)  # type: ignore[arg-type]

    assert refused.value.remedy


def test_one_cell_alone_may_write_where_it_likes() -> None:
    assert grid_of("t {lr}", artifacts=["out/"], cells=[{"lr": 1}]).artifacts == ("out/",)


def test_a_parameter_may_be_used_by_its_variable_alone() -> None:
    grid_of("t $GPU_TENANT_PARAM_LR", artifacts=OUT, matrix={"lr": [1, 2]})
