"""Compute utilisation: the share of the step time that is not blocked, its spread, and when it is not measured."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from analysis.figures import AnalysedRun
from analysis.figures.compute_utilisation import draw_compute_utilisation
from analysis.metrics.step_times.compute_utilisation import (
    NO_STEP_TIME,
    NO_STEPS,
    NOT_METERED,
    UNKNOWN_UTILISATION,
    measure_compute_utilisation,
)
from analysis.reading.run_folder import RunFolder
from analysis.reading.run_table import RunLogTables, TrialLogTables
from analysis.report.tables.strategy_table import make_strategy_table
from analysis.results.analyse_run import analyse_run
from analysis.results.data_frames import make_trial_frame

MakeTrial = Callable[..., TrialLogTables]
StepsLine = Callable[..., str]
COMMAND = {"workload_kind": "command", "workers": 2, "exchange_period": 1}


def step(compute_s: float, exchange_s: float, start_s: float = 0.0, **others: Any) -> dict[str, Any]:
    """A step of these phases."""
    step_s = compute_s + exchange_s + others.get("wait_s", 0.0)
    return {"start_s": start_s, "step_s": step_s, "compute_s": compute_s, "exchange_s": exchange_s} | others


def test_utilisation_is_the_share_of_the_step_time_that_is_not_blocked(
    make_trial: MakeTrial, steps_line: StepsLine
) -> None:
    """Steps of 1 s and 3 s with 0.5 s blocked each: 75 %, not the mean of both shares, 67 %."""
    trial = make_trial({"worker-0": [steps_line([step(0.5, 0.5), step(2.5, 0.5, start_s=1.0)], "worker-0")]})

    assert measure_compute_utilisation(trial).share == pytest.approx(0.75)


def test_waiting_for_slower_workers_is_blocked_time(make_trial: MakeTrial, steps_line: StepsLine) -> None:
    """The fast worker waits at the network, whether for bytes or for the worker that sends them later."""
    logs = {
        "worker-0": [steps_line([step(1.0, 3.0)], "worker-0")],
        "worker-1": [steps_line([step(3.0, 1.0)], "worker-1")],
    }

    utilisation = measure_compute_utilisation(make_trial(logs, workers=2))

    assert (utilisation.worker_min, utilisation.worker_max) == (pytest.approx(0.25), pytest.approx(0.75))
    assert utilisation.share == pytest.approx(0.5)


def test_the_update_and_the_rest_of_a_step_are_not_blocked(make_trial: MakeTrial, steps_line: StepsLine) -> None:
    """They take place on the worker: a faster network would not shorten them."""
    row = step(0.5, 0.2) | {"update_s": 0.2, "step_s": 1.0}

    assert measure_compute_utilisation(make_trial({"worker-0": [steps_line([row], "worker-0")]})).share == 0.8


def test_the_spread_is_over_whole_rounds(make_trial: MakeTrial, steps_line: StepsLine) -> None:
    """A step without exchange is always unblocked, so steps would show the period and not the spread of exchanges."""
    rows = [step(1.0, seconds) for seconds in (0.0, 0.5, 0.0, 2.0)]
    trial = make_trial({"worker-0": [steps_line(rows, "worker-0")]}, exchange_period=2)

    utilisation = measure_compute_utilisation(trial)

    low, high = 2 / 4, 2 / 2.5
    assert utilisation.share == pytest.approx(4 / 6.5)
    assert utilisation.round_p5 == pytest.approx(low + 0.05 * (high - low))
    assert utilisation.round_p95 == pytest.approx(low + 0.95 * (high - low))


def test_the_shorter_last_batch_of_an_epoch_is_left_out(make_trial: MakeTrial, steps_line: StepsLine) -> None:
    """It computes less beside the same exchange; `phase_seconds` leaves it out too."""
    rows = [step(0.6, 0.4), step(0.1, 0.4)]
    trial = make_trial({"worker-0": [steps_line(rows, "worker-0")]}, batch=10, train_samples=15)

    assert measure_compute_utilisation(trial).share == pytest.approx(0.6)


def test_without_steps_nothing_is_measured(make_trial: MakeTrial, steps_line: StepsLine) -> None:
    """A trial that failed early has no utilisation, and neither have steps that take no virtual time."""
    still = steps_line([step(0.0, 0.0)], "worker-0")

    assert measure_compute_utilisation(make_trial({})) == UNKNOWN_UTILISATION
    assert UNKNOWN_UTILISATION.reason == NO_STEPS
    assert measure_compute_utilisation(make_trial({"worker-0": [still]})).reason == NO_STEP_TIME


def test_a_command_whose_exchanges_are_not_metered_has_no_utilisation(
    make_trial: MakeTrial, steps_line: StepsLine
) -> None:
    """Only the ends of its steps are known, so all of their time is logged as compute: 100 % would be wrong."""
    logs = {name: [steps_line([step(1.0, 0.0)], name)] for name in ("worker-0", "worker-1")}

    utilisation = measure_compute_utilisation(make_trial(logs, **COMMAND))
    alone = measure_compute_utilisation(make_trial({"worker-0": logs["worker-0"]}, **COMMAND | {"workers": 1}))

    assert (utilisation.share, utilisation.reason) == (None, NOT_METERED)
    assert (alone.share, alone.reason) == (1.0, ""), "one process exchanges nothing"


@pytest.fixture
def local_sgd_run(run_simulated: Callable[..., RunLogTables], tmp_path: Path) -> AnalysedRun:
    """A run that exchanges in every step, and every six steps."""
    strategies = {f"every_{period}": {"kind": "local_sgd", "period": period} for period in (1, 6)}
    run_simulated(strategies, workload={"epochs": 2}, rate="100kbit")
    return AnalysedRun(*analyse_run(RunFolder(tmp_path)))


def test_rarer_exchanges_raise_the_utilisation_as_the_closed_form_predicts(local_sgd_run: AnalysedRun) -> None:
    """The closed form has the compute and the exchange of a mean step."""
    for table, result in zip(local_sgd_run.table.trials, local_sgd_run.summary.trials, strict=True):
        predicted = table.plan.predicted
        assert result.compute_utilisation.share == pytest.approx(predicted.compute_s / predicted.step_s, rel=0.02)

    every_step, every_six = (trial.compute_utilisation.share or 0.0 for trial in local_sgd_run.summary.trials)
    assert every_six > 2 * every_step > 0


def test_the_summary_the_table_and_the_data_frame_have_the_utilisation(
    local_sgd_run: AnalysedRun, pytestconfig: pytest.Config
) -> None:
    """All three are read by users, and the schema of the summary is public."""
    content = json.loads(json.dumps(local_sgd_run.summary.as_dict()))
    schema = json.loads((pytestconfig.rootpath / "analysis" / "results" / "summary.schema.json").read_text())
    shares = [trial["compute_utilisation"]["share"] for trial in content["trials"]]

    jsonschema.Draft202012Validator(schema).validate(content)
    assert list(make_trial_frame(content)["compute_utilisation"]) == shares
    cells = [row.compute_utilisation for row in make_strategy_table(local_sgd_run.summary).rows]
    assert [float(cell.removesuffix("%")) / 100 for cell in cells] == pytest.approx(shares, rel=0.005)


def test_the_table_and_the_figure_have_no_value_where_a_repeat_was_not_measured(local_sgd_run: AnalysedRun) -> None:
    """A mean over the other repeats would be that of other trials than the times beside it."""
    first, *others = local_sgd_run.summary.trials
    unknown = replace(local_sgd_run.summary, trials=[replace(first, compute_utilisation=UNKNOWN_UTILISATION), *others])
    nothing = [replace(trial, compute_utilisation=UNKNOWN_UTILISATION) for trial in unknown.trials]

    drawing = draw_compute_utilisation(AnalysedRun(local_sgd_run.table, unknown))

    assert make_strategy_table(unknown).rows[0].compute_utilisation == "not measured"
    assert drawing is not None
    assert list(drawing.data["strategy"]) == [others[0].strategy]
    assert "," not in drawing.title, "one group of trials has no lowest and highest utilisation"
    assert draw_compute_utilisation(AnalysedRun(local_sgd_run.table, replace(unknown, trials=nothing))) is None


def test_the_figure_names_the_highest_and_the_lowest_utilisation(local_sgd_run: AnalysedRun) -> None:
    """The title is the finding; the data have the spread that the lines show."""
    drawing = draw_compute_utilisation(local_sgd_run)

    assert drawing is not None
    assert drawing.title.startswith("Compute utilisation on 4 workers: ")
    assert drawing.title.index("with every_6") < drawing.title.index("with every_1")
    data = drawing.data.set_index("strategy")
    assert (data["worker_min"] <= data["compute_utilisation"]).all()
    assert (data["compute_utilisation"] <= data["worker_max"]).all()
    assert (data["round_p5"] <= data["round_p95"]).all()
