"""Which strategy did which steps? One phase for most trials, two where one strategy gave way to another."""

from dataclasses import dataclass
from typing import Literal

import pandas as pd

from analysis.plan import Predicted
from analysis.table import TrialTable


@dataclass(frozen=True)
class Phase:
    """The steps of one strategy within a trial."""

    name: Literal["", "before", "after"]
    steps: pd.DataFrame
    predicted: Predicted
    bytes_per_step: dict[str, float]
    synchrony: Literal["synchronous", "asynchronous"]
    seconds: float  # virtual, from its first step to its end

    @property
    def samples(self) -> int:
        """Of all its steps."""
        return int(self.steps["samples"].sum())


def phases(trial: TrialTable) -> tuple[Phase, ...]:
    """The phases of a trial that did any step, in their order."""
    plan, switch = trial.plan, trial.switch
    seconds = trial.seconds or 0.0
    if plan.after is None or switch is None or not switch.committed:
        return (Phase("", trial.steps, plan.predicted, plan.bytes_per_step, plan.synchrony, seconds),)
    after = trial.steps["start_s"] >= switch.begins_s
    began_s, ended_s = switch.committed_s, switch.committed_s - float(switch.committed["seconds"])
    second = plan.after
    synchrony: Literal["synchronous", "asynchronous"] = "synchronous" if second.synchronous else "asynchronous"
    found = (
        Phase("before", trial.steps[~after], plan.predicted, plan.bytes_per_step, plan.synchrony, ended_s),
        Phase("after", trial.steps[after], second.predicted, second.bytes_per_step, synchrony, seconds - began_s),
    )
    return tuple(phase for phase in found if len(phase.steps))
