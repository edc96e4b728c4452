"""The shipped scenario `reduction-strategies`: equal data for all systems, and a report with the table of the study."""

from pathlib import Path

import pytest

import ensayo
from analysis.reading.run_folder import RunFolder
from analysis.report.tables.regression_table import make_regression_table
from analysis.results.analyse_run import analyse_run
from compose.engines.simulated import SimulatedEngine
from compose.scenario_files.load import find_scenario, load_scenario
from services.scenario.scenario import Scenario

pytestmark = pytest.mark.without_nodes


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return load_scenario(find_scenario("reduction-strategies"))


def test_every_system_has_ten_seeds_and_the_same_partition_of_the_data(scenario: Scenario) -> None:
    """A difference of quality between systems is then caused by the system or by the seed."""
    trials = scenario.trials()

    assert scenario.repeats == 10
    assert {trial.labels["system"] for trial in trials} == {"ring", "reduce_to_one", "one_gpu", "one_cpu"}
    assert len({str(trial.scenario.workload.dataset) for trial in trials}) == 1
    assert len({trial.scenario.workload.global_batch_size(trial.scenario.cluster.workers) for trial in trials}) == 1
    assert {trial.scenario.workload.dataset.outputs for trial in trials} == {4}  # type: ignore[union-attr]


def test_only_one_system_computes_on_a_gpu(scenario: Scenario) -> None:
    devices = {
        str(trial.labels["system"]): (trial.scenario.cluster.workers, trial.scenario.worker_spec(0).device)
        for trial in scenario.trials()
    }

    assert devices == {"ring": (4, "cpu"), "reduce_to_one": (4, "cpu"), "one_gpu": (1, "cuda"), "one_cpu": (1, "cpu")}


def test_the_report_has_a_row_per_system_and_answers_the_question(tmp_path: Path) -> None:
    """In virtual time start-up is not measured, and without a GPU its row has the reason."""
    run = ensayo.rehearse("reduction-strategies", "simulated", tmp_path, {"repeats": 3})
    table = make_regression_table(analyse_run(RunFolder(run.folder))[1])

    assert table is not None
    rows = {row.name.rpartition("system ")[2]: row for row in table.rows}
    assert rows.keys() == {"ring", "reduce_to_one", "one_cpu", "one_gpu"}
    assert bool(rows["one_gpu"].skip_reason) == (SimulatedEngine().missing_gpu_reason() is not None)
    ran = [row for row in table.rows if not row.skip_reason]
    assert {row.startup for row in ran} == {"not measured: virtual time"}
    assert len({rows[name].errors for name in ("ring", "reduce_to_one", "one_cpu")}) == 1
    assert table.seed_noise_sentence.startswith("No, the differences of R² between systems do not exceed seed noise")
    assert table.seed_noise_sentence in (run.folder / "report.html").read_text()
