"""Score of a system in minutes, computed from the logs of its runs by MLCommons' scoring rule.

Rule (mlcommons/training_policies, `training_rules.adoc`, "Benchmark Results"): a run lasts from its `run_start` to its
`run_stop`. The fastest and the slowest run are dropped, and the score is the mean of the rest. A run that did not
converge counts as the slowest. Where submitters converged sooner than the reference allows, the mean is multiplied by a
factor.

MLCommons' scorer first checks every log with its compliance checker; a log that fails does not count. `compliance`
checks the same rules for the workloads of a rule set. A run of another workload counts if it starts, ends with success,
and every line of its log can be read. If results are taken as published, a run counts if it starts and ends with
success.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.mlperf.rule_sets.rounds import NEAREST_RULE_SET, RuleSet
from analysis.reading.logs.mllog import MllogEvent, NodeLog
from analysis.statistics.centre import olympic_mean

MS_PER_MINUTE = 60_000
RUNS_DROPPED_PER_END = 1  # fastest runs, and as many slowest runs
RUNS_DROPPED_BY_BENCHMARK = {"unet3d": 4}  # its 40 runs vary more


RUNS_REQUIRED = 10  # runs of a result that MLCommons' package checker asks for
RUNS_REQUIRED_BY_BENCHMARK = {
    **dict.fromkeys(("dlrm", "maskrcnn", "resnet", "retinanet", "ssd"), 5),
    **dict.fromkeys(("gpt3", "llama31_405b"), 3),
    "unet3d": 40,
}


class NoScoreError(Exception):
    """Error: a result cannot be scored. The message gives the reason.

    `category` is the reason without names and numbers, worded to follow a count of results.
    """

    def __init__(self, message: str, category: str) -> None:
        super().__init__(message)
        self.category = category


@dataclass(frozen=True)
class MlperfRun:
    """Start and stop time of the run in one log.

    If the run does not count in the score, the reason is recorded too.
    """

    start_ms: float | None = None
    stop_ms: float | None = None
    rejection_reason: str = ""  # empty for a run that counts

    @property
    def minutes(self) -> float:
        """Duration of the run in minutes.

        The result is infinite for a run that does not count, which is scored as the slowest.
        """
        if self.rejection_reason or self.start_ms is None or self.stop_ms is None:
            return math.inf
        return (self.stop_ms - self.start_ms) / MS_PER_MINUTE


@dataclass(frozen=True)
class MlperfScore:
    """Score of a system in minutes, and the number of its runs."""

    minutes: float
    runs: int
    runs_not_counted: int


def read_mlperf_run(log: NodeLog, rule_set: RuleSet = NEAREST_RULE_SET) -> MlperfRun:
    """Return start and stop of the run in a log, checked against a rule set.

    If the run does not count in the score of the system, the result also has the reason. The stop is the first
    `run_stop`; the start is the last `run_start` before the stop.
    """
    starts, stops = log.events_with_key("run_start"), log.events_with_key("run_stop")
    if not starts or not stops:
        return MlperfRun(
            _find_first_time_ms(starts), _find_first_time_ms(stops), f"has no {'run_stop' if starts else 'run_start'}"
        )
    starts_before_stop = [event for event in starts if event.line_number < stops[0].line_number]
    start, stop = (starts_before_stop or starts)[-1], stops[0]
    return MlperfRun(start.time_ms, stop.time_ms, next(_find_rejection_reasons(log, start, stop, rule_set), ""))


def _find_first_time_ms(mlperf_log_events: Sequence[MllogEvent]) -> float | None:
    return mlperf_log_events[0].time_ms if mlperf_log_events else None


def _find_rejection_reasons(
    log: NodeLog, start_event: MllogEvent, stop_event: MllogEvent, rule_set: RuleSet
) -> Iterator[str]:
    """Yield the reasons why a run does not count in the score, the most informative reason first."""
    workload_rules = rule_set.find_workload_rules(log)
    status = stop_event.metadata.get("status")
    if status != "success" and not (workload_rules and workload_rules.has_reached_target(log)):
        yield f"ended {status or 'without a status'}"
    if not stop_event.time_ms > start_event.time_ms:
        yield "ends before it starts"
    if not rule_set.is_checked:
        return
    if log.unusable_line_count:
        yield f"has {log.unusable_line_count} damaged line{'s' * (log.unusable_line_count != 1)}"
    yield from rule_set.find_workload_violations(log)
    yield from workload_rules.find_violations(log) if workload_rules else _find_required_key_violations(log)


def _find_required_key_violations(log: NodeLog) -> Iterator[str]:
    """Yield a text for each missing or contradictory key in a log.

    The log is that of a workload without compliance rules.
    """
    for key in ("run_start", "run_stop", "submission_benchmark"):
        values = [event.value for event in log.events_with_key(key)]
        if not values:
            yield f"has no {key}"
        elif values.count(values[0]) != len(values):
            yield f"has {len(values)} {key} that differ"


def compute_score_of_runs(
    mlperf_runs: Sequence[MlperfRun], rcp_scaling_factor: float = 1.0, benchmark_name: str = ""
) -> MlperfScore:
    """Return the score of a system: olympic mean of the run times, multiplied by the scaling factor.

    Raises:
        NoScoreError: too many runs do not count, or no run is left after the fastest and slowest are dropped.
    """
    dropped = RUNS_DROPPED_BY_BENCHMARK.get(benchmark_name, RUNS_DROPPED_PER_END)
    minutes = np.array([run.minutes for run in mlperf_runs])
    not_counted = int(np.isinf(minutes).sum())
    if not_counted > dropped:
        reasons = Counter(run.rejection_reason for run in mlperf_runs if run.rejection_reason)
        raise NoScoreError(
            f"{not_counted} of {len(mlperf_runs)} runs do not count, at most {dropped} may fail",
            f"where a log {reasons.most_common(1)[0][0]}",
        )
    if len(mlperf_runs) <= 2 * dropped:
        raise NoScoreError(
            f"{len(mlperf_runs)} runs are too few: the score drops the {dropped} fastest and the {dropped} slowest",
            "with too few runs",
        )
    return MlperfScore(float(olympic_mean(minutes, dropped)) * rcp_scaling_factor, len(mlperf_runs), not_counted)
