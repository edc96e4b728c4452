"""How many samples until the target?"""

from analysis.metrics.target import first_hit
from analysis.table import TrialTable


def samples_to_target(trial: TrialTable) -> int | None:
    """Samples that all workers had trained on at the first evaluation that reached the target; None when none did.

    It does not depend on how fast nodes and links are, so it isolates what a strategy costs in learning
    (statistical efficiency: Qiao et al., Pollux, OSDI 2021).
    """
    hit = first_hit(trial)
    return None if hit is None else int(hit["samples"])
