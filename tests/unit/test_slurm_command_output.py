"""What Slurm's commands print, read field by field; that they print so is shown on a real Slurm."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from arranged import setting

from gpu_tenant.domain.errors import NoCapacity, NoQuota, ProviderSilent, ProviderTrouble
from gpu_tenant.domain.ports import Finished
from gpu_tenant.providers.slurm.command_output import (
    Pool,
    jobs,
    parse_ended,
    parse_queue,
    parse_submitted,
    pools,
    refusal,
)
from gpu_tenant.providers.slurm.connector import connect

MARK = "gpu-tenant:0a1b2c:slurm-aaaa"


def lines(*rows: str) -> str:
    """As squeue and sinfo end each field; `|` stands for that sign."""
    return "".join(f"{row}|\n" for row in rows).replace("|", "\x1f")


ROW = lines(f"7|7|N/A|RUNNING|None|0|N/A|N/A|N/A|low|gpu:1|1|{MARK}")
FORGOTTEN = f"5|5|TIMEOUT|low|{MARK}|{MARK}|Unknown\n".replace("|", "\x1f")


def answer(
    queue: str = ROW,
    *,
    greeting: str = "",
    cluster: str = "ClusterName             = lab\n",
    forgotten: str = FORGOTTEN,
    end: str = "n0nce end 0\n",
    complaint: str = "",
) -> Finished:
    """What the login node says when it is asked for everything."""
    text = f"{greeting}\nn0nce queue\n{queue}n0nce cluster\n{cluster}n0nce ended\n{forgotten}{end}"
    return Finished(0, text.encode(), complaint.encode())


@pytest.mark.parametrize(
    "heard",
    [
        answer(),
        answer(greeting="Welcome!\n\nQuota: 5 of 9\n\n"),
        answer(greeting="no end of a line"),
    ],
    ids=["plain", "greeted", "greeted without an end"],
)
def test_a_greeting_of_the_login_hides_no_job(heard: Finished) -> None:
    found = parse_queue(heard, "n0nce")

    assert found.cluster == "lab"
    assert [(row.id, row.state, row.mark) for row in found.rows] == [
        ("5", "TIMEOUT", MARK),
        ("7", "RUNNING", MARK),
    ]


def test_what_the_accounts_remember_is_no_row_of_an_empty_queue() -> None:
    (row,) = parse_queue(answer(""), "n0nce").rows

    assert (row.id, row.is_over) == ("5", True)


@pytest.mark.parametrize(
    "heard",
    [
        Finished(0, b"", b""),
        answer(end=""),
        answer(cluster=""),
        answer(end="n0nce end 1\n", complaint="sacct: error: Connection refused"),
        answer(end="n0nce end 127\n", complaint="sh: sacct: not found"),
    ],
    ids=["nothing", "cut short", "no cluster", "accounts that are away", "no sacct"],
)
def test_an_answer_that_is_not_whole_is_no_list(heard: Finished) -> None:
    with pytest.raises(ProviderTrouble):
        parse_queue(heard, "n0nce")


@pytest.mark.parametrize(
    ("heard", "shown"),
    [
        (answer(ROW + lines("8|8|N/A|RUNNING|None|0")), ["5", "7"]),
        (answer(ROW + ROW.replace("7", "8").replace("low", "a\nb")), ["5", "7"]),
        (
            answer(
                ROW + lines(f"8|8|N/A|RUNNING|None|{'9' * 5000}|N/A|N/A|N/A|low|gpu:1|1|{MARK}b")
            ),
            ["5", "7"],
        ),
        (answer(forgotten="9\x1f9\n"), ["7"]),
    ],
    ids=["a short row", "a broken row", "a number without end", "a short account"],
)
def test_a_row_that_cannot_be_read_hides_no_other_and_settles_nothing(
    heard: Finished, shown: list[str]
) -> None:
    found = parse_queue(heard, "n0nce")

    assert [row.id for row in found.rows] == shown
    with pytest.raises(ProviderSilent):
        found.must_show("9" if len(shown) == 1 else "8")
    if len(found.odd) > 1 or not found.odd[0].mark_is_told:
        with pytest.raises(ProviderSilent):
            found.must_show_mark(f"{MARK}c")


def test_a_time_that_no_calendar_has_hides_nothing() -> None:
    ((row,), odd) = jobs(
        ROW.replace(
            "N/A|N/A|N/A|low".replace("|", "\x1f"), f"N/A|{10**30}|N/A|low".replace("|", "\x1f")
        )
    )

    assert (row.id, row.ends_at, odd) == ("7", None, [])


def test_other_signs_that_end_a_line_hide_no_row_and_no_accounts_are_none() -> None:
    heard = answer(
        ROW + ROW.replace("7", "8").replace(MARK, "a\u2028b\x0bc"),
        forgotten="",
        end="n0nce end 1\n",
        complaint="Slurm accounting storage is disabled",
    )

    assert [row.id for row in parse_queue(heard, "n0nce").rows] == ["7", "8"]


def test_a_submission_that_names_no_job_may_have_made_one() -> None:
    assert parse_submitted(Finished(0, b"Welcome\n\n1234;lab\n", b"")) == "1234"
    with pytest.raises(ProviderSilent):
        parse_submitted(Finished(0, b"Welcome\n", b""))


@pytest.mark.parametrize("comment", ["(null)", "gpu-tenant:../..", f"{MARK}/x", f"{MARK} "])
def test_only_a_mark_of_our_form_is_one(comment: str) -> None:
    ((row,), _) = jobs(ROW.replace(MARK, comment))

    assert row.mark == (MARK if comment.strip() == MARK else None)


def test_a_task_of_an_array_is_ended_by_one_name_and_entered_by_another() -> None:
    ((task, foreign), _) = jobs(
        lines(
            f"19|18|2|RUNNING|None|0|N/A|1795331339|1795330000|low|gres:gpu:a100:2|2|{MARK}",
            "7|7|N/A|PENDING|Priority|0|N/A|N/A|N/A|low|N/A|1|words, with a comma",
        )
    )

    assert (task.id, task.job, task.gpus, task.mark) == ("18_2", "19", 4, MARK)
    assert task.ends_at == datetime.fromtimestamp(1795331339, UTC)
    assert (foreign.id, foreign.gpus, foreign.mark, foreign.taken) == ("7", 0, None, None)


@pytest.mark.parametrize(
    ("state", "restarts", "preempted_at", "fate"),
    [
        ("TIMEOUT", 0, "N/A", "walltime"),
        ("DEADLINE", 0, "N/A", "walltime"),
        ("PREEMPTED", 0, "1795331339", "preempted"),
        ("RUNNING", 0, "1795331339", "preempted"),
        ("PENDING", 1, "N/A", "preempted"),
        ("RUNNING", 1, "N/A", None),
        ("NODE_FAIL", 0, "N/A", "host_lost"),
        ("OUT_OF_MEMORY", 0, "N/A", None),
        ("FAILED", 0, "N/A", None),
        ("CANCELLED", 0, "N/A", None),
    ],
)
def test_what_took_an_allocation_is_told_apart_from_a_failure_of_its_own(
    state: str, restarts: int, preempted_at: str, fate: str | None
) -> None:
    row = f"1|1|N/A|{state}|None|{restarts}|{preempted_at}|N/A|N/A|low|gpu:1|1|{MARK}"

    ((seen,), _) = jobs(lines(row))

    assert seen.taken == fate


def test_what_the_controller_has_forgotten_is_in_the_accounts() -> None:
    text = f"18_2|19|TIMEOUT|low|{MARK}||2026-11-22T07:00:20\n41|41|PREEMPTED|low|{MARK}|{MARK}|Unknown\n"

    ((task, single), _) = parse_ended(text.replace("|", "\x1f"))

    assert (task.id, task.job, task.taken, task.is_over) == ("18_2", "19", "walltime", True)
    assert task.mark == MARK, "few sites keep the comment, and a claimed task was renamed"
    assert (single.id, single.mark, single.taken) == ("41", MARK, "preempted")


def test_gpus_are_counted_by_kind_in_every_partition_that_takes_jobs() -> None:
    text = "Welcome to the cluster\n\n" + lines(
        "low*|REQUEUE|1|2-12:00:00|up|mix|3|gpu:a100:4(S:0-1),gpu:v100:1|gpu:a100:3(IDX:0-2),gpu:v100:0",
        "low*|REQUEUE|1|2-12:00:00|up|idle|1|gpu:a100:8|gpu:a100:0(IDX:N/A)",
        "low*|REQUEUE|1|2-12:00:00|up|drain|9|gpu:a100:8|gpu:a100:0",
        "high|OFF|10|infinite|up|alloc|1|gpu:2|gpu:2(IDX:0-1)",
        "gone|OFF|99|infinite|down|idle|1|gpu:2|gpu:0",
    )

    assert pools(text, preemption="on") == [
        Pool("low", "a100", 8, 20, 11, 60, interruptible=True),
        Pool("low", "v100", 1, 3, 3, 60, interruptible=True),
        Pool("high", None, 2, 2, 0, None, interruptible=False),
    ]
    assert not any(pool.interruptible for pool in pools(text, preemption="off"))


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (
            "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
            ProviderSilent,
        ),
        (
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            ProviderSilent,
        ),
        (
            "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
            NoQuota,
        ),
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit", NoQuota),
        (
            "sbatch: error: Batch job submission failed: Requested node configuration is not available",
            NoCapacity,
        ),
        ("sbatch: error: invalid partition specified: nope", NoCapacity),
        ("sbatch: error: Script arguments not permitted", ProviderTrouble),
    ],
)
def test_only_a_silence_of_the_controller_leaves_open_whether_a_job_was_made(
    words: str, kind: type[ProviderTrouble]
) -> None:
    assert type(refusal("sbatch", Finished(1, b"", words.encode()))) is kind


async def test_a_typo_in_the_configuration_is_the_provider_s_trouble_and_asks_for_no_job(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.toml").write_text('[slurm]\nacount = "a"\n', encoding="utf-8")
    connector = connect(setting(tmp_path))

    with pytest.raises(ProviderTrouble, match="acount") as told_of:
        await connector.list_boxes()

    assert type(told_of.value) is ProviderTrouble, "and not silent: nothing was asked"
