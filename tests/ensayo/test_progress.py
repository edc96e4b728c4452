"""Display of progress, on a terminal and without one."""

import io
from pathlib import Path

import pytest
from command_plans import plan_command
from rich.console import Console

from compose.scenario_files.load import find_scenario, load_scenario
from ensayo.terminal.progress_display import PlainLineDisplay, ProgressBarDisplay, RunProgressDisplay, SilentDisplay
from ensayo.terminal.terminal_text import trial_title
from services.cluster.addresses import DummyAddresses
from services.plan import make_plan

pytestmark = pytest.mark.without_nodes


def display_output(kind: type[RunProgressDisplay]) -> str:
    """Everything that a display writes in a run of one trial."""
    scenario = load_scenario(find_scenario("smoke"))
    plan = make_plan(scenario.trials()[0], "run", "simulated", DummyAddresses())
    console = Console(file=io.StringIO(), force_terminal=kind is ProgressBarDisplay, width=120)
    display = kind(console, clock=lambda: 0.0)

    display.engine_preparation_started("building images")
    display.run_started(scenario, "simulated", "as asked", (plan,), Path("runs/smoke/1"))
    display.trial_started(plan, 1, 1)
    display.coordinator_event_logged(plan, {"key": "run_start", "time_ms": 0.0, "metadata": {}})
    metadata = {"samples_count": 1438, "step": 23}
    display.coordinator_event_logged(
        plan, {"key": "eval_metrics", "value": {"accuracy": 0.5}, "time_ms": 1000.0, "metadata": metadata}
    )
    display.trial_ended(plan, "failed", 2.0)
    display.close()
    display.close()

    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_diverged_trial_is_not_called_a_success() -> None:
    """Its nodes ran to their end, so the engine reports success; the log of the coordinator has the divergence."""
    scenario = load_scenario(find_scenario("smoke"))
    plan = make_plan(scenario.trials()[0], "run", "simulated", DummyAddresses())
    file = io.StringIO()
    display = PlainLineDisplay(Console(file=file, width=120), clock=lambda: 0.0)
    display.run_started(scenario, "simulated", "as asked", (plan, plan), Path("runs/smoke/1"))
    for number, diverged in ((1, True), (2, False)):
        display.trial_started(plan, number, 2)
        display.coordinator_event_logged(
            plan, {"key": "run_stop", "time_ms": 1000.0, "metadata": {"diverged": diverged}}
        )
        display.trial_ended(plan, "success", 2.0)

    ends = [line for line in file.getvalue().splitlines() if line.startswith("  ")]
    assert ends == ["  ring, 2 workers: diverged, 2.0 s", "  ring, 2 workers: success, 2.0 s"]


def test_the_end_of_a_trial_names_the_step_of_the_first_evaluation_that_reached_the_target() -> None:
    """Asynchronous trials evaluate once more after the target; that step is not the one at which it was reached."""
    scenario = load_scenario(find_scenario("quickstart"))  # its target is an accuracy of 0.94
    plan = make_plan(scenario.trials()[0], "run", "simulated", DummyAddresses())
    file = io.StringIO()
    display = PlainLineDisplay(Console(file=file, width=120), clock=lambda: 0.0)
    display.run_started(scenario, "simulated", "as asked", (plan, plan), Path("runs/quickstart/1"))
    samples_per_step = plan.epochs * plan.train_samples / plan.steps
    for number, accuracies in ((1, (0.9, 0.95, 0.93)), (2, (0.9, 0.93))):
        display.trial_started(plan, number, 2)
        for k, accuracy in enumerate(accuracies, start=1):
            event = {"key": "eval_metrics", "value": {"accuracy": accuracy}, "time_ms": 1.0}
            metadata = {"samples_count": 5 * k * samples_per_step}
            display.coordinator_event_logged(plan, event | {"metadata": metadata})
        display.trial_ended(plan, "success", 2.0)

    ends = [line for line in file.getvalue().splitlines() if "success" in line]
    title = trial_title(plan)
    assert ends == [
        f"  {title}: success, target reached at step 10 of {plan.steps}, 2.0 s",
        f"  {title}: success, target missed, 2.0 s",
    ]


def test_the_step_of_a_command_is_the_one_that_its_evaluation_states() -> None:
    """Its number of steps is not known, and a line of its output may state only some metrics."""
    plan = plan_command(
        metrics={"accuracy": "a=(.*)", "loss": "l=(.*)"}, target={"metric": "accuracy", "at_least": 0.9}
    )
    file = io.StringIO()
    display = PlainLineDisplay(Console(file=file, width=120), clock=lambda: 0.0)
    display.run_started(load_scenario(find_scenario("smoke")), "local", "as asked", (plan,), Path("runs/command/1"))
    display.trial_started(plan, 1, 1)
    for step, metrics in ((7, {"loss": 0.1}), (8, {"accuracy": 0.95}), (9, {"accuracy": 0.97})):
        event = {"key": "eval_metrics", "value": metrics, "time_ms": 1.0, "metadata": {"step": step}}
        display.coordinator_event_logged(plan, event)
    display.trial_ended(plan, "success", 2.0)

    assert file.getvalue().splitlines()[-4:] == [
        "  step 7: loss 0.1",
        "  step 8: accuracy 0.95",
        "  step 9: accuracy 0.97",
        f"  {trial_title(plan)}: success, target reached at step 8, 2.0 s",
    ]


def test_a_repeated_trial_is_shown_with_its_reason_and_starts_again() -> None:
    scenario = load_scenario(find_scenario("smoke"))
    plan = make_plan(scenario.trials()[0], "run", "simulated", DummyAddresses())
    file = io.StringIO()
    display = PlainLineDisplay(Console(file=file, width=120), clock=lambda: 0.0)
    display.run_started(scenario, "local", "as asked", (plan, plan), Path("runs/smoke/1"))
    display.trial_started(plan, 1, 2)
    display.coordinator_event_logged(plan, {"key": "run_start", "time_ms": 0.0, "metadata": {"samples_count": 99}})
    display.trial_disturbed(plan, "9.0% of the deadlines were missed", "2 of 3", 5.0)

    assert display.progress.current_plan is plan
    assert display.progress.trial_progress.sample_count == 0
    assert file.getvalue().splitlines()[-1] == (
        "  this host may have disturbed the trial: 9.0% of the deadlines were missed; attempt 2 of 3 follows after 5 s"
    )


def test_a_resumed_run_without_remaining_trials_says_that_only_its_report_is_written() -> None:
    """No engine runs anything, so none is named."""
    file = io.StringIO()
    display = PlainLineDisplay(Console(file=file, width=120), clock=lambda: 0.0)

    display.run_started(load_scenario(find_scenario("smoke")), "simulated", "as asked", (), Path("runs/smoke/1"))

    assert file.getvalue() == "smoke: no trials left to run; writing the report of runs/smoke/1\n"


def test_without_a_terminal_there_are_plain_lines() -> None:
    """Logs of continuous integration must be readable."""
    assert display_output(PlainLineDisplay).splitlines() == [
        "building images",
        "smoke: 1 trial, engine simulated (as asked), into runs/smoke/1",
        "[1/1] ring, 2 workers",
        "  step 23/46: accuracy 0.5, 1,438 samples/s, 0.0 s left",
        "  ring, 2 workers: failed, 2.0 s",
    ]


def test_a_terminal_keeps_the_lines_of_ended_trials_and_gets_its_cursor_back() -> None:
    """The terminal decides how often bars are drawn; the line of each ended trial is always there."""
    text = display_output(ProgressBarDisplay)

    assert "[1/1] ring, 2 workers" in text
    assert "ring, 2 workers: failed, 2.0 s\n" in text
    assert "\x1b[?25h" in text


def test_the_silent_display_prints_nothing() -> None:
    """A script can ask for no output."""
    assert not display_output(SilentDisplay)
