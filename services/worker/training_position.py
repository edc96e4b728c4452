"""Position of a worker in a training: its next step, its parameters and state, and its counters."""

from collections import OrderedDict
from dataclasses import astuple, dataclass, field, replace
from typing import Any

from services.strategies import StepResult
from services.worker.counters import LossAndStepCounters


@dataclass(frozen=True)
class TrainingPosition:
    """State of a worker between two steps, from which its training can continue."""

    next_step: int
    result: StepResult  # of the step before
    counters: LossAndStepCounters


async def forget_position(_: TrainingPosition) -> None:
    """Keep no position: the training can't go back to it."""


def export_position(position: TrainingPosition) -> tuple[Any, ...]:
    """Return a position as a tuple of values that can be stored and sent."""
    result, counters = position.result, position.counters
    values = (result.params, result.state, result.samples, result.pending_samples, result.eval_params)
    return position.next_step, values, astuple(counters)


def import_position(state: tuple[Any, ...]) -> TrainingPosition:
    """Return the position of which `export_position` has returned `state`."""
    next_step, (params, worker_state, samples, pending_samples, eval_params), counters = state
    result = StepResult(params, worker_state, samples=samples, pending_samples=pending_samples, eval_params=eval_params)
    return TrainingPosition(next_step, result, LossAndStepCounters(*counters))


@dataclass
class RecoveryPoints:
    """The last positions of a worker at which all workers have exchanged everything, by their next step.

    Arrays are not copied: updates replace them by new ones.
    """

    period: int  # steps from one exchange to the next; only these steps are recovery points
    capacity: int = 2  # workers are at most one exchange apart
    _positions: "OrderedDict[int, TrainingPosition]" = field(default_factory=OrderedDict)

    @property
    def steps(self) -> tuple[int, ...]:
        """Steps from which the worker can continue."""
        return tuple(self._positions)

    def add(self, position: TrainingPosition) -> None:
        """Keep a position if it is a recovery point, and forget the oldest one."""
        if position.next_step % self.period:
            return
        result = replace(position.result, end_of_next_forward_s=None)  # nothing overlaps with the step before
        self._positions[position.next_step] = replace(position, result=result, counters=replace(position.counters))
        while len(self._positions) > self.capacity:
            self._positions.popitem(last=False)

    def replace_all(self, position: TrainingPosition) -> None:
        """Forget all positions, and keep this one."""
        self._positions.clear()
        self.add(position)

    def go_back_to(self, step: int) -> TrainingPosition:
        """Return the position before `step`, and forget all later ones.

        Raises:
            KeyError: there is no such recovery point.
        """
        position = self._positions[step]
        for later in [kept for kept in self._positions if kept > step]:
            del self._positions[later]
        return replace(position, counters=replace(position.counters))
