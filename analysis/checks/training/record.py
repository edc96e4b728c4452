"""Could all that the nodes printed be read?"""

from analysis.checks.verdict import Verdict, invalid, valid
from analysis.reading.run_table import TrialTable


def record(trial: TrialTable) -> Verdict:
    """Invalid when anything of the trial's record is missing, cut off, from another version, or no number."""
    if not trial.damage:
        return valid("every line of the logs could be read")
    first, *more = trial.damage
    return invalid(f"{first}" + (f", and {len(more)} more" if more else ""))
