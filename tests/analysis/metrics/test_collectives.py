"""Collectives of commands, beside their closed forms."""

from collections.abc import Callable
from typing import Any

import pytest

from analysis.checks.network.bytes_on_wire import check_bytes_sent
from analysis.checks.training.command_pacing import check_command_pacing
from analysis.checks.verdict import VerdictLevel
from analysis.metrics.collectives import count_extra_collectives, measure_collectives
from analysis.reading.run_table import TrialLogTables
from services.commands.step_log import LOGGED_COLLECTIVE_COLUMNS

MakeTrial = Callable[..., TrialLogTables]
Line = Callable[..., str]

CALL = {"operation": "all_reduce", "bytes": 4, "dtype": "float32", "group_size": 2, "is_asynchronous": False}
DEFAULTS = {
    "launch_s": 0,
    "begin_s": 0,
    "end_s": 1,
    "is_gloo_fallback": False,
    "is_extra": False,
    "root_rank": None,
    "reduce_operation": None,
}
PLAN = {
    "workers": 2,
    "workload_kind": "command",
    "step_profile": {"collectives": [CALL, CALL | {"dtype": "int32"}]},
    "collective_s": [0.1, 0.2],
    "nodes": [{"name": f"worker-{rank}", "role": "worker", "rank": rank, "throughput": 1.0} for rank in range(2)],
}


@pytest.fixture
def collectives_line(line: Line) -> Callable[..., str]:
    """Return a function that makes the log line of a node's calls, each of which takes some seconds."""

    def make(node: str, *calls: dict[str, Any]) -> str:
        rows = [[(CALL | DEFAULTS | call)[name] for name in LOGGED_COLLECTIVE_COLUMNS] for call in calls]
        return line("node_collectives", {"columns": LOGGED_COLLECTIVE_COLUMNS, "rows": rows}, node=node)

    return make


def both(make_line: Callable[..., str], *calls: dict[str, Any]) -> dict[str, list[str]]:
    return {node: [make_line(node, *calls)] for node in ("worker-0", "worker-1")}


def test_an_extra_collective_is_neither_compared_nor_moves_others(
    make_trial: MakeTrial, collectives_line: Line
) -> None:
    """An evaluation reduces a number of the kind that the step reduces, one rank twice."""
    own = [{"step": step, "end_s": 0.5} for step in (2, 3)]
    extra = {"step": 2, "is_extra": True, "end_s": 90.0}
    logs = {
        "worker-0": [collectives_line("worker-0", extra, extra, *own)],
        "worker-1": [collectives_line("worker-1", extra, *own)],
    }

    trial = make_trial(logs, **PLAN)

    (times,) = measure_collectives(trial)
    assert (times.calls_per_step, times.median_s, times.predicted_s) == (1, 0.5, 0.1)
    assert count_extra_collectives(trial) == 2


def test_collectives_of_another_type_are_compared_on_their_own(make_trial: MakeTrial, collectives_line: Line) -> None:
    """A compressor halves numbers of one type and not those of another."""
    calls = [{"step": 2, "dtype": dtype} for dtype in ("float32", "int32")]

    times = measure_collectives(make_trial(both(collectives_line, *calls), **PLAN))

    assert [(each.dtype, each.predicted_s) for each in times] == [("float32", 0.1), ("int32", 0.2)]


def test_extra_collectives_of_the_first_steps_are_not_counted(make_trial: MakeTrial, collectives_line: Line) -> None:
    """DDP has other buckets there."""
    calls = [{"step": step, "is_extra": True} for step in (0, 1)]

    assert count_extra_collectives(make_trial(both(collectives_line, *calls), **PLAN)) == 0


def test_paced_steps_without_the_collectives_of_the_dry_run_are_degraded(
    make_trial: MakeTrial, collectives_line: Line, steps_line: Line, stop_line: Line
) -> None:
    """They were not launched at their scheduled times, so they overlap more with the compute than declared."""

    def verdict(*types: str) -> Any:
        calls = [{"step": 2, "dtype": dtype} for dtype in types]
        logs = {
            node: [*lines, steps_line([{}, {}, {}], node), stop_line(node, steps=3, deadlines=3)]
            for node, lines in both(collectives_line, *calls).items()
        }
        return check_command_pacing(make_trial(logs, **PLAN))

    assert verdict("float32", "int32").level == VerdictLevel.VALID
    assert verdict("float32").level == VerdictLevel.DEGRADED
    assert "1 steps of worker-0 lack collectives of the dry run" in verdict("float32").reason


def test_calls_per_step_are_those_of_steps(make_trial: MakeTrial, collectives_line: Line) -> None:
    """Collectives before the first step and after the last one have no step, and are extra in none."""
    calls = [{"step": step} for step in (-1, 0, 1, 2, 3, 4, -2)]

    trial = make_trial(both(collectives_line, *calls, {"step": -2, "is_extra": True}), **PLAN)

    (times,) = measure_collectives(trial)
    assert times.calls_per_step == 1
    assert count_extra_collectives(trial) == 0


@pytest.mark.parametrize(("scheduled", "level"), [(100, VerdictLevel.VALID), (110, VerdictLevel.INVALID)])
def test_bytes_of_extra_collectives_are_not_compared(
    make_trial: MakeTrial, steps_line: Line, stop_line: Line, scheduled: int, level: VerdictLevel
) -> None:
    """The plan predicts the usual step: the start of DDP and evaluations send other bytes."""
    counted = {"payload_bytes_sent": 2000, "scheduled_bytes_sent": scheduled}
    logs = {
        node: [steps_line([{}, {}, {}], node), stop_line(node, steps=3, **counted)] for node in ("worker-0", "worker-1")
    }

    trial = make_trial(logs, **PLAN, bytes_per_step={"worker-0": 100, "worker-1": 100})

    assert check_bytes_sent(trial).level == level
