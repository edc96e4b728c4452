"""How long until the target?"""

from analysis.metrics.target import first_hit
from analysis.reading.run_table import TrialTable


def time_to_target_s(trial: TrialTable) -> float | None:
    """Seconds from `run_start` to the first evaluation that reached the target; evaluation counts, as in MLPerf.

    Source: MLPerf Training rules, "the clock runs from data access to target quality". None when it was not reached.
    """
    hit = first_hit(trial)
    return None if hit is None else float(hit["time_s"])
