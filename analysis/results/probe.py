"""Measured step time of a probe: a short training of one candidate before a trial."""

from dataclasses import replace
from pathlib import Path

from analysis.metrics.step_times.step_seconds import typical_step_s
from analysis.reading.damage import FileProblem, read_trial_or_damage
from analysis.reading.run_folder import TrialFolder
from analysis.reading.run_table import read_trial_tables


def measure_probe_step_s(probe_path: Path) -> float | None:
    """Return the typical step time of the probe in a folder, in virtual seconds.

    If the shares of a batch may change, the steps before the first change do not count: workers have equal shares there
    until they have measured their speeds. Return None if its files are damaged, or if it logged no step.
    """
    probe = read_trial_or_damage(TrialFolder(probe_path), read_trial_tables)
    if isinstance(probe, FileProblem):
        return None
    first_step = probe.plan.balance.resize_period if probe.plan.balance else 0
    return typical_step_s(replace(probe, steps=probe.steps[probe.steps["step"] >= first_step]))
