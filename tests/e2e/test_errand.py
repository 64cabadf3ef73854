"""The whole errand in one call, at rehearsals of platforms and on this computer."""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from e2e.renting import Tenant, tenant_at
from errands import COMMAND, MODEL, Asker, a_tree, an_errand, goes_on

from gpu_tenant.domain.command import Command
from gpu_tenant.domain.errors import Limit, Refused, SecretRefused
from gpu_tenant.domain.model import LeaseState
from gpu_tenant.domain.offers import USD_STEP
from gpu_tenant.domain.policy import rules_of
from gpu_tenant.domain.terms import ATTENDED_S
from gpu_tenant.domain.wording import usd_words
from gpu_tenant.errands import drive
from gpu_tenant.errands.answers import in_few_words
from gpu_tenant.errands.drive import Drive, begin, declare
from gpu_tenant.jobs.monitor import Watched
from gpu_tenant.jobs.smoke import fingerprint
from gpu_tenant.leases.presence import note_presence
from gpu_tenant.leases.speaker import speaker

AT = ["vastai", "runpod", "lambda_cloud"]


@pytest.fixture
async def renting(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tenant]:
    """Somebody at a rehearsal where time runs, because jobs do."""
    async with tenant_at(getattr(request, "param", "vastai"), tmp_path, time="runs") as tenant:
        yield tenant


@pytest.mark.parametrize("renting", AT, indirect=True)
async def test_one_call_rents_runs_brings_home_proves_and_gives_back(
    renting: Tenant, tmp_path: Path
) -> None:
    tree, asker = a_tree(tmp_path / "tree"), Asker()
    errand = an_errand(renting.tenancy, tree, to=str(tmp_path / "home"), max_usd=50)

    standing = await goes_on(renting.tenancy, errand, asker)

    assert standing.outcome == "done", standing
    assert standing.ended is not None
    assert standing.ended.receipt.ground == "verified"
    assert (tmp_path / "home" / "work" / "out" / "model.json").read_text().strip() == MODEL
    assert len(asker.plans) == 1
    assert asker.asked == []
    assert renting.creates() == 1
    renting.assert_nothing_bills()


async def test_nothing_is_rented_before_somebody_agrees(renting: Tenant, tmp_path: Path) -> None:
    errand = an_errand(renting.tenancy, a_tree(tmp_path / "tree"))

    asked = await goes_on(renting.tenancy, errand, Asker(agrees=None))

    assert (asked.outcome, asked.step) == ("asks", "choose")
    assert asked.plan is not None
    assert "USD/h" in asked.plan.lines[0]
    assert f"--resume {asked.run}" in asked.next
    assert renting.creates() == 0

    done = await goes_on(renting.tenancy, errand)

    assert (done.run, done.outcome) == (asked.run, "done")
    assert renting.creates() == 1


async def test_the_plan_says_when_it_ends_who_ends_it_what_is_assumed_and_what_was_not_tried(
    renting: Tenant, tmp_path: Path
) -> None:
    asker = Asker()
    errand = an_errand(renting.tenancy, a_tree(tmp_path / "tree"), max_usd=50)

    await goes_on(renting.tenancy, errand, asker)

    (lease,) = renting.tenancy.ledger.leases()
    told = "\n".join(asker.plans[0].lines)
    assert "a stranger's machine that passed its platform's tests" in told
    assert "1 h of work (assumed: `--hours N`)" in told
    deadline = re.search(r"deadline (\S+ \S+) UTC, in 2.0 h: the guard on the box stops", told)
    assert deadline is not None
    planned_at = datetime.strptime(f"{deadline[1]} +0000", "%Y-%m-%d %H:%M %z")
    assert abs(lease.terms.deadline_at - planned_at) < timedelta(minutes=5)
    assert "at other times watched: nobody: `gpu-tenant watchdog`" in told
    assert (
        "if this computer dies: once the box is ready and its guard is armed, it stops itself at the deadline"
        in told
    )
    assert "nothing limits it while no watchdog runs; these sums are for this run alone" in told
    assert re.search(
        r" USD/h for 1 h \(assumed\), at most \S+ USD plus traffic by ", asker.plans[0].headline
    )
    assert len(asker.plans[0].brief) <= 6
    assert "whether the job can be killed and resumed was not tested" in told


async def test_hours_that_were_said_are_not_called_assumed(renting: Tenant, tmp_path: Path) -> None:
    asker = Asker(agrees=None)
    errand = an_errand(renting.tenancy, a_tree(tmp_path / "tree"), hours=1)

    await goes_on(renting.tenancy, errand, asker)

    assert "for 1 h of work;" in asker.plans[0].lines[1]


async def test_the_plan_says_what_earlier_runs_of_the_directory_have_cost(
    renting: Tenant, tmp_path: Path
) -> None:
    tree, asker = a_tree(tmp_path / "tree"), Asker()
    first = await goes_on(renting.tenancy, an_errand(renting.tenancy, tree), asker)
    elsewhere = an_errand(renting.tenancy, a_tree(tmp_path / "other" / "tree"))
    await goes_on(renting.tenancy, elsewhere, asker)

    await goes_on(renting.tenancy, an_errand(renting.tenancy, tree, hours=2), asker)

    assert first.ended is not None
    cost = usd_words(first.ended.receipt.cost_usd)
    alone, other, again = (plan.lines[1] for plan in asker.plans)
    assert alone.endswith("these sums are for this run alone")
    assert other.endswith("for this run alone")
    assert again.endswith(f"for this run alone; 1 earlier box of this directory cost {cost}")


async def test_all_attempts_at_a_work_are_summed_up_and_may_have_one_budget(
    renting: Tenant, tmp_path: Path
) -> None:
    tree = a_tree(tmp_path / "tree")
    first = await goes_on(renting.tenancy, an_errand(renting.tenancy, tree))
    assert first.ended is not None
    assert first.ended.attempts is None
    spent = first.ended.receipt.cost_usd
    assert spent

    asker = Asker()
    second = await goes_on(
        renting.tenancy, an_errand(renting.tenancy, tree, hours=2, max_usd_all=5), asker
    )

    (plan,) = asker.plans
    assert plan.most_usd == 5 - spent
    assert second.ended is not None
    assert second.ended.attempts is not None
    assert "in 2 attempts" in second.ended.attempts
    with pytest.raises(Limit, match="the other runs of"):
        await goes_on(renting.tenancy, an_errand(renting.tenancy, tree, hours=3, max_usd_all=spent))
    assert renting.creates() == 2


@pytest.mark.parametrize("said", ["keep", "lose"])
async def test_a_file_of_the_smoke_test_that_nothing_declares_is_asked_for_before_anything_is_rented(
    said: str, renting: Tenant, tmp_path: Path
) -> None:
    tree = a_tree(tmp_path / "tree", "echo odd > notes-2000.txt")
    smoke = f"SMOKE=1 {COMMAND}; echo odd > notes-2.txt; echo odd > only-here.log; mkdir __pycache__; : > __pycache__/a.pyc"
    errand = an_errand(renting.tenancy, tree, smoke=smoke, unasked_gib=0)
    names = ["notes-2.txt", "only-here.log"]

    asked = await goes_on(renting.tenancy, errand, Asker(agrees=None))

    assert asked.plan is not None
    assert list(asked.plan.undeclared) == names
    assert "the smoke test also wrote notes-2.txt, only-here.log" in asked.plan.lines[-1]
    assert "whether to keep notes-2.txt, only-here.log" in asked.plan.brief["decide now"]
    resumes = f"--resume {asked.run} --yes"
    assert f"{resumes} --artifact '*.txt' --artifact '*.log'" in asked.next
    assert f"{resumes} --discard 'notes-2.txt' --discard 'only-here.log'" in asked.next
    assert renting.creates() == 0

    asker = Asker(keeps_all=True) if said == "keep" else Asker(discard=["notes-2000.txt", *names])
    done = await goes_on(renting.tenancy, errand, asker)

    assert done.outcome == "done", done
    assert [x.lease for x in asker.asked] == [None], "nothing is left to ask at the end"
    assert done.ended is not None
    notes = Path(done.ended.receipt.kept_in or "") / "work" / "notes-2000.txt"
    assert notes.exists() == (said == "keep")


async def test_many_files_of_a_smoke_test_do_not_hide_the_one_that_nothing_declares(
    renting: Tenant, tmp_path: Path
) -> None:
    many = "mkdir a; for n in $(seq 40); do echo $n > a/$n; done; echo odd > zz.txt"
    errand = an_errand(
        renting.tenancy,
        a_tree(tmp_path / "tree"),
        artifacts=("out/", "a/"),
        smoke=many,
        unasked_gib=0,
    )

    asked = await goes_on(renting.tenancy, errand, Asker(agrees=None))

    assert asked.plan is not None
    assert asked.plan.undeclared == ("zz.txt",)


async def test_the_answer_says_where_each_artifact_lies_and_what_was_not_proved(
    renting: Tenant, tmp_path: Path
) -> None:
    tree = a_tree(tmp_path / "tree", "echo a,b > out/m.csv")
    standing = await goes_on(renting.tenancy, an_errand(renting.tenancy, tree))

    told = in_few_words(standing).words
    (place,) = re.findall(r"out/ is (\S+);", told)
    assert (Path(place) / "model.json").read_text().strip() == MODEL
    assert "not proved: work/out/m.csv: that no row is missing" in told
    assert "; and 1 more: `gpu-tenant report vastai-" in told


async def test_a_failed_smoke_test_rents_nothing_and_says_that_it_cost_nothing(
    renting: Tenant, tmp_path: Path
) -> None:
    errand = an_errand(renting.tenancy, a_tree(tmp_path / "tree"), smoke="echo broken; exit 3")

    standing = await goes_on(renting.tenancy, errand)

    assert (standing.outcome, standing.step) == ("failed", "smoke")
    assert "status 3; nothing was rented, and it cost nothing" in standing.words
    assert "broken" in standing.log
    assert renting.creates() == 0


async def test_what_would_cost_more_than_the_sum_is_not_even_offered_for_consent(
    renting: Tenant, tmp_path: Path
) -> None:
    asker = Asker()
    errand = an_errand(renting.tenancy, a_tree(tmp_path / "tree"), hours=1000, max_usd="0.5")

    with pytest.raises(
        Refused, match=r"for 1000 h, which is more than the 0\.5000 USD that may be spent"
    ):
        await goes_on(renting.tenancy, errand, asker)

    assert asker.plans == []
    assert renting.creates() == 0


async def test_a_sum_that_is_too_small_is_answered_with_the_cost_and_with_one_that_suffices(
    renting: Tenant, tmp_path: Path
) -> None:
    tree = a_tree(tmp_path / "tree")

    with pytest.raises(Refused) as refused:
        await goes_on(renting.tenancy, an_errand(renting.tenancy, tree, max_usd="0.2"))

    assert re.search(
        r"would cost 0\.\d{4} USD for 1 h \(assumed\), which is more than the",
        refused.value.message,
    )
    enough, hours = re.findall(r"`--(?:max-usd|hours) ([\d.]+)`", refused.value.remedy)
    for said in ({"max_usd": enough}, {"max_usd": "0.2", "hours": float(hours)}):
        asker = Asker(agrees=None)
        await goes_on(renting.tenancy, an_errand(renting.tenancy, tree, **said), asker)
        assert len(asker.plans) == 1, said
        assert "too small" not in "\n".join(asker.plans[0].lines), said


async def test_a_sum_that_ends_the_work_before_its_hours_says_so_first_and_one_for_no_work_is_refused(
    renting: Tenant, tmp_path: Path
) -> None:
    tree, asker = a_tree(tmp_path / "tree"), Asker(agrees=None)
    quote = renting.tenancy.ledger.quote((await renting.quotes(hours=0.1))[0])
    assert quote is not None
    assert quote.offer.price.running_usd_h is not None
    for_hours = {
        h: f"{quote.offer.price.running_usd_h * Decimal(h) + USD_STEP:f}" for h in ("0.4", "0.02")
    }

    some = an_errand(renting.tenancy, tree, hours=0.4, max_usd=for_hours["0.4"])
    await goes_on(renting.tenancy, some, asker)
    none = an_errand(renting.tenancy, tree, hours=0.02, max_usd=for_hours["0.02"])
    with pytest.raises(Refused, match=r"too small for 0\.02 h: .* pays for 0 s of work") as refused:
        await goes_on(renting.tenancy, none, asker)

    (plan,) = asker.plans
    assert plan.lines[0].startswith("`--max-usd` is too small for 0.4 h: about ")
    assert next(iter(plan.brief)) == "budget", "what goes wrong is the first line"
    assert "too small: it pays for " in plan.brief["budget"]
    assert re.search(r"`--max-usd 0\.\d\d`", refused.value.remedy)
    assert renting.creates() == 0


@pytest.mark.parametrize("by", ["yes", "agent"])
async def test_what_agrees_before_it_has_seen_the_plan_rents_on_no_sum_that_is_too_small(
    renting: Tenant, tmp_path: Path, by: str
) -> None:
    tree, asker = a_tree(tmp_path / "tree"), Asker(agrees=None)
    quote = renting.tenancy.ledger.quote((await renting.quotes(hours=0.4))[0])
    assert quote is not None
    assert quote.offer.price.running_usd_h is not None
    most = f"{quote.offer.price.running_usd_h * Decimal('0.4') + USD_STEP:f}"
    errand = an_errand(renting.tenancy, tree, hours=0.4, max_usd=most)

    asked = await goes_on(renting.tenancy, errand, asker)
    with pytest.raises(Refused, match=r"`--max-usd` is too small for 0\.4 h") as refused:
        await goes_on(renting.tenancy, errand, Asker(agrees=by))

    (enough,) = re.findall(r"`--max-usd ([\d.]+)`", refused.value.remedy)
    assert asked.next.startswith(f"the same line with `--max-usd {enough}`")
    assert "--yes" not in asked.next
    assert renting.creates() == 0
    larger = an_errand(renting.tenancy, tree, hours=0.4, max_usd=enough)
    assert (await goes_on(renting.tenancy, larger, Asker(agrees=by))).outcome == "done"


async def test_the_owners_limits_hold(renting: Tenant, tmp_path: Path) -> None:
    renting.home.root.mkdir(exist_ok=True)
    renting.home.configuration.write_text("[limits]\nbox_usd_h = 0.0001\n", encoding="utf-8")
    errand = an_errand(renting.tenancy, a_tree(tmp_path / "tree"))

    with pytest.raises(Limit):
        await goes_on(renting.tenancy, errand)

    assert renting.creates() == 0


async def test_two_copies_of_the_same_line_rent_one_box_and_show_the_same_receipt(
    renting: Tenant, tmp_path: Path
) -> None:
    first, second = renting.tenancy, renting.anew_tenancy()
    tree = a_tree(tmp_path / "tree")

    both = await asyncio.gather(
        *(goes_on(tenancy, an_errand(tenancy, tree)) for tenancy in (first, second))
    )

    assert [standing.outcome for standing in both] == ["done", "done"]
    assert both[0].ended == both[1].ended
    assert renting.creates() == 1
    assert (tmp_path / "ran").read_text().split() == ["ran"]


async def test_what_nobody_declared_comes_home_without_a_question_and_the_box_ends(
    renting: Tenant, tmp_path: Path
) -> None:
    wrote = "mkdir -p wandb/run-1; echo odd > notes.txt; echo x > wandb/run-1/a.wandb; : > ready; echo h > ~/at-home"
    errand, nobody = an_errand(renting.tenancy, a_tree(tmp_path / "tree", wrote)), Asker()

    done = await goes_on(renting.tenancy, errand, nobody)

    assert (done.outcome, nobody.asked) == ("done", [])
    renting.assert_nothing_bills()
    assert done.ended is not None
    receipt = done.ended.receipt
    kept = Path(receipt.kept_in or "")
    assert (kept / "work/notes.txt").read_text("utf-8") == "odd\n"
    assert (kept / "work/wandb/run-1/a.wandb").read_text("utf-8") == "x\n"
    assert (kept / "work/ready").read_text("utf-8") == ""
    assert [path.read_text("utf-8") for path in (kept / "root").rglob("at-home")] == ["h\n"]
    assert any("4 undeclared files" in words for words in receipt.not_proved), receipt.not_proved
    assert any("comes home too, up to 2 GiB" in line for line in nobody.plans[0].lines)


async def test_a_file_that_is_too_large_to_come_unasked_is_asked_for_once_at_the_end_and_never_guessed(
    renting: Tenant, tmp_path: Path
) -> None:
    tree = a_tree(tmp_path / "tree", "echo odd > notes.txt; echo odd > more.txt")
    errand, nobody = an_errand(renting.tenancy, tree, unasked_gib=0), Asker()

    asked = await goes_on(renting.tenancy, errand, nobody)

    assert asked.outcome == "asks"
    assert asked.asks is not None
    assert re.search(r"^\d+ B, about .* USD to fetch: ", asked.asks.ways[0])
    assert sorted(asked.asks.unclaimed) == ["more.txt", "notes.txt"]
    assert any("--discard 'more.txt'" in way and asked.run in way for way in asked.asks.ways)
    assert len(nobody.asked) == 1
    assert len(renting.alive) == 1, "the box is kept until a person has said"

    done = await goes_on(renting.tenancy, errand, Asker(discard=["notes.txt", "more.txt"]))

    assert done.outcome == "done", done
    renting.assert_nothing_bills()
    assert (tmp_path / "ran").read_text().split() == ["ran"]


async def test_a_job_that_failed_is_brought_home_all_the_same_and_its_box_given_back(
    renting: Tenant, tmp_path: Path
) -> None:
    fails = "echo 'ValueError: boom' >&2; exit 3"
    errand = an_errand(renting.tenancy, a_tree(tmp_path / "tree", fails))

    standing = await goes_on(renting.tenancy, errand)

    assert (standing.outcome, standing.job_state) == ("failed", "failed")
    assert "ValueError: boom" in standing.log
    assert "correct what the words and the log show" in in_few_words(standing).next
    assert standing.ended is not None
    assert standing.ended.receipt.ground == "verified"
    renting.assert_nothing_bills()


async def test_the_terms_of_a_run_say_what_it_does_about_a_failed_job(
    renting: Tenant, tmp_path: Path
) -> None:
    asker = Asker()
    errand = an_errand(renting.tenancy, a_tree(tmp_path / "tree", "exit 3"))

    standing = await goes_on(renting.tenancy, errand, asker)

    (lease,) = renting.tenancy.ledger.leases()
    profile = renting.tenancy.context.profile(lease.provider)
    said = "1m later, or 10m if somebody is there to try again, for about 0."
    assert any(f"(if it failed: {said}" in line for line in asker.plans[0].lines)
    (rule,) = (x for x in rules_of(lease, profile) if x.startswith("when its work is done"))
    assert f"still run: torn down once all is proved {said}" in rule
    assert standing.ended is not None, "nobody was there, so nothing was waited for"
    assert standing.ended.receipt.lived_s < ATTENDED_S


async def test_a_person_at_the_terminal_of_a_failed_run_has_ten_minutes_to_try_again_on_its_box(
    renting: Tenant, tmp_path: Path
) -> None:
    asker = Asker()
    errand = an_errand(renting.tenancy, a_tree(tmp_path / "tree", "exit 3"))

    speaker.set("person")
    standing = await goes_on(renting.tenancy, errand, asker)

    (told,) = (words for words in asker.heard if "stays warm until" in words)
    assert re.search(r"for 10m at [\d.]+ USD/h = 0\.\d+ USD, and is then ended", told)
    assert "Ctrl-C leaves it so; correct it here, then " in told
    assert "or the same line, tries again there" in told
    assert standing.ended is not None
    assert ATTENDED_S <= standing.ended.receipt.lived_s < 2 * ATTENDED_S


async def test_an_agent_is_told_at_once_that_its_failed_run_s_box_is_warm_and_may_use_it(
    renting: Tenant, tmp_path: Path
) -> None:
    tenancy = renting.tenancy
    errand = an_errand(tenancy, a_tree(tmp_path / "tree", "exit 3"))
    tenancy.context.watches = "server"
    note_presence(renting.home, renting.clock.now())

    failed = await goes_on(tenancy, errand)

    assert (failed.outcome, failed.job_state, failed.ended) == ("failed", "failed", None)
    assert "stays warm until" in failed.words
    assert failed.lease is not None
    await tenancy.launch_detached(failed.lease, "sleep 60", ["out/"], name="mended")
    again = await goes_on(tenancy, errand)

    assert (again.outcome, again.ended) == ("failed", None)
    assert "works on for mended" in again.words
    assert renting.lease(failed.lease).state is LeaseState.ACTIVE


async def test_the_same_line_with_corrected_files_tries_again_on_the_warm_box(
    renting: Tenant, tmp_path: Path
) -> None:
    tenancy, tree, asker = renting.tenancy, a_tree(tmp_path / "tree", "exit 3"), Asker()
    errand, script = an_errand(tenancy, tree), tree / "train.sh"
    tenancy.context.watches = "server"
    note_presence(renting.home, renting.clock.now())

    failed = await goes_on(tenancy, errand, asker)
    as_it_was = await goes_on(tenancy, errand, asker)
    right = script.read_text(encoding="utf-8").replace("exit 3", "")
    script.write_text("exit 4", encoding="utf-8")
    worse = await goes_on(tenancy, errand, asker)
    script.write_text(right, encoding="utf-8")
    done = await goes_on(tenancy, errand, asker)

    again = (
        f"correct it here, then {Command('run', resume=failed.run)}, or the same line, tries again"
    )
    for standing in (failed, as_it_was, worse):
        assert (standing.run, standing.outcome, standing.ended) == (failed.run, "failed", None)
        assert again in standing.next
    assert "the smoke test ended with status 4; nothing was launched on " in worse.words
    assert done.outcome == "done", done
    assert [job.id for job in tenancy.ledger.jobs(renting.tenancy.ledger.leases()[0].id)] == [
        failed.run,
        f"{failed.run}-2",
    ]
    assert renting.creates() == 1


async def test_a_box_whose_owner_wants_to_look_at_a_failed_job_is_kept_that_long_and_no_longer(
    renting: Tenant, tmp_path: Path
) -> None:
    asker = Asker()
    tree = a_tree(tmp_path / "tree", "exit 3")
    errand = an_errand(renting.tenancy, tree, on_failure="end after 10m")

    standing = await goes_on(renting.tenancy, errand, asker)

    assert any("(if it failed: 10m later, for about" in line for line in asker.plans[0].lines)
    assert any("the job is failed; its box stays warm until" in words for words in asker.heard)
    assert standing.ended is not None
    assert 600 <= standing.ended.receipt.lived_s < 1200


async def test_a_question_about_files_does_not_hide_that_the_job_has_failed(
    renting: Tenant, tmp_path: Path
) -> None:
    fails = "echo more >notes.txt; echo 'ValueError: boom' >&2; exit 3"
    errand = an_errand(renting.tenancy, a_tree(tmp_path / "tree", fails), unasked_gib=0)

    asked = await goes_on(renting.tenancy, errand)

    assert asked.outcome == "asks"
    assert asked.words.startswith("the job is failed; ")
    assert "ValueError: boom" in asked.log
    assert asked.asks is not None
    assert asked.asks.unclaimed == ("notes.txt",)


async def test_a_secret_in_the_tree_is_refused_before_anything_bills(
    renting: Tenant, tmp_path: Path
) -> None:
    tree = a_tree(tmp_path / "tree")
    (tree / "id_ed25519").write_text(
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU\n"
        "-----END OPENSSH PRIVATE KEY-----\n",
        encoding="utf-8",
    )
    errand = an_errand(renting.tenancy, tree)

    with pytest.raises(SecretRefused):
        await goes_on(renting.tenancy, errand)

    assert renting.creates() == 0


async def test_the_same_line_after_the_end_was_shown_is_a_new_errand(
    renting: Tenant, tmp_path: Path
) -> None:
    errand = an_errand(renting.tenancy, a_tree(tmp_path / "tree"))
    first = await goes_on(renting.tenancy, errand)

    assert begin(renting.tenancy, errand) != first.run


async def test_an_end_that_nobody_was_shown_is_shown_again_and_nothing_runs_twice(
    renting: Tenant, tmp_path: Path
) -> None:
    errand = an_errand(renting.tenancy, a_tree(tmp_path / "tree"))
    asker = Asker()
    asker.tenancy = renting.tenancy
    unseen = await Drive(renting.tenancy, begin(renting.tenancy, errand), asker).go_on()

    seen = await goes_on(renting.tenancy, errand)

    assert seen == unseen
    assert renting.creates() == 1


async def test_the_ledger_allows_an_errand_no_second_box(renting: Tenant, tmp_path: Path) -> None:
    errand = an_errand(renting.tenancy, a_tree(tmp_path / "tree"))
    done = await goes_on(renting.tenancy, errand)
    (lease,) = renting.tenancy.ledger.leases()

    with pytest.raises(Refused, match="nothing else is rented"):
        renting.tenancy.ledger.intend(
            lease_id=type(lease.id)("another"),
            provider=lease.provider,
            terms=lease.terms,
            address=None,
            price_usd_h=None,
            at=renting.tenancy.clock.now(),
            errand=done.run,
        )

    assert lease.state is LeaseState.GONE


async def test_files_that_changed_since_the_smoke_test_are_tried_again_before_anything_is_rented(
    renting: Tenant, tmp_path: Path
) -> None:
    tree = a_tree(tmp_path / "tree")
    errand = an_errand(renting.tenancy, tree, max_usd="5")
    undecided = await goes_on(renting.tenancy, errand, Asker(agrees=None))
    script = tree / "train.sh"
    as_tried = script.read_text(encoding="utf-8")

    script.write_text("exit 3\n", encoding="utf-8")
    person = Asker()
    broken = await goes_on(renting.tenancy, errand, person)
    script.write_text(as_tried, encoding="utf-8")
    mended = await goes_on(renting.tenancy, errand, Asker(agrees=None))
    same = Asker(agrees=None)
    await goes_on(renting.tenancy, errand, same)

    assert undecided.step == "choose"
    assert "the files changed since the smoke test: train.sh; it runs again here" in person.heard
    assert (broken.outcome, broken.step, renting.creates()) == ("failed", "smoke", 0), broken
    assert mended.step == "choose"
    assert not any("changed since" in words for words in same.heard)


def test_a_file_that_was_removed_after_it_was_listed_is_no_file_of_the_tree(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("1\n", encoding="utf-8")
    (tmp_path / "step.tmp").write_text("2\n", encoding="utf-8")
    listed = {name: tmp_path / name for name in ("train.py", "step.tmp")}

    (tmp_path / "step.tmp").unlink()

    assert fingerprint(listed) == fingerprint({"train.py": tmp_path / "train.py"})
    assert drive._newer({**listed, "gone/x": tmp_path / "train.py" / "x"}, 0) == ["train.py"]


async def test_what_is_said_of_a_file_before_anybody_asks_is_on_record_and_is_used_at_the_end(
    renting: Tenant, tmp_path: Path
) -> None:
    tree = a_tree(tmp_path / "tree", "echo 1 > notes.txt")
    tenancy = renting.tenancy
    errand = an_errand(tenancy, tree, max_usd="5")

    class SaysEarly(Asker):
        async def follow(self, lease: str, job: str) -> Watched:
            assert declare(tenancy, job, ["notes.txt"], []) == "late"
            return await super().follow(lease, job)

    person = SaysEarly()
    standing = await goes_on(tenancy, errand, person)

    assert standing.outcome == "done", standing
    assert standing.ended is not None
    assert (Path(standing.ended.receipt.kept_in or "") / "work/notes.txt").exists()
    assert not any(asks.unclaimed for asks in person.asked if asks.lease), "it was said before"
    assert declare(tenancy, standing.run, ["more.txt"], []) == "over"
