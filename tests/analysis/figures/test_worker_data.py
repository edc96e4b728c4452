"""The report states how many samples each worker owns and has processed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analysis.figures import AnalysedRun
from analysis.figures.worker_data import draw_worker_data
from analysis.reading.run_table import RunLogTables
from analysis.report.report import write_report
from analysis.results.analyse_run import analyse_run

Run = Callable[..., RunLogTables]

STRATEGIES = {"ring": {"kind": "all_reduce"}}
ASYNCHRONOUS = {"asp": {"kind": "parameter_server", "synchrony": {"kind": "asp"}}}


def analyse(
    run_simulated: Run, partition: dict[str, Any], strategies: dict[str, Any] = STRATEGIES, **workload: Any
) -> AnalysedRun:
    tables = run_simulated(strategies, workload={"partition": partition, "epochs": 2} | workload)
    return AnalysedRun(*analyse_run(tables.folder))


def test_synchronous_workers_process_their_parts_once_per_epoch(run_simulated: Run) -> None:
    """So all workers have the same number of passes."""
    run = analyse(run_simulated, {"kind": "sizes", "shares": [4, 3, 2, 1]})

    (trial,) = run.summary.trials

    assert [counts.worker for counts in trial.worker_samples] == [f"worker-{rank}" for rank in range(4)]
    assert [counts.owned for counts in trial.worker_samples] == [575, 431, 288, 144]
    assert [counts.passes for counts in trial.worker_samples] == [2.0] * 4


def test_asynchronous_workers_process_small_parts_more_often(run_simulated: Run) -> None:
    """A worker with a small part has small shares of batches, and does more steps."""
    run = analyse(run_simulated, {"kind": "sizes", "shares": [8, 8, 8, 1]}, ASYNCHRONOUS)

    passes = [counts.passes or 0.0 for counts in run.summary.trials[0].worker_samples]

    assert passes[3] > 1.5 * max(passes[:3])


def test_without_a_partition_no_worker_owns_samples(run_simulated: Run) -> None:
    """The samples that workers process are counted all the same."""
    run = analyse(run_simulated, {"kind": "iid"})

    (trial,) = run.summary.trials

    assert draw_worker_data(run) is None
    assert {counts.owned for counts in trial.worker_samples} == {None}
    assert {counts.passes for counts in trial.worker_samples} == {None}
    assert sum(counts.processed for counts in trial.worker_samples) == trial.samples == 2 * 1438


@pytest.mark.parametrize(
    ("partition", "workload", "title"),
    [
        (
            {"kind": "dirichlet", "alpha": 0.1},
            {},
            "With dirichlet, alpha 0.1, 4 workers, 41% of a worker's samples",
        ),
        (
            {"kind": "dirichlet", "alpha": 10000},
            {},
            "With dirichlet, alpha 10000, 4 workers, the largest part",
        ),
        (
            {"kind": "sizes", "shares": [4, 3, 2, 1]},
            {},
            "With sizes, 4 workers, the largest part has 3.99 times",
        ),
        (
            {"kind": "sizes", "shares": [4, 3, 2, 1], "seed": 3},
            {"dataset": {"kind": "synthetic_regression", "samples": 500}, "batch": 100},
            "With sizes, seed 3, 4 workers, the largest part has 4.00 times as many samples as the smallest",
        ),
    ],
    ids=str,
)
def test_the_title_states_the_strongest_imbalance(
    run_simulated: Run, partition: dict[str, Any], workload: dict[str, Any], title: str
) -> None:
    """An even mix of classes is not called uneven."""
    run = analyse(run_simulated, partition, **workload)

    drawing = draw_worker_data(run)

    assert drawing is not None
    assert drawing.title.startswith(title)
    assert drawing.data["samples"].sum() == run.table.trials[0].plan.train_samples


def test_the_page_lists_the_samples_of_each_worker(run_simulated: Run, tmp_path: Path) -> None:
    """Only where workers own samples."""
    folder = analyse(run_simulated, {"kind": "shards", "per_worker": 2}).table.folder

    page = write_report(folder.path).read_text()

    assert "Samples by worker" in page
    assert (folder.path / "figures" / "worker_data.csv").is_file()
    assert '<td>worker-3</td><td class="n">359</td><td class="n">718</td><td class="n">2.00</td>' in page
