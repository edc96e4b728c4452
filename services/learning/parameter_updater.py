"""Update of a model's parameters: optimiser, learning-rate schedule and gradient clipping together."""

from dataclasses import dataclass
from math import inf

from services.learning.layout import ArrayRange
from services.learning.optimisers import AnyOptimiser, OptimiserState
from services.learning.schedules import AnySchedule, ConstantSchedule
from services.schema.arrays import Vector, euclidean_norm

CONSTANT_RATE = ConstantSchedule()


@dataclass(frozen=True)
class ParameterUpdater:
    """Optimiser with a learning-rate schedule and gradient clipping, for the updates of one training phase.

    Workers that run the optimiser and servers update parameters only with this class.
    """

    optimiser: AnyOptimiser
    rate_schedule: AnySchedule = CONSTANT_RATE
    sample_budget: int = 1  # samples of the whole run; a constant rate does not depend on them
    clip_norm: float | None = None  # largest norm of the gradient of an update; None: no limit
    arrays: tuple[ArrayRange, ...] = ()  # of the model; a server that owns a part of the vector does not need them

    def init_state(self, params: Vector) -> OptimiserState:
        """Return the optimiser's state before the first update of `params`."""
        return self.optimiser.init_state(params)

    def update_params(
        self, params: Vector, grad: Vector, state: OptimiserState, samples_before: int, rate_factor: float = 1.0
    ) -> tuple[Vector, OptimiserState]:
        """Return the parameters and the state after one update with the gradient `grad`.

        Args:
            params: parameters before the update.
            grad: mean gradient over all samples of the update.
            state: state of the optimiser before the update.
            samples_before: samples used for the parameters before the update, which determine the schedule's factor.
            rate_factor: further factor on the learning rate of this update, for example of stale gradients.
        """
        if self.clip_norm is not None:
            grad = clip_to_norm(grad, self.clip_norm)
        rate_factor *= self.rate_schedule.rate_factor(samples_before / self.sample_budget)
        return self.optimiser.update_params(params, grad, state, self.arrays, rate_factor)


def clip_to_norm(gradient: Vector, max_norm: float) -> Vector:
    """Return the gradient, scaled down to the Euclidean norm `max_norm` if its norm is larger.

    R. Pascanu, T. Mikolov, Y. Bengio, "On the difficulty of training recurrent neural networks", ICML 2013. A gradient
    whose norm is not finite is returned unchanged: scaled to zero, it would hide that training has diverged.
    """
    norm = float(euclidean_norm(gradient))
    return gradient * gradient.dtype.type(max_norm / norm) if max_norm < norm < inf else gradient
