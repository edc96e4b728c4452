"""Closed forms of the best checkpoint interval and of the expected goodput under failures, for each failure policy.

Common assumptions: failures of a worker are a Poisson process with the mean time M_node between failures, independent
of all other workers, so that the system of n workers has M = M_node / n. All workers train synchronously, so a failure
stops all of them. Goodput is the share of the time of the n planned workers in steps that count. All times are in the
same unit, for example virtual seconds.

J. W. Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974.
J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22(3), 2006.
"""

from dataclasses import dataclass

import numpy as np

from analysis.statistics.centre import Floats

INTEGRATION_POINTS = 64  # of the Gauss-Legendre quadrature over the run


def young_interval_s(checkpoint_s: float, system_mtbf_s: Floats) -> Floats:
    """Return Young's interval of compute between two checkpoints: √(2 C M).

    It assumes that the interval and the restart are short compared with M.
    """
    return np.sqrt(2 * checkpoint_s * np.asarray(system_mtbf_s, dtype=float))


def daly_interval_s(checkpoint_s: float, system_mtbf_s: Floats) -> Floats:
    """Return Daly's interval of compute between two checkpoints.

    √(2 C M) · [1 + ⅓ √(C / 2M) + ⅑ · C / 2M] - C where C < 2M, else M.
    """
    mtbf_s = np.asarray(system_mtbf_s, dtype=float)
    ratio = checkpoint_s / (2 * mtbf_s)
    higher_order = young_interval_s(checkpoint_s, mtbf_s) * (1 + np.sqrt(ratio) / 3 + ratio / 9) - checkpoint_s
    return np.where(ratio < 1, higher_order, mtbf_s)


@dataclass(frozen=True)
class FailureCosts:
    """Costs of failures in a training of n workers, in seconds."""

    workers: int
    detection_s: float  # D: from a failure until it is known
    recovery_s: float  # R: from then on until the workers continue
    step_s: float  # S: a failure breaks off the step in progress
    checkpoint_s: float = 0.0  # C: of one checkpoint
    absence_s: float = 0.0  # A: from a failure until the restarted worker joins again; at least D
    join_s: float = 0.0  # J: all workers stop when the restarted worker joins

    @property
    def downtime_s(self) -> float:
        """Time from a failure until the workers continue: D + R."""
        return self.detection_s + self.recovery_s

    def restore_goodput(self, interval_s: float | Floats, worker_mtbf_s: Floats) -> Floats:
        """Return the expected goodput of `restore`: τ / (M e^{(D+R)/M} (e^{(τ+C)/M} - 1)) (Daly).

        After each τ = `interval_s` of compute, all workers write a checkpoint. After a failure, they continue from the
        last one. Failures also strike during checkpoints and restarts. The end of the training is neglected.
        """
        mtbf_s = np.asarray(worker_mtbf_s, dtype=float) / self.workers
        segment = np.expm1((interval_s + self.checkpoint_s) / mtbf_s)
        return np.asarray(interval_s / (mtbf_s * np.exp(self.downtime_s / mtbf_s) * segment))

    def continue_goodput(self, worker_mtbf_s: Floats, run_s: float | Floats) -> Floats:
        """Return the expected goodput of `continue` in a run of T = `run_s`.

        Lost workers do not come back. A moment t counts for the workers that live at t if no worker failed in the last
        d = D + R + S/2: the expected number of such workers is n p z (1 - p + p z)^(n-1), with p = e^(-(t-d)/M_node)
        and z = e^(-d/M_node). Goodput is the mean of this number over the run, divided by n. Training goes on until
        the last worker is lost.
        """
        worker_mtbf_s = np.asarray(worker_mtbf_s, dtype=float)[..., None]
        nodes, weights = np.polynomial.legendre.leggauss(INTEGRATION_POINTS)
        times_s = np.asarray(run_s, dtype=float)[..., None] * (nodes + 1) / 2
        window_s = np.minimum(times_s, self.downtime_s + self.step_s / 2)
        alive, unharmed = np.exp(-(times_s - window_s) / worker_mtbf_s), np.exp(-window_s / worker_mtbf_s)
        shares = alive * unharmed * (1 - alive + alive * unharmed) ** (self.workers - 1)
        return np.asarray(shares @ weights / 2)

    def rejoin_goodput(self, worker_mtbf_s: Floats) -> Floats:
        """Return the expected goodput of `rejoin` in a long run.

        Each worker trains for M_node on average, and joins again A after its failure. A moment counts for a worker that
        lives at this moment, if in the last d = D + R + S/2 no worker failed, and in the last j = J + S/2 none joined:
        goodput is a e^(-j/M_node) · q^(n-1), with the availability a = M_node / (M_node + A) and the probability
        q = a e^(-j/M_node) + (A - d) / (M_node + A) that another worker neither failed nor joined.
        """
        worker_mtbf_s = np.asarray(worker_mtbf_s, dtype=float)
        stopped_s, join_s = self.downtime_s + self.step_s / 2, self.join_s + self.step_s / 2
        cycle_s = worker_mtbf_s + self.absence_s
        trains = worker_mtbf_s / cycle_s * np.exp(-join_s / worker_mtbf_s)
        is_undisturbed = trains + max(0.0, self.absence_s - stopped_s) / cycle_s
        return np.asarray(trains * is_undisturbed ** (self.workers - 1))
