"""Failures in the report: the table of lost nodes, and when the sentences on goodput must not be printed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.metrics.goodput import NO_STEPS, UNKNOWN_GOODPUT, Goodput, NodeLossResult
from analysis.report.findings.goodput_finding import describe_goodput, goodput_finding
from analysis.report.headline import headline_sentences
from analysis.report.report import write_report
from analysis.report.tables.failure_table import make_failure_table
from analysis.report.tables.strategy_table import make_strategy_table
from analysis.report.wording import NO_VALUE
from analysis.results.analyse_run import analyse_run
from analysis.results.summary import RunSummary
from tests.support.failing_runs import DETECTION_S, RECOVERY_S, write_failing_run

LOSS = NodeLossResult("worker-1", 4.0, "no heartbeat for 1 s", 1.0, 1, 7, 120, 2.0, 3.25)
GOODPUT = Goodput(0.8, 0.1, 0.02, 0.03, 0.01, 0.0, 0.04)


@pytest.fixture
def summary_of(tmp_path: Path) -> Callable[..., RunSummary]:
    """Returns a run without losses that has one trial per mapping of replaced fields."""
    _, summary = analyse_run(write_failing_run(tmp_path, ("continue",), (1e7,), repeats=1, steps=4))
    (trial,) = summary.trials
    return lambda *changes: replace(summary, trials=[replace(trial, **change) for change in changes])


def changed(condition: str, share: float | None, policy: str | None = "restore", **goodput: Any) -> dict[str, Any]:
    parts = {"share": share, "lost_steps": 0.9 - (share or 0.0), "other": 0.0} | goodput
    return {"condition": condition, "failure_policy": policy, "goodput": replace(GOODPUT, **parts)}


def test_report_lists_every_lost_node(tmp_path: Path) -> None:
    """When, why, after which time it was known, what followed, and what it cost."""
    folder = write_failing_run(tmp_path, ("restore",), (20.0, 60.0), repeats=1, workers=4, steps=200)
    _, summary = analyse_run(folder)

    rows = make_failure_table(summary.trials)

    assert len(rows) == sum(len(trial.node_losses) for trial in summary.trials) > 5
    assert {row.detection for row in rows} == {f"{DETECTION_S:.2f}"}
    assert {row.recovery for row in rows} == {f"{RECOVERY_S:.2f}"}
    assert all(row.outcome.startswith("restore: 4 of 4 workers, from step ") for row in rows)
    for trial in summary.trials:
        lost_s = sum(loss.lost_s or 0.0 for loss in trial.node_losses)
        parts = (trial.goodput.lost_steps, trial.goodput.detection, trial.goodput.recovery)
        assert lost_s == pytest.approx((trial.seconds or 0.0) * sum(part or 0.0 for part in parts))
    page = write_report(folder.path).read_text()
    assert "<h2>Failures</h2>" in page
    assert page.count("from step") == len(rows)
    assert "member again at, s</th>" in page


@pytest.mark.parametrize(("policy", "returns"), [("continue", False), ("rejoin", True)])
def test_only_a_node_that_returns_is_a_member_again(tmp_path: Path, policy: str, returns: bool) -> None:
    _, summary = analyse_run(write_failing_run(tmp_path, (policy,), (40.0,), repeats=1, workers=4, steps=200))

    rows = make_failure_table(summary.trials)

    assert rows
    assert any(row.return_time != NO_VALUE for row in rows) == returns


def test_reports_without_lost_nodes_have_no_section_on_failures(tmp_path: Path) -> None:
    page = write_report(write_failing_run(tmp_path, ("continue",), (1e7,), repeats=1, steps=4).path).read_text()

    assert "<h2>Failures</h2>" not in page
    assert "goodput</th>" in page  # the scenario declares a policy


def test_a_loss_that_ends_the_training_has_no_cost(summary_of: Callable[..., RunSummary]) -> None:
    """Nothing was measured after it."""
    ended = NodeLossResult("server-0", 4.0, "no heartbeat", 1.0, None, None, None, None, None)
    second = replace(LOSS, node="worker-2", lost_s=None, lost_with="worker-1")
    changes = {"failure_policy": "abort", "node_losses": [ended]}, {"node_losses": [LOSS, second]}

    first, *others = make_failure_table(summary_of(*changes).trials)

    assert (first.outcome, first.recovery, first.lost) == ("abort: training did not go on", "–", "–")
    assert [row.lost for row in others] == ["3.25", "see worker-1"]
    assert others[0].outcome == "continue: 7 of 8 workers, from step 120"


def test_goodput_is_stated_from_the_highest_to_the_lowest(summary_of: Callable[..., RunSummary]) -> None:
    """The claim about the largest part is about the lowest goodput."""
    summary = summary_of(changed("a", 0.4), changed("b", 0.8) | {"node_losses": [LOSS, LOSS]})

    (sentence,) = describe_goodput(replace(summary, engine="local"))

    assert sentence == (
        "goodput is 80.0% (2 failures) with ring on 8 workers (b) and 40.0% (no failure) with ring on 8 workers (a) "
        "(nodes were lost 2 times in 2 trials); the largest other part of the last is lost steps (50.0%)"
    )


def failing(share: float, policy: str, interval_s: float | None) -> dict[str, Any]:
    condition = f"{policy} {interval_s}"
    return changed(condition, share, policy) | {"failure_interval_s": interval_s, "node_losses": [LOSS]}


def test_headline_is_the_goodput_for_each_failure_rate(summary_of: Callable[..., RunSummary]) -> None:
    """The question of a scenario with failures is which policy keeps most of the time, not which one learns best."""
    summary = summary_of(
        failing(0.9, "continue", 60.0), failing(0.5, "restore", 20.0), failing(0.8, "restore", 60.0),
        failing(0.6, "continue", 20.0),
    )  # fmt: skip

    assert headline_sentences(summary)[0] == (
        "With a failure every 20.0 s on average, goodput is 60.0% with continue and 50.0% with restore; "
        "with a failure every 60.0 s on average, goodput is 90.0% with continue and 80.0% with restore."
    )
    assert goodput_finding(summary_of(failing(0.9, "continue", None))) == "goodput is 90.0% with continue"


def test_goodput_is_no_headline_if_a_group_has_none(summary_of: Callable[..., RunSummary]) -> None:
    """Neither is it if no node was lost: gaps between steps and checkpoints then decide it."""
    unknown = failing(0.8, "restore", 20.0) | {"goodput": UNKNOWN_GOODPUT}

    assert goodput_finding(summary_of(failing(0.9, "continue", 20.0), unknown)) == ""
    assert goodput_finding(summary_of(failing(0.9, "continue", 20.0) | {"node_losses": []})) == ""


def test_many_goodputs_are_a_range(summary_of: Callable[..., RunSummary]) -> None:
    summary = summary_of(
        *(changed(name, share) for name, share in zip("abcde", (0.5, 0.9, 0.6, 0.7, 0.8), strict=True))
    )

    sentence, _ = describe_goodput(summary)

    begin = (
        "goodput is 90.0% (no failure) with ring on 8 workers (b) and 50.0% (no failure) with ring on 8 workers (a); "
    )
    assert sentence.startswith(begin)
    assert "(no node was lost)" in sentence


def test_a_small_part_is_not_named(summary_of: Callable[..., RunSummary]) -> None:
    nearly_all = changed("a", 0.995, lost_steps=0.005, detection=0.0, recovery=0.0, checkpoints=0.0)

    sentence, _ = describe_goodput(summary_of(nearly_all))

    assert sentence == "goodput is 99.5% (no failure) with ring on 8 workers (a) (no node was lost)"


@pytest.mark.parametrize(("engine", "sentence_count"), [("simulated", 2), ("local", 1), ("docker", 1)])
def test_costs_that_virtual_time_leaves_out_are_named(
    summary_of: Callable[..., RunSummary], engine: str, sentence_count: int
) -> None:
    """Restarted processes and checkpoints take time on the other engines."""
    sentences = describe_goodput(replace(summary_of(changed("a", 0.8)), engine=engine))

    assert len(sentences) == sentence_count
    assert ("take no virtual time" in sentences[-1]) == (engine == "simulated")


def test_goodput_without_failures_has_no_interval(summary_of: Callable[..., RunSummary]) -> None:
    """100 % in all repeats would be an interval of no width, as if failures had been measured exactly."""
    repeats = [changed("a", share) | {"repeat": index, "seed": index} for index, share in enumerate((0.9, 0.8, 0.85))]
    failing = [repeat | {"node_losses": [LOSS]} for repeat in repeats]

    (without,), (with_failures,) = (make_strategy_table(summary_of(*each)).rows for each in (repeats, failing))

    assert without.goodput == "85.0%"
    assert with_failures.goodput.startswith("85.0% [")


def test_without_declared_failures_nothing_is_said(summary_of: Callable[..., RunSummary]) -> None:
    """Gaps between steps are no failures."""
    assert describe_goodput(summary_of(changed("a", 0.8, policy=None))) == []
    assert describe_goodput(summary_of(changed("a", 0.8) | {"baseline": True})) == []


def test_unknown_goodput_is_not_measured_and_has_a_reason(summary_of: Callable[..., RunSummary]) -> None:
    """A group with an unknown goodput gets no number, even if its other trials have one."""
    unknown = changed("a", None) | {"goodput": UNKNOWN_GOODPUT, "seed": 2}

    sentences = describe_goodput(summary_of(changed("a", 0.8), unknown))

    assert sentences == [f"goodput is not measured in 1 of 2 trials: {NO_STEPS}"]
