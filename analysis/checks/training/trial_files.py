"""Check that all files of the trial can be read."""

from analysis.checks.verdict import CheckVerdict, invalid_verdict, valid_verdict
from analysis.reading.run_table import TrialLogTables


def check_trial_files_readable(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `invalid` if a log or other file of the trial is damaged.

    The reason is the first problem.
    """
    if not trial.damage:
        return valid_verdict("every line of the logs could be read")
    first, *others = trial.damage
    rest = f", and {len(others)} more problem{'s' * (len(others) > 1)}" if others else ""
    return invalid_verdict(f"{first}{rest}")
