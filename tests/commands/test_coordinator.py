"""Coordinator of a command: gate, common start, metrics and end."""

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import pytest
from command_plans import plan_command

from services.commands.coordinator import CommandCoordinator
from services.plan import CommandPlan
from services.runtime.clock import VirtualClock, VirtualTimeLoop
from services.runtime.run_log import LOG_LINE_PREFIX, RunLog
from services.schema.errors import AuthenticationError

METRICS = {"accuracy": "accuracy=(.*)"}
TARGET = {"metric": "accuracy", "at_least": 0.9}


def run_in_virtual_time(coroutine: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(coroutine)


def make_coordinator(plan: CommandPlan) -> tuple[CommandCoordinator, list[str]]:
    lines: list[str] = []
    return CommandCoordinator(plan, VirtualClock(), RunLog("", VirtualClock(), lines.append)), lines


def events(lines: list[str], key: str) -> list[dict[str, Any]]:
    parsed = [json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in lines]
    return [event for event in parsed if event["key"] == key]


def test_the_training_starts_with_the_last_first_step() -> None:
    """A command must not send before the links are proven; its start-up must not count as training time."""

    async def script() -> None:
        plan = plan_command()
        coordinator, lines = make_coordinator(plan)
        joins = [asyncio.ensure_future(coordinator.join(f"worker-{rank}", plan.sha256)) for rank in range(2)]
        await asyncio.sleep(1)
        assert not any(join.done() for join in joins)

        await coordinator.open_start_gate()
        await asyncio.gather(*joins)
        first = asyncio.ensure_future(coordinator.await_training_start())
        coordinator.report_first_step("worker-0", 0.5)
        coordinator.report_metrics({"accuracy": 0.1}, step=0, samples=0)
        await asyncio.sleep(5)
        assert not first.done()
        assert not events(lines, "run_start")

        coordinator.report_first_step("worker-1", 4.0)
        assert await first == 4.0
        assert [events(lines, key)[0]["time_ms"] for key in ("run_start", "eval_metrics")] == [4000.0, 4000.0]

    run_in_virtual_time(script())


def test_a_node_that_makes_no_step_does_not_delay_the_start() -> None:
    """A rank may only send data: waiting for its first step would never end."""

    async def script() -> None:
        coordinator, lines = make_coordinator(plan_command())
        coordinator.report_first_step("worker-0", 0.5)
        await asyncio.sleep(2)

        assert coordinator.complete_first_step() == 0.5
        assert events(lines, "run_start")[0]["time_ms"] == 500.0

    run_in_virtual_time(script())


@pytest.mark.parametrize(("step_ends_s", "end_ms"), [((8.0, 9.0), 9000.0), ((1.0, 2.0), 3000.0), ((0.0, 0.0), 20000.0)])
def test_the_training_ends_with_the_last_step_or_evaluation(step_ends_s: tuple[float, float], end_ms: float) -> None:
    """The exit of the commands is no training. If no step was measured, the training ends with the commands."""

    async def script() -> None:
        coordinator, lines = make_coordinator(plan_command())
        for rank in range(2):
            coordinator.report_first_step(f"worker-{rank}", 0.0)
        await asyncio.sleep(3)
        coordinator.report_metrics({"accuracy": 0.1}, step=0, samples=0)
        await asyncio.sleep(17)
        leaves = [coordinator.leave(f"worker-{rank}", 40, 640, end_s) for rank, end_s in enumerate(step_ends_s)]
        await asyncio.gather(*leaves)

        assert events(lines, "run_stop")[0]["time_ms"] == end_ms

    run_in_virtual_time(script())


def test_a_node_with_another_plan_can_not_join() -> None:
    """It would run another command."""

    async def script() -> None:
        coordinator, _ = make_coordinator(plan_command())
        with pytest.raises(AuthenticationError, match="differs"):
            await coordinator.join("worker-0", "other")
        with pytest.raises(AuthenticationError, match="server-0 is not a node"):
            await coordinator.join("server-0", "other")

    run_in_virtual_time(script())


@pytest.mark.parametrize(
    ("values", "status", "reason", "is_reached"),
    [
        ([0.5, 0.95, 0.8], "success", "all commands ended", True),
        ([0.5], "aborted", "target missed", False),
        ([0.5, float("nan")], "aborted", "training diverged: accuracy is nan", False),
    ],
)
def test_the_end_of_the_run_states_whether_the_target_was_reached(
    values: list[float], status: str, reason: str, is_reached: bool
) -> None:
    """A value below the target after it was reached does not take it back: MLPerf counts the first time."""

    async def script() -> None:
        plan = plan_command(metrics=METRICS, target=TARGET)
        coordinator, lines = make_coordinator(plan)
        for rank in range(2):
            coordinator.report_first_step(f"worker-{rank}", 0.0)
        for number, value in enumerate(values):
            coordinator.report_metrics({"accuracy": value}, step=number, samples=16 * number)
        first = asyncio.ensure_future(coordinator.leave("worker-0", 40, 640, 1.0))
        await asyncio.sleep(3)
        assert not first.done()
        await coordinator.leave("worker-1", 40, 640, 1.0)

        await first
        (end,) = events(lines, "run_stop")
        metadata = end["metadata"]
        assert (metadata["status"], metadata["reason"], metadata["target_reached"]) == (status, reason, is_reached)
        assert (metadata["step"], metadata["samples_count"]) == (40, 1280)

    run_in_virtual_time(script())


def test_the_end_of_a_command_is_the_cause_of_ends_that_lost_their_connection() -> None:
    """Their agents may report first: the closed connection is seen before the exit code."""

    async def script() -> None:
        coordinator, _ = make_coordinator(plan_command())
        lost = asyncio.ensure_future(
            coordinator.report_process_end("worker-0", "worker-0 lost worker-1", has_lost_connection=True)
        )
        await asyncio.sleep(1)
        assert not lost.done()
        assert await coordinator.report_process_end("worker-1", "worker-1 ended", has_lost_connection=False) == ""

        assert await lost == "worker-1 ended"

    run_in_virtual_time(script())


def test_a_lost_connection_is_the_cause_of_no_other_end() -> None:
    """If all ranks have lost their connections, none of their commands has ended by itself."""

    async def script() -> None:
        coordinator, _ = make_coordinator(plan_command())
        reports = [
            coordinator.report_process_end(f"worker-{rank}", "lost", has_lost_connection=True) for rank in range(2)
        ]

        assert await asyncio.gather(*reports) == ["", ""]

    run_in_virtual_time(script())
