"""Function that runs all trials of a scenario and writes the report.

No other module both starts nodes and reads the logs of nodes.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from compose.engines import EngineChoice, choose_engine
from compose.runs.interrupt import defer_stop_signals
from compose.runs.interrupted_run import lock_run_folder, read_interrupted_run
from compose.runs.run import FinishedRun, resume_run, run_scenario
from compose.runs.run_folder import RunFolderError, ScenarioFile
from compose.runs.trials.trial_attempts import RunObserver
from compose.scenario_files.load import ScenarioDeclaration, decode_scenario_text, read_scenario_text
from ensayo.declaration.document import declare
from ensayo.exit_codes import ExitCode
from ensayo.terminal.progress_display import SilentDisplay
from services.schema.errors import UserError, os_error_cause

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from analysis.figures import AnalysedRun
    from analysis.reading.run_table import RunLogTables

# ruff: noqa: PLC0415 - pandas and matplotlib take a second to import, which the nodes can use


@dataclass(frozen=True)
class FinishedRunResult:
    """Result of a run that has ended: its folder, its verdict and the reasons for the verdict.

    The summary, the data frames and the figures are read from the run folder on first use. The column names of the
    data frames end with the unit.
    """

    folder: Path
    verdict: str  # valid, degraded or invalid
    reasons: tuple[str, ...]  # "trial: reason", for trials that failed and for verdicts that are not valid
    exit_code: ExitCode
    repeated_trials: tuple[str, ...] = ()  # a sentence per trial that was repeated because this host disturbed it
    continued_trials: tuple[str, ...] = ()  # a sentence per trial that continues an earlier training

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Content of summary.json: all numbers of the report."""
        return _read_summary(self.folder)

    @cached_property
    def trials(self) -> "pd.DataFrame":
        """Results of the trials: one row per trial, with its status, verdict, times and final quality."""
        from analysis.results.data_frames import make_trial_frame

        return make_trial_frame(self.summary)

    @cached_property
    def curves(self) -> "pd.DataFrame":
        """Speedup curves: one row per strategy, combination of swept values and number of workers."""
        from analysis.results.data_frames import make_curve_frame

        return make_curve_frame(self.summary)

    @property
    def steps(self) -> "pd.DataFrame":
        """Training steps: one row per trial, worker and step, with the seconds of each step phase."""
        return self._log_tables.steps

    @property
    def evals(self) -> "pd.DataFrame":
        """Evaluations of the model: one row per trial, evaluation and metric."""
        return self._log_tables.evals

    def plot(self, figure_name: str = "speedup") -> "Figure":
        """Draw a figure of the report, and return the matplotlib figure.

        Args:
            figure_name: name of the figure: the name of its files in the run folder.

        Raises:
            UserError: there is no such figure, or this run has no data for the figure; the message lists the figures,
                or states the missing data.
        """
        from analysis.report.single_figure import draw_figure_of_report

        return draw_figure_of_report(self._analysed_run, figure_name)

    @cached_property
    def _analysed_run(self) -> "AnalysedRun":
        from analysis.figures import AnalysedRun
        from analysis.reading.run_folder import RunFolder
        from analysis.results.analyse_run import analyse_run

        return AnalysedRun(*analyse_run(RunFolder(self.folder)))

    @cached_property
    def _log_tables(self) -> "RunLogTables":
        from analysis.exports.readable_trials import read_readable_trials
        from analysis.reading.run_folder import RunFolder

        return read_readable_trials(RunFolder(self.folder))


def rehearse(
    scenario: ScenarioDeclaration | None = None,
    engine: str | None = None,
    runs_folder: str | Path = Path("runs"),
    settings: Mapping[str, Any] | None = None,
    observer: RunObserver | None = None,
    command: str = "",
    **keys: Any,
) -> FinishedRunResult:
    """Run all trials of a scenario on this host, and write the report of the run.

    Args:
        scenario: name of a shipped scenario, path of a scenario file, dict with the content of a scenario file, or
            Scenario; None: the scenario that `keys` declare.
        engine: name of the engine that runs the nodes; default: that of the scenario, else the best of this host.
        runs_folder: folder in which the run folder is created.
        settings: values that replace those of the scenario: dotted key -> YAML text, or a number, boolean, None, list
            or dict.
        observer: receives the progress of the run.
        command: command line that the user typed; it is recorded in the run folder.
        keys: a scenario, as `declare` accepts it, for example `model`, `dataset`, `cluster` and `strategies`.

    Raises:
        ScenarioError: the scenario is not valid; no trial was started. It is a UserError.
        UserError: there is no such scenario, the engine cannot run it, or the run folder can't be created; no trial was
            started.
        HostError: this host lacks something that the engine needs.
        RunFolderError: a file in the run folder can't be written.
        EngineLostError: the engine does not answer any more.
    """
    scenario_text = read_scenario_text(_choose_declaration(scenario, keys))
    loaded_scenario = decode_scenario_text(scenario_text, settings, engine)
    choice = choose_engine(engine or loaded_scenario.engine)
    source = ScenarioFile(loaded_scenario, scenario_text.text, scenario_text.first_comment, command)
    observer = observer or SilentDisplay(Console())
    return write_run_report(
        run_scenario(source, choice, Path(runs_folder), observer, _find_host_disturbance, _measure_probe_step_s)
    )


def _choose_declaration(scenario: ScenarioDeclaration | None, keys: Mapping[str, Any]) -> ScenarioDeclaration:
    """Return the scenario, or that which the keys declare."""
    if scenario is None and keys:
        return declare(**keys)
    if scenario is None or keys:
        raise UserError(
            "rehearse needs either a scenario, or the keys of one, such as model, dataset, cluster and strategies; "
            f"given are {'both' if keys else 'none of both'}; change keys of a scenario with settings"
        )
    return scenario


def resume(run_folder: str | Path, observer: RunObserver | None = None, command: str = "") -> FinishedRunResult:
    """Run those trials of an interrupted run that have not ended, and write the report of the whole run.

    Scenario, seeds, settings, engine and dilation are those with which the run was started.

    Args:
        run_folder: folder of the interrupted run.
        observer: receives the progress of the run.
        command: command line that the user typed; it is recorded in the run folder.

    Raises:
        UserError: the folder is no run folder, the run is still in progress, or it was started on another host or by
            another version of Ensayo.
        HostError: this host lacks something that the engine needs.
        RunFolderError: a file in the run folder can't be written.
        EngineLostError: the engine does not answer any more.
    """
    with lock_run_folder(Path(run_folder)):
        run = read_interrupted_run(Path(run_folder))
        choice = EngineChoice(choose_engine(run.engine_name).engine, "that of the interrupted run")
        observer = observer or SilentDisplay(Console())
        return write_run_report(
            resume_run(run, choice, command, observer, _find_host_disturbance, _measure_probe_step_s)
        )


def _find_host_disturbance(trial_folder: Path) -> str:
    """Return how this host disturbed a trial, or an empty text."""
    with defer_stop_signals():  # an interrupted import can't be repeated, and the report needs these packages
        from analysis.checks.host_disturbance import find_host_disturbance

    return find_host_disturbance(trial_folder)


def _measure_probe_step_s(probe_folder: Path) -> float | None:
    """Return the typical step time of a probe in virtual seconds; None if it logged no step."""
    with defer_stop_signals():  # as for the disturbances of a host
        from analysis.results.probe import measure_probe_step_s

    return measure_probe_step_s(probe_folder)


def write_run_report(finished_run: FinishedRun) -> FinishedRunResult:
    """Write the report of a finished or interrupted run.

    Return the verdict and the exit code of the run.
    """
    from analysis.report import report, wording

    try:
        report.write_report(finished_run.folder)
    except OSError as error:
        raise RunFolderError(
            f"{finished_run.folder}: the report can't be written: {os_error_cause(error)}; "
            f"make the folder writable or free disk space, then run: ensayo report {finished_run.folder}"
        ) from error
    summary = _read_summary(finished_run.folder)
    failures = (f"{status.trial}: {status.reason}" for status in finished_run.statuses if status.reason)
    verdict_reasons = (f"{trial['id']}: {reason}" for trial in summary["trials"] for reason in trial["reasons"])
    exit_code = _run_exit_code(finished_run, summary)
    reasons = tuple(dict.fromkeys((*failures, *verdict_reasons)))
    repeated_trials = tuple(wording.describe_repeated_trials(summary["trials"]))
    continued_trials = tuple(wording.describe_continued_trials(summary["trials"]))
    return FinishedRunResult(
        finished_run.folder, summary["verdict"], reasons, exit_code, repeated_trials, continued_trials
    )


def _read_summary(run_folder: Path) -> dict[str, Any]:
    """Return the content of the file summary.json of a run."""
    summary: dict[str, Any] = json.loads((run_folder / "summary.json").read_text(encoding="utf-8"))
    return summary


def _run_exit_code(finished_run: FinishedRun, run_summary: Mapping[str, Any]) -> ExitCode:
    """Return the exit code of the worst result among the trials of a run."""
    if finished_run.interrupted:
        return ExitCode.INTERRUPTED
    if any(status.status != "success" for status in finished_run.statuses):
        return ExitCode.FAILED
    if any(trial["diverged"] for trial in run_summary["trials"]):
        return ExitCode.FAILED
    return ExitCode.INVALID if run_summary["verdict"] == "invalid" else ExitCode.OK
