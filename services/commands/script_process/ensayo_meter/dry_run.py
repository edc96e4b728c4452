"""Dry run: the collectives of a script's first steps, and their times in the step, recorded without a network.

The process is rank 0 of a group whose collectives do nothing. Their scheduled times are shares of the CPU time of the
step.
"""

import json
import os
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from .step_records import CollectiveRecord, StepRecord
from .step_schedule import UNSTEADY_STEPS

NO_GROUP = "the script created no process group of torch.distributed"
DESCRIPTION = ("operation", "bytes", "dtype", "group_size", "is_asynchronous", "root_rank", "reduce_operation")


class CpuClock:
    """CPU time of this process, in seconds, without that of the collectives of a dry run."""

    def __init__(self) -> None:
        self._excluded_s = 0.0

    def __call__(self) -> float:
        return time.process_time() - self._excluded_s

    def exclude(self, seconds: float) -> None:
        """Leave out CPU time that was just used."""
        self._excluded_s += seconds


class DryRun:
    """Receiver of steps that writes them to a file, and ends the process after a number of steps."""

    def __init__(self, path: Path, steps: int) -> None:
        self._path, self._step_count = path, steps
        self._steps: list[StepRecord] = []
        self.has_process_group = False

    def begin_training(self, begin_s: float) -> None:
        """Do nothing: steps of a dry run are not paced."""

    def receive_step(self, step: StepRecord) -> None:
        """Record a step. The last one of the dry run ends the process with exit code 0."""
        self._steps.append(step)
        if len(self._steps) >= self._step_count:
            self.stop("" if self.has_process_group else NO_GROUP)

    def stop(self, reason: str) -> None:
        """Write the file and end the process with exit code 0."""
        self.write(reason)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)

    def write_unfinished(self, script_error: str) -> None:
        """Write the recorded steps of a script that has ended before the dry run, with its exception, if it had one."""
        progress = f"after {len(self._steps)} optimiser steps; the dry run needs {self._step_count}"
        if script_error:
            self.write(f"the script failed {progress}: {script_error}")
        else:
            self.write(f"the script ended {progress}" if self.has_process_group else NO_GROUP)

    def write(self, reason: str) -> None:
        """Write the file. It is complete unless there is a reason."""
        first = self._steps[0].start_collectives if self._steps else []
        result = {
            "torch": getattr(sys.modules.get("torch"), "__version__", ""),
            "start_collectives": [_describe(record) for record in first],
            "steps": [_step_entry(step) for step in self._steps],
            "step_profile": _median_profile(self._steps[UNSTEADY_STEPS:]),
            "complete": not reason,
            "reason": reason,
        }
        temporary = self._path.with_suffix(".partial")
        temporary.write_text(json.dumps(result), encoding="utf-8")
        temporary.replace(self._path)


def _describe(record: CollectiveRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in DESCRIPTION}


def _describe_all(step: StepRecord) -> list[dict[str, Any]]:
    return [_describe(record) for record in step.collectives]


def _step_entry(step: StepRecord) -> dict[str, Any]:
    return {"collectives": _describe_all(step), **_shares(step)}


def _shares(step: StepRecord) -> dict[str, Any]:
    cpu_s = max(step.end_s - step.begin_s, 1e-9)
    return {
        "launch_shares": [(record.launch_s - step.begin_s) / cpu_s for record in step.collectives],
        "wait_shares": [(wait_begin_s - step.begin_s) / cpu_s for wait_begin_s in step.wait_begins_s()],
        "update_share": (step.update_begin_s - step.begin_s) / cpu_s,
        "cpu_s": cpu_s,
    }


def _median_profile(steps: Sequence[StepRecord]) -> dict[str, Any] | None:
    """Return the profile of the usual step: its collectives, and the medians of its times; None without steps.

    Other steps have further collectives, or follow an evaluation. If all follow one, it is a part of the step.
    """
    if not steps:
        return None
    begins_without_gradient = all(step.follows_evaluation for step in steps)
    candidates = [step for step in steps if begins_without_gradient or not step.follows_evaluation]
    collectives = _describe_all(min(candidates, key=lambda step: len(step.collectives)))
    shares_by_step = [_shares(step) for step in candidates if _describe_all(step) == collectives]
    return {
        "collectives": collectives,
        "launch_shares": _medians(shares["launch_shares"] for shares in shares_by_step),
        "wait_shares": _medians(shares["wait_shares"] for shares in shares_by_step),
        "update_share": _medians([shares["update_share"]] for shares in shares_by_step)[0],
        "cpu_s": statistics.median(shares["cpu_s"] for shares in shares_by_step),
        "begins_without_gradient": begins_without_gradient,
    }


def _medians(shares_by_step: Iterable[Sequence[float]]) -> list[float]:
    """Return the median over the steps of each share."""
    return [statistics.median(shares) for shares in zip(*shares_by_step, strict=True)]
