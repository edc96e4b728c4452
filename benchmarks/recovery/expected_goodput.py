"""Goodput that the closed form of `rejoin` predicts for a training with a given number of kills."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean

import numpy as np

from analysis.laws.checkpoint_interval import FailureCosts
from benchmarks.recovery.kill_outcomes import KillOutcome

ITERATIONS = 200


@dataclass(frozen=True)
class ExpectedRun:
    """Predicted goodput and duration of a training, in virtual seconds."""

    goodput: float
    seconds: float


def measure_costs(outcomes: Sequence[KillOutcome], workers: int, step_s: float) -> FailureCosts:
    """Return the mean costs of kills that did not overlap.

    Args:
        outcomes: of kills after which the node was lost, and joined again.
        workers: number of workers of the training.
        step_s: seconds of a step with all workers.

    Raises:
        ValueError: there is no such kill.
    """
    phases_s = [phases for outcome in outcomes if (phases := _list_phases_s(outcome)) is not None]
    if not phases_s:
        raise ValueError("no kill was followed by a loss, a recovery and a join")
    detection_s, recovery_s, absence_s, join_s = map(mean, zip(*phases_s, strict=True))
    return FailureCosts(workers, detection_s, recovery_s - detection_s, step_s, absence_s=absence_s, join_s=join_s)


def _list_phases_s(outcome: KillOutcome) -> tuple[float, float, float, float] | None:
    """Return the seconds of detection, recovery, absence and join of a kill; None if one of them is missing."""
    phases_s = outcome.detection_s, outcome.recovery_s, outcome.absence_s, outcome.join_s
    known_s = [phase_s for phase_s in phases_s if phase_s is not None]
    return (known_s[0], known_s[1], known_s[2], known_s[3]) if len(known_s) == len(phases_s) else None


def expect_rejoin_run(costs: FailureCosts, kills: int, work_s: float) -> ExpectedRun:
    """Return the goodput and the duration of a training with `kills` kills under `rejoin`.

    The n workers have n·T seconds. Each of K kills takes A of them as absence, so a worker trains for
    M_node = n·T/K - A between its kills. The closed form g(M_node) of `FailureCosts.rejoin_goodput` gives the goodput,
    and the duration is T = work_s / g. Both equations are solved by iteration. M_node is at least A: below, the
    training would hardly go on.

    Args:
        costs: of one kill.
        kills: K, of all workers together.
        work_s: duration without kills.
    """
    run_s, goodput = work_s, 1.0
    for _ in range(ITERATIONS if kills else 0):
        worker_mtbf_s = max(costs.workers * run_s / kills - costs.absence_s, costs.absence_s)
        goodput = float(costs.rejoin_goodput(np.array(worker_mtbf_s)))
        run_s = (run_s + work_s / goodput) / 2
    return ExpectedRun(goodput, run_s)
