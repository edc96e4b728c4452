"""Which strategy did which steps? One phase for most trials, two where one strategy gave way to another."""

from dataclasses import dataclass
from typing import Literal

import pandas as pd

from analysis.reading.plan_view import PlanView, Predicted
from analysis.reading.run_table import TrialTable


@dataclass(frozen=True)
class Phase:
    """The steps of one strategy within a trial."""

    name: Literal["", "before", "after"]
    steps: pd.DataFrame
    predicted: Predicted
    bytes_per_step: dict[str, float]
    answered_per_step: dict[str, float]
    synchrony: Literal["synchronous", "asynchronous"]
    seconds: float  # virtual, from its first step to its end
    promoted: tuple[str, ...] = ()  # workers that only serve

    @property
    def samples(self) -> int:
        """Of all its steps."""
        return int(self.steps["samples"].sum())


def phases(trial: TrialTable) -> tuple[Phase, ...]:
    """The phases of a trial that did any step, in their order."""
    plan, switch = trial.plan, trial.switch
    seconds = trial.seconds or 0.0
    if plan.after is None or switch is None or not switch.committed:
        return (_before(plan, "", trial.steps, seconds),)
    after = trial.steps["start_s"] >= switch.begins_s
    ended_s = switch.committed_s - float(switch.committed["seconds"])
    second = Phase(
        name="after",
        steps=trial.steps[after],
        predicted=plan.after.predicted,
        bytes_per_step=plan.after.bytes_per_step,
        answered_per_step=plan.after.answered_per_step,
        synchrony="synchronous" if plan.after.synchronous else "asynchronous",
        seconds=seconds - switch.committed_s,
        promoted=plan.after.promoted,
    )
    found = (_before(plan, "before", trial.steps[~after], ended_s), second)
    return tuple(phase for phase in found if len(phase.steps))


def _before(plan: PlanView, name: Literal["", "before"], steps: pd.DataFrame, seconds: float) -> Phase:
    """The strategy that a trial begins with."""
    return Phase(name, steps, plan.predicted, plan.bytes_per_step, plan.answered_per_step, plan.synchrony, seconds)
