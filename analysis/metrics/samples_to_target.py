"""How many samples until the target?"""

from pandas import isna

from analysis.metrics.target import first_hit
from analysis.reading.run_table import TrialTable


def samples_to_target(trial: TrialTable) -> int | None:
    """Samples that all workers had trained on at the first evaluation that reached the target.

    None when none did, or when nobody counted them.

    It does not depend on how fast nodes and links are, so it isolates what a strategy costs in learning
    (statistical efficiency: Qiao et al., Pollux, OSDI 2021).
    """
    hit = first_hit(trial)
    return None if hit is None or isna(hit["samples"]) else int(hit["samples"])


def evaluation_samples(trial: TrialTable) -> int | None:
    """Samples between the evaluation that reached the target and the one before; None when none reached it.

    The model was good enough somewhere in between, so samples (and time) to target are rounded up by as much.
    """
    hit = first_hit(trial)
    if hit is None or isna(hit["samples"]):
        return None
    before = trial.evals["samples"][trial.evals["time_s"] < hit["time_s"]].dropna()
    return int(hit["samples"] - before.max()) if before.size else int(hit["samples"])
