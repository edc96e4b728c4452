"""Decoding of the plan of a trial from JSON."""

from typing import Annotated, TypeAlias

from pydantic import Field, TypeAdapter

from services.plan.commands.command_plan import CommandPlan
from services.plan.training.training_plan import TrainingPlan

AnyPlan: TypeAlias = Annotated[TrainingPlan | CommandPlan, Field(discriminator="workload_kind")]
_ANY_PLAN: TypeAdapter[TrainingPlan | CommandPlan] = TypeAdapter(AnyPlan)


def decode_plan(plan_json: bytes | str) -> TrainingPlan | CommandPlan:
    """Return the plan that a JSON text describes.

    Raises:
        pydantic.ValidationError: the text is no plan.
    """
    return _ANY_PLAN.validate_json(plan_json)
