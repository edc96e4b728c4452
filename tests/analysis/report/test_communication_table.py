"""Hidden and exposed communication of commands in the report."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from analysis.reading.run_folder import RunFolder
from analysis.reading.run_table import TrialLogTables
from analysis.report.report import write_report
from analysis.report.tables.communication_table import make_communication_table
from analysis.results.measure_trial import measure_trial
from analysis.results.trial_result import TrialResult

HEADING = "Hidden and exposed communication per step"
StepsLine = Callable[..., str]


@pytest.fixture
def measured(make_trial: Callable[..., TrialLogTables], steps_line: StepsLine) -> Callable[..., TrialResult]:
    """Return a function that measures a trial of two workers whose steps have these columns."""

    def measure(**columns: float) -> TrialResult:
        logs = {name: [steps_line([columns], name)] for name in ("worker-0", "worker-1")}
        return measure_trial(make_trial(logs, workers=2), [])

    return measure


def test_hidden_communication_is_a_part_of_the_compute(measured: Callable[..., TrialResult]) -> None:
    """Compute and exposed communication fill the step, so hidden communication is no third part."""
    (row,) = make_communication_table([measured(compute_s=0.7, exchange_s=0.3, step_s=1.0, hidden_s=0.1)])

    assert (row.step_s, row.compute_s, row.hidden_s, row.exposed_s) == pytest.approx((1.0, 0.7, 0.1, 0.3))
    assert row.hidden_share == pytest.approx(0.25)


def test_trials_that_did_not_measure_it_have_no_row(measured: Callable[..., TrialResult]) -> None:
    """Strategies without overlap log no hidden communication; one rank has none."""
    trial = measured(hidden_s=0.1)

    assert make_communication_table([measured(), replace(trial, workers=1)]) == ()
    assert len(make_communication_table([trial])) == 1


def test_a_step_without_communication_has_no_hidden_share(measured: Callable[..., TrialResult]) -> None:
    """A share of nothing is not zero."""
    (row,) = make_communication_table([measured(compute_s=1.0, exchange_s=0.0, hidden_s=0.0)])

    assert row.hidden_share is None


def _log_hidden_seconds(folder: RunFolder, hidden_s: float) -> None:
    """Add the column `hidden_s` to the logged steps of all trials."""
    for trial in folder.trial_folders:
        for path in trial.log_paths:
            lines = []
            for line in path.read_text().splitlines():
                prefix, _, text = line.partition("{")
                event: dict[str, Any] = json.loads("{" + text)
                if event["key"] == "node_steps":
                    event["value"]["columns"].append("hidden_s")
                    event["value"]["rows"] = [[*row, hidden_s] for row in event["value"]["rows"]]
                lines.append(prefix + json.dumps(event))
            path.write_text("\n".join(lines) + "\n")


def test_the_report_shows_hidden_communication_where_it_was_measured(make_run: Callable[..., RunFolder]) -> None:
    """The table of a training that did not measure it would be empty."""
    folder = make_run(strategies=("ring",), workers=(2,))
    assert HEADING not in write_report(folder.path).read_text()

    _log_hidden_seconds(folder, 0.001)
    page = write_report(folder.path).read_text()
    trials = json.loads(folder.summary_path.read_text())["trials"]

    assert HEADING in page
    assert "compute with hidden communication" in page
    assert [trial["hidden_communication_seconds"] for trial in trials] == pytest.approx([0.001] * len(trials))
