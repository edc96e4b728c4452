"""Analysis of one trial from its files.

It reads the files of the trial, runs checks, computes metrics, and writes the results to the trial's folder. Damage in
the files of a trial is returned and does not affect other trials. Helper processes import this module first, so it
imports neither figures nor comparisons.
"""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from analysis.checks import fidelity
from analysis.metrics.achieved_properties import DeclaredVsAchieved, list_achieved_properties
from analysis.metrics.step_times.step_attempts import number_step_attempts
from analysis.reading import trial_record as record
from analysis.reading.damage import FileProblem, read_trial_or_damage
from analysis.reading.logs.mllog import NodeLog
from analysis.reading.run_folder import TrialFolder
from analysis.reading.run_table import TrialLogTables, read_node_logs, read_trial_tables
from analysis.results.measure_trial import measure_trial
from analysis.results.trial_result import TrialResult

FIGURE_STEP_COLUMNS = ["step", "attempt", "start_s", "step_s", "bytes_sent"]  # columns of steps that figures read


@dataclass(frozen=True)
class AnalysedTrial:
    """Results of the analysis of one trial.

    These are the table of the trial, its metrics, and the declared and achieved properties of its emulated cluster. The
    table of its steps has only the columns that figures need, because hundreds of trials are in memory at the same
    time, and most of them are copied from a helper process.
    """

    table: TrialLogTables
    result: TrialResult
    proofs: tuple[DeclaredVsAchieved, ...]  # declared and achieved properties


def analyse_trial(trial_folder: TrialFolder, *, write: bool = False) -> AnalysedTrial | FileProblem:
    """Analyse one trial, and return its results or the damage of its files.

    The damage is returned if the files cannot be read. With `write`, also write result.txt, steps.csv and fidelity.json
    to the folder of the trial.
    """
    with _without_garbage_collection(), _add_trial_folder_to_errors(trial_folder):
        return _read_and_measure_trial(trial_folder, write=write)


def _read_and_measure_trial(trial_folder: TrialFolder, *, write: bool) -> AnalysedTrial | FileProblem:
    """Read the files of one trial and compute its metrics.

    The memory of its logs is freed when the function returns, without garbage collection.
    """
    read = read_trial_or_damage(trial_folder, _read_logs_and_tables)
    return read if isinstance(read, FileProblem) else _measure_and_save_trial(trial_folder, *read, write=write)


def _read_logs_and_tables(trial_folder: TrialFolder) -> tuple[Mapping[str, NodeLog], TrialLogTables]:
    logs = read_node_logs(trial_folder)
    return logs, read_trial_tables(trial_folder, logs)


def _measure_and_save_trial(
    trial_folder: TrialFolder, logs: Mapping[str, NodeLog], trial_tables: TrialLogTables, *, write: bool
) -> AnalysedTrial:
    verdicts, proofs = fidelity.run_trial_checks(trial_tables), list_achieved_properties(trial_tables)
    if write:
        record.write_log_and_step_table(trial_folder, trial_tables, logs)
        fidelity.write_fidelity_json(trial_folder, trial_tables, verdicts, proofs)
    steps = trial_tables.steps.assign(attempt=number_step_attempts(trial_tables))[FIGURE_STEP_COLUMNS]
    no_buckets = trial_tables.buckets[:0]
    table = replace(trial_tables, steps=steps, buckets=no_buckets)
    return AnalysedTrial(table, measure_trial(trial_tables, verdicts.values()), proofs)


@contextmanager
def _add_trial_folder_to_errors(trial_folder: TrialFolder) -> Iterator[None]:
    """Add the path of the trial folder to every exception raised in the context.

    Damaged input raises no exception here, so every exception is a bug in Ensayo.
    """
    try:
        yield
    except Exception as error:
        error.add_note(f"while analysing {trial_folder.path}")
        raise


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector within the context.

    A collection would visit the many small lists of log rows.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
