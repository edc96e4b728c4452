"""The report shows how far the workers' parameters are from their mean, and what the evaluations of the mean cost."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import jsonschema
import numpy as np
import pytest

from analysis.checks.network.bytes_on_wire import check_bytes_sent
from analysis.checks.training.replicas import check_model_replicas_agree
from analysis.checks.verdict import VerdictLevel
from analysis.figures import AnalysedRun
from analysis.figures.consensus import draw_consensus
from analysis.metrics.learning.consensus import measure_consensus
from analysis.reading.run_table import RunLogTables, TrialLogTables
from analysis.results.analyse_run import analyse_run

Run = Callable[..., RunLogTables]

STRATEGIES = {
    "ring": {"kind": "d_psgd"},
    "exponential": {"kind": "d_psgd", "topology": {"kind": "exponential"}},
    "all_reduce": {"kind": "all_reduce"},
}


@pytest.fixture
def gossip_run(run_simulated: Run) -> AnalysedRun:
    tables = run_simulated(STRATEGIES, workers=8)
    return AnalysedRun(*analyse_run(tables.folder))


def test_summary_has_the_distance_at_every_evaluation(gossip_run: AnalysedRun, pytestconfig: pytest.Config) -> None:
    """The distance of an all-reduce is not measured, because all workers have the same parameters."""
    ring, exponential, all_reduce = gossip_run.summary.trials

    assert all_reduce.consensus is None
    for trial in (ring, exponential):
        assert trial.consensus is not None
        assert [each.step for each in trial.consensus.evaluations] == [6, 12, 18, 24]
        assert all(0 < (each.relative_distance or 0) < 1 for each in trial.consensus.evaluations)
        assert trial.consensus.exchange_seconds > 0
        assert trial.bytes_sent == trial.expected_bytes_sent
        vectors = 4 * 2 * 7  # of evaluations, workers and chunks of a ring
        assert trial.consensus.exchange_bytes == pytest.approx(vectors * gossip_run.table.trials[0].plan.vector_bytes)
    schema = json.loads((pytestconfig.rootpath / "analysis" / "results" / "summary.schema.json").read_text())
    jsonschema.validate(json.loads(json.dumps(asdict(gossip_run.summary))), schema)


def test_figure_names_the_farthest_and_the_nearest_strategy(gossip_run: AnalysedRun) -> None:
    """The title is a claim: it is about the last evaluation."""
    figure = draw_consensus(gossip_run)

    assert figure is not None
    last = figure.data.groupby("strategy")["relative_distance"].last()
    assert set(last.index) == {"ring", "exponential"}
    far, near = last.idxmax(), last.idxmin()
    assert figure.title == (
        f"At the last evaluation, relative consensus distances are {last[near]:.2%} ({near} ×8) to {last[far]:.2%} "
        f"({far} ×8)"
    )


def test_without_gossip_there_is_no_figure(run_simulated: Run) -> None:
    tables = run_simulated({"all_reduce": STRATEGIES["all_reduce"]})

    assert draw_consensus(AnalysedRun(*analyse_run(tables.folder))) is None


def test_checks_of_bytes_and_of_the_evaluated_mean_are_valid(run_simulated: Run) -> None:
    """All workers evaluate the same bits, and the bytes of evaluations are planned."""
    for trial in run_simulated(STRATEGIES, workers=8).trials:
        assert check_bytes_sent(trial).level == VerdictLevel.VALID
        assert check_model_replicas_agree(trial).level == VerdictLevel.VALID


def test_measured_step_time_is_that_of_the_plan(gossip_run: AnalysedRun) -> None:
    """The closed form of gossip has no barrier over all workers."""
    for trial in gossip_run.summary.trials:
        assert trial.unpredicted_step_time_share == pytest.approx(0, abs=0.03)


def test_distance_is_the_root_mean_square_over_the_workers(
    make_trial: Callable[..., TrialLogTables], line: Callable[..., str]
) -> None:
    """Kong et al.: Ξ² is the mean of the squared distances; an evaluation that a worker did not log does not count."""

    def consensus(rank: int, distance: float, step: int) -> str:
        value: dict[str, Any] = {"distance": distance, "mean_norm": 10.0, "seconds": 1.0 + rank, "bytes_sent": 100}
        return line("consensus", value, node=f"worker-{rank}", step=step)

    logs = {
        "worker-0": [consensus(0, 3.0, 5), consensus(0, 1.0, 9)],
        "worker-1": [consensus(1, 4.0, 5)],
    }

    result = measure_consensus(make_trial(logs, workers=2))

    assert result is not None
    (evaluation,) = result.evaluations
    assert evaluation.distance == pytest.approx(np.sqrt((9 + 16) / 2))
    assert evaluation.relative_distance == pytest.approx(evaluation.distance / 10)
    assert (evaluation.step, evaluation.exchange_s) == (5, 2.0)
    assert (result.exchange_seconds, result.exchange_bytes) == (2.0, 300)


@pytest.mark.parametrize("is_gossip", [False, True])
def test_exchange_of_gossip_is_not_counted_as_waiting_for_all_workers(
    make_trial: Callable[..., TrialLogTables],
    steps_line: Callable[..., str],
    is_gossip: bool,
) -> None:
    """A worker waits only for its neighbours, so the slowest worker of all says nothing about its exchange."""
    logs = {
        f"worker-{rank}": [steps_line([{"compute_s": compute_s, "exchange_s": 0.4}], f"worker-{rank}")]
        for rank, compute_s in enumerate((0.1, 0.6))
    }

    trial = make_trial(logs, workers=2, is_gossip=is_gossip)

    fast = trial.steps[trial.steps["node"] == "worker-0"].iloc[0]
    assert fast["wait_s"] == pytest.approx(0.0 if is_gossip else 0.4)
