"""`make bench-fidelity`: the bench of fidelity (`benchmarks.fidelity.bench`) with the verdicts of `analysis`."""

import sys
from pathlib import Path

from analysis.exports.believed import TrialVerdict
from analysis.reading.run_folder import TrialFolder
from analysis.reading.run_table import read_logs, read_trial
from benchmarks.fidelity.bench import main


def doubts(folder: Path) -> str:
    """Why a trial may not be believed without care; empty where its verdict is valid.

    Admission is not judged: these trials have no run, and rows choose dilations that fit.
    """
    trial = TrialFolder(folder)
    return "; ".join(TrialVerdict.from_checks(read_trial(trial, read_logs(trial))).reasons)


if __name__ == "__main__":
    sys.exit(main(doubts))
