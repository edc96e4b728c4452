"""Rows that a node logs for the steps of a command."""

import json
from typing import Any

import pytest
from command_plans import plan_command

from services.commands.script_process.ensayo_meter.protocol import COLLECTIVE_COLUMNS
from services.commands.step_log import CommandStepLog
from services.runtime.clock import WallClock
from services.runtime.run_log import LOG_LINE_PREFIX, RunLog

STEP = {"kind": "step", "number": 0, "begin_s": 4.0, "end_s": 10.0, "exposed_s": 2.0, "hidden_s": 1.0}


@pytest.fixture
def lines() -> list[str]:
    """Return the lines that the node has written."""
    return []


@pytest.fixture
def step_log(lines: list[str]) -> CommandStepLog:
    """Return the log of rank 0, on a clock with two wall seconds per virtual second."""
    clock = WallClock(2.0)
    return CommandStepLog(plan_command(), 0, clock, RunLog("worker-0", clock, lines.append))


def logged_rows(lines: list[str], key: str) -> list[dict[str, Any]]:
    events = [json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in lines]
    return [
        dict(zip(event["value"]["columns"], row, strict=True))
        for event in events
        if event["key"] == key
        for row in event["value"]["rows"]
    ]


def test_a_step_is_logged_in_virtual_seconds(step_log: CommandStepLog, lines: list[str]) -> None:
    """The metering measures wall time; hidden communication is a part of compute."""
    step_log.add_step(STEP | {"collectives": []}, None)
    step_log.add_last_collectives(())

    (row,) = logged_rows(lines, "node_steps")
    assert {name: row[name] for name in ("step_s", "compute_s", "exchange_s", "hidden_s")} == {
        "step_s": 3.0,
        "compute_s": 2.0,
        "exchange_s": 1.0,
        "hidden_s": 0.5,
    }


def test_a_first_step_is_logged_without_the_time_before_the_training(
    step_log: CommandStepLog, lines: list[str]
) -> None:
    """Its rank has waited for a slower one to start; 2.5 s of the clock are 5 wall seconds."""
    step_log.add_step(STEP | {"collectives": []}, None, training_start_s=2.5)
    step_log.add_last_collectives(())

    (row,) = logged_rows(lines, "node_steps")
    assert {name: row[name] for name in ("step_s", "compute_s", "exchange_s")} == {
        "step_s": 2.5,
        "compute_s": 2.0,
        "exchange_s": 0.5,
    }
    assert step_log.last_step_end_s == 5.0


def test_a_step_that_a_line_marks_has_unknown_communication(step_log: CommandStepLog, lines: list[str]) -> None:
    """Its collectives are not measured: zero would claim that nothing overlaps."""
    step_log.add_unmetered_step(1.0)
    step_log.add_unmetered_step(2.0)
    step_log.add_last_collectives(())

    (row,) = logged_rows(lines, "node_steps")
    assert row["hidden_s"] is None


def call_row(size: int, *, is_extra: bool = False, operation: str = "all_reduce") -> list[Any]:
    """Return the row of a collective of two ranks."""
    values = {"operation": operation, "bytes": size, "dtype": "float32", "group_size": 2, "is_asynchronous": False}
    times = {"launch_s": 5.0, "begin_s": 5.0, "end_s": 6.0, "is_gloo_fallback": False, "is_extra": is_extra}
    return [(values | times).get(column) for column in COLLECTIVE_COLUMNS]


def test_bytes_of_collectives_that_no_dry_run_has_are_counted_apart(step_log: CommandStepLog) -> None:
    """The plan predicts the usual step: other bytes must not make the trial invalid."""
    for number in range(4):
        calls = [call_row(1000), call_row(8, is_extra=number == 3)] if number > 1 else [call_row(900)]
        step_log.add_step(STEP | {"number": number, "collectives": calls}, None)
    step_log.add_last_collectives([call_row(4)])

    assert step_log.scheduled_bytes == 2 * 1000 + 8
    assert step_log.payload_bytes == 2 * 900 + 2 * 1000 + 2 * 8 + 4


def test_collectives_after_the_last_step_are_no_step(step_log: CommandStepLog, lines: list[str]) -> None:
    """A barrier at the end would otherwise count as a call of one step more than there were."""
    step_log.add_step(STEP | {"collectives": [call_row(1000)]}, None)
    step_log.add_last_collectives([call_row(0, operation="barrier")])

    assert [(row["step"], row["operation"]) for row in logged_rows(lines, "node_collectives")] == [
        (0, "all_reduce"),
        (-2, "barrier"),
    ]


def test_measured_steps_replace_those_that_lines_mark(step_log: CommandStepLog, lines: list[str]) -> None:
    """A script that writes a line for each step and uses PyTorch has each step once."""
    for end_s in (1.0, 2.0, 3.0):
        step_log.add_unmetered_step(end_s)
    step_log.add_step(STEP | {"collectives": []}, None)
    step_log.add_unmetered_step(4.0)
    step_log.add_last_collectives(())

    (row,) = logged_rows(lines, "node_steps")
    assert (row["step"], row["step_s"], step_log.steps) == (0, 3.0, 1)
