"""What every record that a person may write has in common."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A frozen record: unknown keys are errors, values never change after construction."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Component(Record):
    """A record that also does the work: its fields are the hyperparameters, its `kind` is its name in a scenario.

    State is handed in and given back, so one component can be shared by every node and printed as it was written.
    """

    kind: str  # every member narrows it to a literal of its own
