"""How much communication hides behind computing?"""

from analysis.metrics.phase_seconds import phase_seconds
from analysis.table import TrialTable


def overlap(trial: TrialTable) -> float | None:
    """Share of the predicted exchange that never showed: 1 - exposed / predicted, kept within [0, 1].

    The log has only exposed communication, so what was there to hide is the closed form's. An exchange slower than
    predicted counts as not hidden at all. None where nothing is exchanged.
    """
    phases, predicted_s = phase_seconds(trial), trial.plan.predicted.exchange_s
    if phases is None or not predicted_s:
        return None
    return min(1.0, max(0.0, 1 - phases["exchange"] / predicted_s))
