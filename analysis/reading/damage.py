"""Detection of damaged files in a run folder.

A file may be missing, cut off, written by another version, or contain NaN or infinity. Every damage is reported by file
and line. Which records must exist follows from the plan, from the status that the engine reported, and from the counts
that nodes log at their end. A damaged trial is excluded from comparisons; the other trials of the run are not affected.
"""

from collections.abc import Callable, Iterator, Mapping, Sized
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from traceback import extract_tb
from typing import Any, TypeVar

from pydantic import ValidationError

from analysis.reading.logs.mllog import MllogEvent, MllogTable, NodeLog, UnusableLogLine
from analysis.reading.plan_view import PlannedNode, TrialPlan
from analysis.reading.run_folder import RunFolder, TrialFolder

ReadResult = TypeVar("ReadResult")
DIVERGED_SUFFIX = ": training diverged"
NO_TRIAL_FOLDER = "the run has no trials: none was started, or their folders were removed"
SCENARIO_FILES = ("scenario.yaml", "resolved.yaml")  # the scenario as given, and with every default filled in
STEP_TIME_COLUMNS = ("start_s", "step_s", "data_s", "compute_s", "exchange_s", "wait_s", "update_s")


@dataclass(frozen=True)
class FileProblem:
    """One problem of one file in a run folder."""

    trial_name: str  # empty for a file of the run itself
    file: str  # path relative to the trial's folder, or to the run folder
    line: int | None  # from 1; None: the file as a whole
    problem: str
    is_divergence: bool = False  # the file is intact, but training diverged

    def __str__(self) -> str:
        """Return the problem as `file:line: problem`, the format of compiler messages.

        Editors can thus jump to the line.
        """
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"trials/{self.trial_name}/{place}: {self.problem}" if self.trial_name else f"{place}: {self.problem}"


def read_trial_or_damage(
    trial_folder: TrialFolder, trial_reader: Callable[[TrialFolder], ReadResult]
) -> ReadResult | FileProblem:
    """Return the result of a function that reads a trial folder, or the file damage that made the function fail.

    The function must only read files: an error in code that computes with the tables is a bug of Ensayo, not damage.
    """
    try:
        return trial_reader(trial_folder)
    except ValidationError as error:
        path = trial_folder.plan_path if error.title == TrialPlan.__name__ else trial_folder.status_path
        return FileProblem(trial_folder.path.name, path.name, None, _describe_validation_error(error))
    except (LookupError, TypeError, ValueError, AttributeError) as error:  # raised for unexpected log contents
        problem = (
            f"cannot be interpreted ({type(error).__name__} at {_code_location_of_error(error)}: {error}); "
            "perhaps written by another version"
        )
        return FileProblem(trial_folder.path.name, "logs", None, problem)


def _describe_validation_error(validation_error: ValidationError, *parent_keys: str) -> str:
    """Return the first problem that validation found, with its key in the file.

    `parent_keys` precede this key.
    """
    first = validation_error.errors()[0]
    key = ".".join(map(str, (*parent_keys, *first["loc"]))) or "the file"
    return f"{key}: {first['msg']}; empty, cut off or written by another version"


def _code_location_of_error(error: Exception) -> str:
    """Return the `file:line` in the analysis code where an error was raised.

    A bug of Ensayo can thus be found.
    """
    packages = Path(__file__).resolve().parents[2]
    frames = [(Path(frame.filename), frame.lineno) for frame in extract_tb(error.__traceback__)]
    own_frames = [(path, line) for path, line in frames if path.parent.is_relative_to(packages / "analysis")]
    path, line = (own_frames or frames)[-1]
    return f"{path.relative_to(packages) if own_frames else path.name}:{line}"


def find_run_file_damage(run_folder: RunFolder) -> tuple[FileProblem, ...]:
    """Return the damage of files outside of trials, such as manifest.json.

    Missing plans of trials are included. A run without any trial folder is damaged, too.
    """
    problems = [("manifest.json", None if run_folder.manifest else "not a JSON object: empty or cut off")]
    problems += [(name, None if run_folder.read_yaml(name) else "not a YAML mapping") for name in SCENARIO_FILES]
    absent = [name for name, _ in problems if not (run_folder.path / name).is_file()]
    damaged = [FileProblem("", name, None, "missing" if name in absent else text) for name, text in problems if text]
    without_plan = [FileProblem(name, "plan.json", None, "missing") for name in run_folder.trials_without_plan]
    has_trials = run_folder.trial_folders or without_plan
    without_trials = [] if has_trials else [FileProblem("", "trials", None, NO_TRIAL_FOLDER)]
    return (*damaged, *_check_published_speedups(run_folder), *without_trials, *without_plan)


def _check_published_speedups(run_folder: RunFolder) -> Iterator[FileProblem]:
    """Yield the faults in the section `published` of scenario.yaml.

    The section is checked because a file that was cut off is often valid YAML.
    """
    try:
        run_folder.read_published_speedups()
    except ValidationError as error:
        yield FileProblem("", "scenario.yaml", None, _describe_validation_error(error, "published"))


def find_trial_file_damage(
    folder: TrialFolder,
    plan: TrialPlan,
    trial_status: Mapping[str, Any],
    node_logs: Mapping[str, NodeLog],
    log_lines_with_bad_rows: Mapping[str, tuple[UnusableLogLine, ...]],
) -> tuple[FileProblem, ...]:
    """Return all damage in the files of a trial whose plan.json can be read.

    A log that is missing, empty, or has fewer steps than its node counted is damage only where the engine reported
    success, and not for a node that was lost during the training. `log_lines_with_bad_rows` are the log lines with
    unusable rows, by node name.
    """
    succeeded = trial_status.get("status") == "success"
    damages = list(_find_status_damage(folder, trial_status))
    for node_name, log in node_logs.items():
        lines = [*log.unusable_lines, *log_lines_with_bad_rows.get(node_name, ()), *_find_non_finite_values(log)]
        lines += _find_lines_of_other_nodes(node_name, log)
        problems: list[tuple[int | None, str]] = [(line.line_number, line.problem) for line in lines]
        if succeeded and not log.events and not lines:
            problems = [(None, "empty" if folder.log_path(node_name).stat().st_size == 0 else "no event")]
        file = f"logs/{node_name}.log"
        damages += [
            FileProblem(folder.path.name, file, line_number, problem, problem.endswith(DIVERGED_SUFFIX))
            for line_number, problem in problems
        ]
    if succeeded:
        reported = {damage.file for damage in damages if not damage.is_divergence}
        unreported = {file: node for node in plan.nodes if (file := f"logs/{node.name}.log") not in reported}
        lost_nodes, has_changed_members = _find_lost_nodes(node_logs)
        lost = {
            file: _describe_lost_records(node, node_logs, counts_steps_once=not has_changed_members)
            for file, node in unreported.items()
            if node.name not in lost_nodes
        }
        damages += [FileProblem(folder.path.name, file, None, problem) for file, problem in lost.items() if problem]
    return tuple(damages)


def _find_lines_of_other_nodes(node_name: str, node_log: NodeLog) -> Iterator[UnusableLogLine]:
    """Yield the log lines that name another node than the log file.

    Each line of a node has its name as namespace. The namespace is empty in logs of the coordinator and of other
    programs.
    """
    for event in node_log.events:
        if event.namespace not in ("", node_name):
            problem = f"logged by {event.namespace}, but the file is the log of {node_name}"
            yield UnusableLogLine(event.line_number, problem)


def _find_status_damage(trial_folder: TrialFolder, trial_status: Mapping[str, Any]) -> Iterator[FileProblem]:
    if not trial_status:
        state = "empty or cut off" if trial_folder.status_path.is_file() else "missing"
        yield FileProblem(
            trial_folder.path.name, trial_folder.status_path.name, None, f"{state}: how the trial ended is not known"
        )


def _find_lost_nodes(node_logs: Mapping[str, NodeLog]) -> tuple[frozenset[str], bool]:
    """Return the names of the nodes that were lost, and whether the membership of the training changed.

    A killed node loses its last log lines. When the membership changes, workers go back to an earlier step and log
    steps again, so that they log more steps than they count at their end.
    """
    coordinator_log = node_logs.get("coordinator", NodeLog(()))
    losses = (event.value for event in coordinator_log.events_with_key("node_lost"))
    names = frozenset(str(value["node"]) for value in losses if isinstance(value, dict) and "node" in value)
    return names, bool(coordinator_log.events_with_key("membership_epoch"))


def _describe_lost_records(
    planned_node: PlannedNode, node_logs: Mapping[str, NodeLog], *, counts_steps_once: bool
) -> str:
    """Describe the records that are missing in a node's log.

    All lines of the log can be read. The text is empty if no record is missing. With `counts_steps_once`, the log must
    have as many steps as the node counts.
    """
    log = node_logs.get(planned_node.name)
    if log is None:
        return "missing"
    if planned_node.role == "coordinator":
        return _describe_unlogged_strategy_switch(log, node_logs)
    stop_event = log.last_event("node_stop")
    if stop_event is None:
        return "no node_stop event: the last lines are lost"
    if planned_node.role != "worker" or not counts_steps_once:
        return ""
    return _describe_lost_steps(log, stop_event)


def _describe_lost_steps(worker_log: NodeLog, stop_event: MllogEvent) -> str:
    """Describe how many steps are missing in the log of a worker.

    The text is empty if no step is missing. A worker logs the number of its steps in `node_stop`. Workers of older
    versions do not, but log at least one step.
    """
    logged = sum(len(_step_rows_of_event(event)) for event in worker_log.events_with_key("node_steps"))
    counted = stop_event.value.get("steps") if isinstance(stop_event.value, dict) else None
    if counted is None:
        return "" if logged else "no node_steps event"
    return "" if logged == counted else f"node_steps has {logged} steps, but node_stop counts {counted}: lines are lost"


def _step_rows_of_event(step_event: MllogEvent) -> Sized:
    rows: Sized = step_event.value.rows if isinstance(step_event.value, MllogTable) else step_event.value["rows"]
    return rows


def _describe_unlogged_strategy_switch(coordinator_log: NodeLog, node_logs: Mapping[str, NodeLog]) -> str:
    """Describe a strategy switch that is missing in the coordinator's log.

    The text is empty unless other nodes logged a switch.
    """
    switched_nodes = [node_name for node_name, log in node_logs.items() if log.events_with_key("node_switch")]
    outcomes = coordinator_log.events_with_key("switch_committed") + coordinator_log.events_with_key("switch_aborted")
    if not switched_nodes or outcomes:
        return ""
    names = ", ".join(switched_nodes)
    return f"no switch_committed or switch_aborted event, but {names} logged node_switch: lines are lost"


def _find_non_finite_values(node_log: NodeLog) -> Iterator[UnusableLogLine]:
    """Yield the first log lines in which a value is NaN or infinite.

    At most one line of steps and one line of evaluations are yielded.
    """
    for key, describe in (("node_steps", _describe_non_finite_step), ("eval_metrics", _describe_non_finite_metric)):
        problems = ((event.line_number, describe(event)) for event in node_log.events_with_key(key))
        yield from [UnusableLogLine(line_number, problem) for line_number, problem in problems if problem][:1]


def _describe_non_finite_step(step_event: MllogEvent) -> str:
    value = step_event.value
    if step_event.is_finite:  # testing every number would take as long as reading it
        return ""
    if not isinstance(value, dict) or not {"columns", "rows"} <= value.keys():
        return ""
    for row in value["rows"]:
        named = dict(zip(value["columns"], row, strict=False))
        for column in (*STEP_TIME_COLUMNS, "loss"):
            if _is_non_finite(named.get(column)):
                return f"{column} of step {named.get('step')} is {named[column]}{_format_diverged_suffix(column)}"
    return ""


def _describe_non_finite_metric(evaluation_event: MllogEvent) -> str:
    if not isinstance(evaluation_event.value, dict):
        return ""
    metric = next((name for name, value in evaluation_event.value.items() if _is_non_finite(value)), None)
    return f"{metric} is {evaluation_event.value[metric]}{_format_diverged_suffix('loss')}" if metric else ""


def _is_non_finite(value: object) -> bool:
    return isinstance(value, float) and not isfinite(value)


def _format_diverged_suffix(metric_name: str) -> str:
    return DIVERGED_SUFFIX if metric_name == "loss" else ""
