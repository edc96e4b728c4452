"""Entry point of `make bench-fidelity`: runs `benchmarks.fidelity.bench` with the verdicts of `analysis`."""

import sys
from pathlib import Path

from analysis.exports.trial_verdict import TrialValidityVerdict
from analysis.reading.run_folder import TrialFolder
from analysis.reading.run_table import read_node_logs, read_trial_tables
from benchmarks.fidelity.bench import main


def read_verdict_reasons(trial_path: Path) -> str:
    """Return the reasons why the verdict of a trial is not valid; empty if it is valid.

    Capacity is not checked: these trials belong to no run, and their rows choose dilations that this host can carry.
    """
    trial = TrialFolder(trial_path)
    return "; ".join(TrialValidityVerdict.from_checking_trial(read_trial_tables(trial, read_node_logs(trial))).reasons)


if __name__ == "__main__":
    sys.exit(main(read_verdict_reasons))
