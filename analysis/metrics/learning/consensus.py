"""Consensus distance: how far the parameters of the workers of a gossip strategy are from their mean.

Ξ = sqrt(1/n Σ_i ‖x_i - x̄‖²) for n workers with the parameters x_i and their mean x̄ (L. Kong, T. Lin, A. Koloskova, M.
Jaggi, S. Stich, "Consensus control for decentralized deep learning", ICML 2021). The relative distance is Ξ / ‖x̄‖.
"""

from dataclasses import dataclass
from math import sqrt

from analysis.reading.run_table import TrialLogTables


@dataclass(frozen=True)
class ConsensusAtEvaluation:
    """Consensus distance at one evaluation. The names of the fields are keys in summary.json."""

    step: int  # finished steps
    distance: float  # Ξ
    relative_distance: float | None  # Ξ / ‖x̄‖; None if the mean is zero
    exchange_s: float  # virtual seconds of the exchange that computed the mean, of the slowest worker


@dataclass(frozen=True)
class ConsensusResult:
    """Consensus distances of one trial. The names of the fields are keys in summary.json."""

    evaluations: list[ConsensusAtEvaluation]  # in the order of steps
    exchange_seconds: float  # virtual seconds of all exchanges before evaluations, part of the training time
    exchange_bytes: int  # payload bytes that all workers sent for evaluations

    @property
    def last_relative_distance(self) -> float | None:
        """Relative consensus distance at the last evaluation."""
        return self.evaluations[-1].relative_distance


def measure_consensus(trial: TrialLogTables) -> ConsensusResult | None:
    """Return the consensus distances of a trial; None if its workers logged none.

    Evaluations that only a part of the workers logged are left out.
    """
    evaluations = []
    for _, workers in trial.consensus.groupby("step"):
        if len(workers) == trial.plan.workers:
            step = int(workers["step"].iloc[0])
            distance, mean_norm = sqrt((workers["distance"] ** 2).mean()), float(workers["mean_norm"].iloc[0])
            relative = None if mean_norm == 0 else distance / mean_norm
            evaluations.append(ConsensusAtEvaluation(step, distance, relative, float(workers["seconds"].max())))
    if not evaluations:
        return None
    return ConsensusResult(
        evaluations,
        sum(evaluation.exchange_s for evaluation in evaluations),
        int(trial.consensus["bytes_sent"].sum()),
    )
