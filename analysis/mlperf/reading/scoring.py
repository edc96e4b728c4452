"""What is the score of a system's runs? MLCommons' rule, from events to minutes; nothing here reads a file.

Rule (mlcommons/training_policies, `training_rules.adoc`, "Benchmark Results"): a run takes from its `run_start` to its
`run_stop`. The fastest and the slowest run are dropped and the mean of the rest counts. A run that did not converge
counts as the slowest. Where submitters converged sooner than the reference allows, the mean is multiplied by a factor.

MLCommons' scorer first sends every log through its compliance checker, and what fails there does not count.
`compliance` asks the same where it knows the workload. Of other workloads a run counts that starts, ends with success,
and of which every line can be read.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.mlperf.reading.compliance import asked_of
from analysis.reading.mllog import LogEvent, NodeLog
from analysis.statistics.centre import olympic_mean

MS_PER_MINUTE = 60_000
DROPPED = 1  # runs at either end
DROPPED_OF = {"unet3d": 4}  # whose 40 runs vary more


class Unscored(Exception):
    """These runs have no score; the message says why."""


@dataclass(frozen=True)
class Run:
    """One log."""

    start_ms: float | None = None
    stop_ms: float | None = None
    why_not: str = ""  # why it does not count; empty when it does

    @property
    def minutes(self) -> float:
        """From start to stop; infinite for a run that does not count, which makes it the slowest."""
        if self.why_not or self.start_ms is None or self.stop_ms is None:
            return math.inf
        return (self.stop_ms - self.start_ms) / MS_PER_MINUTE


@dataclass(frozen=True)
class Score:
    """What a system gets for its runs."""

    minutes: float
    runs: int
    not_counted: int


def judge(log: NodeLog) -> Run:
    """The run that a log tells of: from the last start that stands before the first stop, to that stop."""
    starts, stops = log.events_with_key("run_start"), log.events_with_key("run_stop")
    if not starts or not stops:
        return Run(_time(starts), _time(stops), f"has no {'run_stop' if starts else 'run_start'}")
    before = [event for event in starts if event.line_number < stops[0].line_number]
    start, stop = (before or starts)[-1], stops[0]
    return Run(start.time_ms, stop.time_ms, next(_doubts(log, start, stop), ""))


def _time(events: Sequence[LogEvent]) -> float | None:
    return events[0].time_ms if events else None


def _doubts(log: NodeLog, start: LogEvent, stop: LogEvent) -> Iterator[str]:
    """Reasons not to count a run, those first that tell most."""
    asked = asked_of(log)
    status = stop.metadata.get("status")
    if status != "success" and not (asked and asked.reached(log)):
        yield f"ended {status or 'without a status'}"
    if not stop.time_ms > start.time_ms:
        yield "ends before it starts"
    if log.unusable_count:
        yield f"has {log.unusable_count} damaged line{'s' * (log.unusable_count != 1)}"
    yield from asked.doubts(log) if asked else _doubts_of_any(log)


def _doubts_of_any(log: NodeLog) -> Iterator[str]:
    """Of a workload whose rules are not known."""
    for key in ("run_start", "run_stop", "submission_benchmark"):
        values = [event.value for event in log.events_with_key(key)]
        if not values:
            yield f"has no {key}"
        elif values.count(values[0]) != len(values):
            yield f"has {len(values)} {key} that differ"


def score(runs: Sequence[Run], scaling_factor: float = 1.0, benchmark: str = "") -> Score:
    """The olympic mean of the runs, times the factor.

    Raises:
        Unscored: more runs do not count than may be dropped, or none is left between the dropped ones.
    """
    dropped = DROPPED_OF.get(benchmark, DROPPED)
    minutes = np.array([run.minutes for run in runs])
    missing = int(np.isinf(minutes).sum())
    if missing > dropped:
        raise Unscored(f"{missing} of {len(runs)} runs do not count, {dropped} may")
    if len(runs) <= 2 * dropped:
        raise Unscored(f"{len(runs)} runs are too few: {dropped} at either end are dropped")
    return Score(float(olympic_mean(minutes, dropped)) * scaling_factor, len(runs), missing)
