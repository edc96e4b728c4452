"""Progress of a run, from literal events and a clock that is set by hand."""

from typing import Any

import pytest

from analysis.report.wording import format_bytes
from ensayo.terminal.progress_display import describe_remaining_time
from ensayo.terminal.run_progress import RunProgress
from ensayo.terminal.terminal_text import format_duration, format_step_time, trial_title
from services.cluster.addresses import DummyAddresses
from services.plan import Plan, make_plan
from services.scenario.scenario import Scenario

pytestmark = pytest.mark.without_nodes

SCENARIO = Scenario.decode(
    {
        "name": "small",
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "linear"},
            "optimiser": {"kind": "sgd", "rate": 0.1},
            "batch": 1438,
            "epochs": 4,
        },
        "strategies": {"ring": {"kind": "all_reduce"}},
        "sweep": {"workers": [2, 4]},
        "baseline": False,
    }
)


class ManualClock:
    """A clock that stands still until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def plans() -> list[Plan]:
    return [make_plan(trial, "run", "simulated", DummyAddresses()) for trial in SCENARIO.trials()]


def event(key: str, time_ms: float, value: Any = None, **metadata: object) -> dict[str, Any]:
    return {"key": key, "value": value, "time_ms": time_ms, "metadata": metadata}


def test_the_rate_of_a_continued_trial_counts_only_its_own_samples(plans: list[Plan]) -> None:
    """Samples before the checkpoint took time in another attempt."""
    progress = RunProgress(plans, ManualClock())
    progress.start_trial()

    progress.record_log_event(event("run_start", 5000))
    progress.record_log_event(event("training_continued", 5000, {}, samples_count=10_000, step=7))
    progress.record_log_event(event("eval_metrics", 6000, {"accuracy": 0.5}, samples_count=11_438, step=8))

    assert progress.trial_progress.samples_per_s == pytest.approx(1438.0)


def test_the_rate_is_samples_per_virtual_second_since_training_began(plans: list[Plan]) -> None:
    """Initialisation does not count as training."""
    progress = RunProgress(plans, ManualClock())
    progress.start_trial()

    progress.record_log_event(event("init_start", 0))
    progress.record_log_event(event("run_start", 5000))
    progress.record_log_event(event("eval_metrics", 6000, {"accuracy": 0.5, "loss": 2.0}, samples_count=1438, step=1))
    progress.record_log_event(event("train_loss", 6000, 1.5, samples_count=1438, step=1))

    assert progress.finished_steps_of_trial == 1
    assert str(progress.trial_progress) == "loss 2, accuracy 0.5, 1,438 samples/s"


def test_remaining_time_is_estimated_from_this_and_ended_trials(plans: list[Plan]) -> None:
    """A plan in virtual time does not give wall-clock time; trials that have ended do."""
    progress = RunProgress(plans, clock := ManualClock())

    progress.start_trial()
    assert progress.remaining_s() is None
    clock.now = 10
    progress.record_log_event(event("eval_metrics", 1, {}, samples_count=1438))
    assert progress.remaining_s() == 30 + 40
    progress.finish_trial(10)
    assert progress.remaining_s() == 10

    progress.start_trial()
    clock.now = 12
    assert progress.remaining_s() == 8


def test_at_the_end_of_the_first_trial_the_other_trials_are_left(plans: list[Plan]) -> None:
    """`0.0 s left` after the first of several trials is wrong; per sample they take about as long as the first."""
    longer = plans[1].model_copy(update={"epochs": 2 * plans[1].epochs})
    progress = RunProgress([plans[0], longer], clock := ManualClock())
    progress.start_trial()
    clock.now = 8

    progress.record_log_event(event("eval_metrics", 1, {}, samples_count=4 * 1438))

    assert progress.remaining_s() == 16


def test_the_remaining_time_of_trials_of_unknown_length_is_not_estimated(plans: list[Plan]) -> None:
    """The length of a command is known when it has ended."""
    progress = RunProgress([plans[0], plans[1].model_copy(update={"epochs": 0})], clock := ManualClock())
    progress.start_trial()
    clock.now = 8
    progress.record_log_event(event("eval_metrics", 1, {}, samples_count=2 * 1438))

    before = progress.remaining_s()
    progress.finish_trial(20)

    assert before is None
    assert progress.remaining_s() == 20


@pytest.mark.parametrize(("seconds", "text"), [(None, ""), (12.0, "12 s left"), (0.0, "0.0 s left")])
def test_the_remaining_time_is_shown_where_it_is_known(seconds: float | None, text: str) -> None:
    """No estimate is better than a wrong one."""
    assert describe_remaining_time(seconds) == text


def test_a_trial_that_runs_longer_than_its_plan_has_nothing_left(plans: list[Plan]) -> None:
    """Asynchronous workers end together with a sample or two too many."""
    progress = RunProgress(plans[:1], clock := ManualClock())
    progress.start_trial()
    clock.now = 3

    progress.record_log_event(event("run_stop", 1, samples_count=5 * 1438))

    assert progress.finished_steps_of_trial == plans[0].steps
    assert progress.remaining_s() == 0


def test_titles_name_the_settings_that_distinguish_trials(plans: list[Plan]) -> None:
    """Titles are printed below each other."""
    assert [trial_title(plan) for plan in plans] == ["ring, 2 workers", "ring, 4 workers"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (9.96, "10.0 s"), (59.4, "59 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")]
)
def test_durations_are_formatted_in_usual_units(seconds: float, text: str) -> None:
    """7500 s is hard to read."""
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0125, "12.5 ms"),
        (0.9994, "999 ms"),
        (0.9999, "1 s"),
        (112.3, "112 s"),
        (999.4, "999 s"),
        (1200, "20 min 0 s"),
    ],
)
def test_times_of_a_step_have_no_exponent(seconds: float, text: str) -> None:
    """A step that sends a large payload takes minutes; 1.12e+05 ms is hard to read."""
    assert format_step_time(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (999, "999 B"), (1_220_000, "1.22 MB")])
def test_sizes_have_decimal_prefixes(count: int, text: str) -> None:
    """Link rates are decimal, so what travels on them is too."""
    assert format_bytes(count) == text
