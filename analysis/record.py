"""What is the record of a trial? result.txt and steps.csv, made from what the nodes printed."""

from pathlib import Path

from analysis import mllog
from analysis.folder import TrialFolder
from analysis.table import TrialTable


def write(folder: TrialFolder, trial: TrialTable) -> None:
    """Writes both files of one trial; writing them again gives the same bytes."""
    write_result(folder)
    write_steps(folder, trial)


def write_result(folder: TrialFolder) -> Path:
    """All nodes' lines sorted by time: only the coordinator prints the full key set, so the checker accepts the merge.

    The sort is stable and `coordinator` is read first, so lines of one moment keep a fixed order.
    """
    events = [event for path in folder.logs for event in mllog.read(path).events]
    events.sort(key=lambda event: event.time_ms)
    folder.result.write_text("".join(f"{event.line()}\n" for event in events), encoding="utf-8")
    return folder.result


def write_steps(folder: TrialFolder, trial: TrialTable) -> Path:
    """One row per worker and step, by rank; virtual seconds."""
    steps = trial.steps.sort_values(["rank", "step"], kind="stable")
    steps.to_csv(folder.steps, index=False, float_format="%.9g", lineterminator="\n")
    return folder.steps
