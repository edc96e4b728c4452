"""Section "Events" of the report: events that were due, and those of them that had no effect."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.reading.run_folder import RunFolder
from analysis.report.report import write_report
from analysis.report.tables.event_table import MAX_EQUAL_EVENTS, make_event_table
from analysis.results.analyse_run import analyse_run
from analysis.results.summary import RunSummary

RunSimulated = Callable[..., Any]
RING = {"ring": {"kind": "all_reduce"}}
REJOIN = {"on_failure": "rejoin", "restart_delay": "200ms", "heartbeat_timeout": "200ms"}
KILL = {"kind": "kill", "of": ["worker-1"], "at": {"time": "600ms"}}
AGAIN = KILL | {"at": {"time": "650ms"}}


@pytest.fixture
def killed_twice(run_simulated: RunSimulated, tmp_path: Path) -> tuple[RunFolder, RunSummary]:
    """A run whose worker-1 is killed again while it is away; a last event is planned for after the training."""
    late = {"kind": "slowdown", "of": ["worker-0"], "factor": 2.0, "at": {"time": "9s"}}
    events = [KILL, AGAIN, late]
    run_simulated(RING, scenario_overrides={"events": events, "recovery": REJOIN})
    folder = RunFolder(tmp_path)
    return folder, analyse_run(folder)[1]


def test_a_kill_of_a_lost_node_has_no_effect(killed_twice: tuple[RunFolder, RunSummary]) -> None:
    _, summary = killed_twice

    first, second, late = summary.trials[0].events

    assert (first.applied_s, first.no_effect_reason) == (pytest.approx(0.6), "")
    assert (second.applied_s, second.no_effect_reason) == (None, "the node was already lost")
    assert (first.was_due, second.was_due, late.was_due) == (True, True, False)


def test_the_table_has_the_events_that_were_due(killed_twice: tuple[RunFolder, RunSummary]) -> None:
    folder, summary = killed_twice

    table = make_event_table(summary.trials)
    page = write_report(folder.path).read_text()

    assert [row.kind for row in table.rows] == ["kill", "kill"]
    assert table.rows[1].applied == "no effect: the node was already lost"
    assert "no effect: the node was already lost" in page
    assert "1 more planned event was not due before training ended." in page
    assert "a dash means that training ended before" not in page


def test_the_table_shortens_many_equal_events(killed_twice: tuple[RunFolder, RunSummary]) -> None:
    (trial,) = killed_twice[1].trials
    many = [replace(trial.events[0], number=number) for number in range(MAX_EQUAL_EVENTS + 5)]

    table = make_event_table([replace(trial, events=[*many, replace(trial.events[0], nodes=["worker-2"])])])

    assert (len(table.rows), table.left_out_count, table.later_count) == (MAX_EQUAL_EVENTS + 1, 5, 0)
