"""Reader of the result folders that MLCommons publishes for each round of MLPerf Training.

    <submitter>/systems/<system>.json
    <submitter>/results/<system>/<benchmark>/result_*.txt  scaling.json

A result that cannot be scored is listed with the reason. All other results are read, because a round with a thousand
logs always has some defective logs.
"""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError

from analysis.mlperf.reading.results import DeviceUnit, MlperfResult, MlperfResults, UnscoredResult, read_results_csv
from analysis.mlperf.reading.scoring import (
    RUNS_REQUIRED,
    RUNS_REQUIRED_BY_BENCHMARK,
    MlperfRun,
    MlperfScore,
    NoScoreError,
    compute_score_of_runs,
    read_mlperf_run,
)
from analysis.mlperf.rule_sets.rounds import RuleSet, detect_rule_set
from analysis.reading.logs import mllog
from services.schema.errors import UserError

INVALID_DESCRIPTION = "with an invalid system description"
RunTimes: TypeAlias = frozenset[tuple[float | None, float | None]]  # start and stop of each run


@dataclass(frozen=True)
class PublishedLogFolder:
    """Folder with the published logs of one system and one workload."""

    path: Path
    round_root: Path  # folder of the round, or of one submitter

    @property
    def benchmark(self) -> str:
        """Name of the workload's folder."""
        return self.path.name

    @property
    def system_name(self) -> str:
        """Name of the system, taken from the name of its folder.

        The folder name is used because the names in logs often differ.
        """
        return self.path.parent.name

    @property
    def system_json_path(self) -> Path:
        """Path of the JSON file in which the submitter describes the system."""
        return self.path.parents[2] / "systems" / f"{self.system_name}.json"

    @property
    def log_paths(self) -> list[Path]:
        """Paths of the log files in the folder, sorted by name."""
        return sorted(self.path.glob("result_*.txt"))

    @property
    def path_in_round(self) -> str:
        """Path of the folder relative to the root folder of the MLPerf round.

        The path is used in messages.
        """
        return str(self.path.relative_to(self.round_root))


def read_mlperf_results(source_path: Path, rule_set: RuleSet | None = None) -> MlperfResults:
    """Read MLPerf results from a CSV file or from a folder of published logs.

    The folder is that of an MLPerf round or of one submitter. `rule_set` is for the logs of a folder.

    Raises:
        UserError: the CSV file has mistakes, or the folder has no result with a score.
    """
    return read_round_folder(source_path, rule_set) if source_path.is_dir() else read_results_csv(source_path)


def read_round_folder(round_root: Path, rule_set: RuleSet | None = None) -> MlperfResults:
    """Read and score the results of an MLPerf round's closed division from the logs.

    Args:
        round_root: folder of a round or of one submitter.
        rule_set: rules that the logs are checked with; None for those of the round that is detected.

    Raises:
        UserError: no folder below `round_folder` has a log, or no result has a score.
    """
    log_folders = list(_find_log_folders(round_root))
    if not log_folders:
        raise UserError(f"{round_root}: no logs; looked for <submitter>/results/<system>/<benchmark>/result_*.txt")
    rules = rule_set or detect_rule_set(round_root, (folder.benchmark for folder in log_folders))
    rows: list[MlperfResult] = []
    unscored_results: list[UnscoredResult] = []
    folder_by_run_times: dict[RunTimes, str] = {}
    for log_folder in log_folders:
        runs = [read_mlperf_run(mllog.read_log(path), rules) for path in log_folder.log_paths]
        run_times = frozenset((run.start_ms, run.stop_ms) for run in runs)
        try:
            _check_runs_not_listed_twice(run_times, folder_by_run_times)
            rows.append(_make_mlperf_result(log_folder, runs, rules))
            folder_by_run_times[run_times] = log_folder.path_in_round
        except NoScoreError as error:
            unscored_results.append(UnscoredResult(log_folder.path_in_round, str(error), error.category))
    results = MlperfResults(tuple(rows), str(round_root), tuple(unscored_results), rules)
    if not rows:
        problem = f"{round_root}: {results.unscored_summary}; {rules.description}"
        raise UserError("\n".join([problem, *(f"{each.path}: {each.reason}" for each in unscored_results)]))
    return results


def _check_runs_not_listed_twice(run_times: RunTimes, folder_by_run_times: Mapping[RunTimes, str]) -> None:
    """Raise NoScoreError if a folder that was read earlier has the same runs.

    Systems with power measurements may be there twice.
    """
    if run_times in folder_by_run_times:
        raise NoScoreError(
            f"has the same runs as the folder {folder_by_run_times[run_times]}", "with runs that are listed twice"
        )


def _find_log_folders(round_folder: Path) -> Iterator[PublishedLogFolder]:
    """Yield all folders with logs below the folder of an MLPerf round or of a submitter.

    The folders are sorted by path.
    """
    folders = {log.parent for depth in ("", "*/") for log in round_folder.glob(f"{depth}results/*/*/result_*.txt")}
    return (PublishedLogFolder(folder, round_folder) for folder in sorted(folders))


def _make_mlperf_result(log_folder: PublishedLogFolder, runs: list[MlperfRun], rule_set: RuleSet) -> MlperfResult:
    description = _read_json_object(log_folder.system_json_path)
    if (division := str(description.get("division", "closed")).lower()) != "closed":
        raise NoScoreError(f"its division is {division}, not closed", f"of the {division} division")
    factor = _read_score_scaling_factor(log_folder.path / "scaling.json")
    score = _compute_folder_score(log_folder, runs, factor)
    score_columns = {"minutes": score.minutes, "runs": score.runs, "runs_not_counted": score.runs_not_counted}
    try:
        return MlperfResult(
            **_make_system_columns(description, log_folder),
            **score_columns,
            rcp_scaling_factor=factor,
            source=f"{log_folder.path_in_round}/result_*.txt",
            runs_required=RUNS_REQUIRED_BY_BENCHMARK.get(log_folder.benchmark, RUNS_REQUIRED),
            note=_format_rejected_logs_note(log_folder, runs),
            rules=rule_set.name_rules_of(log_folder.benchmark),
        )
    except ValidationError as error:
        name = str(error.errors()[0]["loc"][0])
        allowed = MlperfResult.model_fields[name].description
        file_name = log_folder.system_json_path.name
        reason = f"{file_name}: {name} should be {allowed}; correct the system description"
        raise NoScoreError(reason, INVALID_DESCRIPTION) from None


def _compute_folder_score(
    log_folder: PublishedLogFolder, mlperf_runs: list[MlperfRun], rcp_scaling_factor: float
) -> MlperfScore:
    """Return the MLPerf score of the runs in a folder of published logs.

    A NoScoreError lists each rejected log with the reason.
    """
    try:
        return compute_score_of_runs(mlperf_runs, rcp_scaling_factor, log_folder.benchmark)
    except NoScoreError as error:
        reason = "; ".join([str(error), *_describe_rejections(log_folder, mlperf_runs)])
        raise NoScoreError(reason, error.category) from None


def _make_system_columns(system_description: Mapping[str, Any], log_folder: PublishedLogFolder) -> dict[str, Any]:
    """Return the columns of the result table that come from the folder names and the system's description."""
    nodes = _parse_hardware_count(system_description, "number_of_nodes", log_folder)
    per_node, unit = _count_devices_per_node(system_description, log_folder)
    model_key = "accelerator_model_name" if unit == "accelerators" else "host_processor_model_name"
    key_by_column = {"accelerator": model_key, "framework": "framework", "system_name": "system_name"}
    text_columns = {column: str(system_description.get(key, "")).strip() for column, key in key_by_column.items()}
    return text_columns | {
        "benchmark": log_folder.benchmark,
        "submitter": str(system_description.get("submitter") or log_folder.path.parents[2].name).strip(),
        "system": log_folder.system_name,
        "availability": str(system_description.get("status", "")).strip(),
        "nodes": nodes,
        "accelerator_count": nodes * per_node,
        "unit": unit,
    }


def _count_devices_per_node(
    system_description: Mapping[str, Any], log_folder: PublishedLogFolder
) -> tuple[int, DeviceUnit]:
    """Return the number of devices of a host, and their unit.

    Devices are accelerators. In a system without accelerators, devices are processors, or hosts if the description does
    not contain the number of processors.
    """
    accelerators = _parse_hardware_count(system_description, "accelerators_per_node", log_folder, least=0)
    if accelerators:
        return accelerators, "accelerators"
    if not str(system_description.get("host_processors_per_node", "")).strip():
        return 1, "hosts"
    return _parse_hardware_count(system_description, "host_processors_per_node", log_folder), "processors"


def _format_rejected_logs_note(log_folder: PublishedLogFolder, runs: list[MlperfRun]) -> str:
    return "; ".join(f"{rejection}: counted as the slowest run" for rejection in _describe_rejections(log_folder, runs))


def _describe_rejections(log_folder: PublishedLogFolder, run_of_each_log: list[MlperfRun]) -> list[str]:
    """Return a text with log name and reason for each run that does not count in the score."""
    logs_and_runs = zip(log_folder.log_paths, run_of_each_log, strict=True)
    return [f"{log.name} {run.rejection_reason}" for log, run in logs_and_runs if run.rejection_reason]


def _read_json_object(path: Path) -> Mapping[str, Any]:
    """Read a JSON object from a file.

    Raise NoScoreError if the file is missing or contains no JSON object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig", errors="replace"))
    except (OSError, ValueError) as error:
        raise NoScoreError(
            f"{path.parent.name}/{path.name} cannot be read: {error}", f"without a readable {path.suffix[1:]} file"
        ) from error
    if not isinstance(content, dict):
        raise NoScoreError(f"{path.parent.name}/{path.name} contains no JSON object", INVALID_DESCRIPTION)
    return content


def _read_score_scaling_factor(scaling_json_path: Path) -> float:
    """Read the factor by which the score of a result is multiplied, from `scaling.json`.

    1 if the file does not exist. A result without the file did not converge faster than the reference allows.
    """
    if not scaling_json_path.exists():
        return 1.0
    factor = _read_json_object(scaling_json_path).get("scaling_factor")
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 < factor < math.inf:
        raise NoScoreError(
            f"{scaling_json_path.name}: scaling_factor should be a number above 0, not {factor!r}",
            "with an invalid scaling factor",
        )
    return float(factor)


def _parse_hardware_count(
    system_description: Mapping[str, Any], key: str, folder: PublishedLogFolder, least: int = 1
) -> int:
    """Return a count from the description of a system as a whole number.

    The description may contain the count as a number or as a string.
    """
    text = str(system_description.get(key, "")).strip()
    if not text.isdecimal() or int(text) < least:
        reason = f"{folder.system_json_path.name}: {key} should be a whole number at least {least}, not {text!r}"
        raise NoScoreError(reason, INVALID_DESCRIPTION)
    return int(text)
