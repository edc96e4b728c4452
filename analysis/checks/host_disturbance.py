"""Decision whether the host disturbed a trial, so that the trial should be repeated."""

from pathlib import Path

from analysis.checks.engine_kind import ran_in_virtual_time
from analysis.checks.fidelity import run_trial_checks
from analysis.reading.damage import FileProblem, read_trial_or_damage
from analysis.reading.run_folder import TrialFolder
from analysis.reading.run_table import read_trial_tables


def find_host_disturbance(trial_path: Path) -> str:
    """Return how this host disturbed the trial in a folder.

    The result states what was measured, without advice. It is empty if the host did not disturb the trial, or if the
    files of the trial are damaged. Only checks of deadlines, links, events and the host count. The step time does not
    count although a busy host makes it longer: it is a result, and trials that are repeated until their steps are short
    enough would be too fast on average.
    """
    trial = read_trial_or_damage(TrialFolder(trial_path), read_trial_tables)
    if isinstance(trial, FileProblem) or ran_in_virtual_time(trial):
        return ""
    disturbances = (verdict.possible_disturbance for verdict in run_trial_checks(trial).values())
    return "; ".join(filter(None, disturbances))
