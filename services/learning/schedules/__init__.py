"""Learning-rate schedules: factors on the learning rate during training.

constant        the declared rate
linear_warmup   warm-up, then the declared rate
cosine          falls along half a period of a cosine
polynomial      falls as a power of the remaining budget
step            is multiplied by a factor at each milestone

All except `constant` can start with a warm-up. `AnySchedule` is the registry: a scenario may name each member of this
union by its `kind`.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from services.learning.schedules.base import LearningRateSchedule, TrainingBudget
from services.learning.schedules.constant import ConstantSchedule
from services.learning.schedules.cosine import CosineSchedule
from services.learning.schedules.linear_warmup import LinearWarmup
from services.learning.schedules.polynomial import PolynomialSchedule
from services.learning.schedules.step import StepSchedule

AnySchedule: TypeAlias = Annotated[
    ConstantSchedule | LinearWarmup | CosineSchedule | PolynomialSchedule | StepSchedule, Field(discriminator="kind")
]

__all__ = [
    "AnySchedule",
    "ConstantSchedule",
    "CosineSchedule",
    "LearningRateSchedule",
    "LinearWarmup",
    "PolynomialSchedule",
    "StepSchedule",
    "TrainingBudget",
]
