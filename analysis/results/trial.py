"""Reads, judges, measures and records one trial. What is wrong with its files is told and harms no other trial.

Processes that share the trials of a run begin by importing this module, so it draws and compares nothing.
"""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from analysis.checks import fidelity
from analysis.metrics.proof import Proof, rows
from analysis.reading import trial_record as record
from analysis.reading.damage import Damage, understood
from analysis.reading.mllog import Log
from analysis.reading.run_folder import TrialFolder
from analysis.reading.run_table import TrialTable, read_logs, read_trial
from analysis.results.result import TrialResult, measure

DRAWN = ["step", "start_s", "step_s", "bytes_sent"]  # columns of steps that any figure reads


@dataclass(frozen=True)
class Examined:
    """One trial: its events, its numbers, and what was found of each declared property.

    Of its steps there is what figures draw: hundreds of trials are in memory at once, and most of them are copied.
    """

    table: TrialTable
    result: TrialResult
    proofs: tuple[Proof, ...]


def examine(folder: TrialFolder, *, write: bool = False) -> Examined | Damage:
    """One trial, or what in its files can't be understood; `write`: also its record and verdicts."""
    with _uncollected(), _named(folder):
        return _examine(folder, write=write)


def _examine(folder: TrialFolder, *, write: bool) -> Examined | Damage:
    """What was read dies with this call, before anybody searches it for cycles."""
    read = understood(folder, _read)
    return read if isinstance(read, Damage) else _examined(folder, *read, write=write)


def _read(folder: TrialFolder) -> tuple[Mapping[str, Log], TrialTable]:
    logs = read_logs(folder)
    return logs, read_trial(folder, logs)


def _examined(folder: TrialFolder, logs: Mapping[str, Log], trial: TrialTable, *, write: bool) -> Examined:
    verdicts, proofs = fidelity.judge(trial), rows(trial)
    if write:
        record.write(folder, trial, logs)
        fidelity.write(folder, trial, verdicts, proofs)
    drawn = replace(trial, steps=trial.steps[DRAWN])
    return Examined(drawn, measure(trial, verdicts.values()), proofs)


@contextmanager
def _named(folder: TrialFolder) -> Iterator[None]:
    """A mistake of ours says with which trial it was made."""
    try:
        yield
    except Exception as error:
        error.add_note(f"while examining {folder.path}")
        raise


@contextmanager
def _uncollected() -> Iterator[None]:
    """Without the search for cycles: lines are lists of rows until they are read, and it would visit them all."""
    searching = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if searching:
            gc.enable()
