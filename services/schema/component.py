"""Base classes of the records that a user writes in a scenario."""

from pydantic import BaseModel, ConfigDict


class FrozenRecord(BaseModel):
    """Base class of immutable records, which reject unknown keys.

    Unknown keys, NaN and infinity are validation errors.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ScenarioComponent(FrozenRecord):
    """Base class of strategies, models and other parts that a scenario selects by `kind`.

    Fields are hyperparameters. A component keeps no state: methods take state as an argument and return the new state.
    So all nodes can share one component, and a printed component shows exactly what the user wrote.
    """

    kind: str  # each subclass narrows the type to a literal
