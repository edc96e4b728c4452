"""Choice of the reference convergence points with which a trial is compared, and the reason if none can be chosen."""

from collections.abc import Iterable
from math import isclose
from typing import Any

from pydantic import BaseModel

from analysis.convergence.reference_points import ConvergenceWorkload, ReferenceWorkload

# Fields in which a workload may differ from a reference that is named in the reason. Their texts are scenario keys.
TRAINING_SETTINGS = {
    "evaluate_every": "evaluate_every",
    "schedule": "schedule",
    "schedule_samples": "the sample budget of the schedule",
    "clip_norm": "clip_norm",
    "order": "order",
    "partition": "partition",
}


def find_reference(
    workload: ConvergenceWorkload, references: Iterable[ReferenceWorkload]
) -> tuple[ReferenceWorkload | None, str]:
    """Return the reference of a workload; if there is none but one with other training settings, return the reason.

    Each of these settings changes the samples to target: evaluations, schedule, largest norm of the gradient, and
    order and partition of the samples. A workload with another dataset, model, optimiser, target or precision has
    no reference and no reason.
    """
    reason = ""
    for reference in references:
        different = [name for name in ConvergenceWorkload.model_fields if _differ(name, workload, reference.workload)]
        if not different:
            return reference, ""
        if not reason and TRAINING_SETTINGS.keys() >= set(different):
            reason = _other_setting_reason(different[0], workload, reference)
    return None, reason


def other_rate_factor_reason(reference: ReferenceWorkload, batch: int, rate_factor: float) -> str:
    """Return why a trial whose learning rate has this factor is not compared; empty if the reference has it, too."""
    expected = reference.batch_rate_factor(batch)
    if isclose(rate_factor, expected):
        return ""
    return (
        f"batch_scaling multiplies the learning rate by {rate_factor:g}, and by {expected:g} in the reference points "
        f"of {reference.name} with batch {batch}"
    )


def _differ(field_name: str, first: ConvergenceWorkload, second: ConvergenceWorkload) -> bool:
    return bool(getattr(first, field_name) != getattr(second, field_name))


def _other_setting_reason(field_name: str, workload: ConvergenceWorkload, reference: ReferenceWorkload) -> str:
    value, expected = (_format_setting(getattr(each, field_name)) for each in (workload, reference.workload))
    return f"{TRAINING_SETTINGS[field_name]} is {value}, and {expected} in the reference points of {reference.name}"


def _format_setting(value: Any) -> str:
    """Return a value as in a scenario file."""
    if isinstance(value, BaseModel):
        keys = value.model_dump(exclude_none=True)
        return f"{{{', '.join(f'{key}: {item}' for key, item in keys.items())}}}"
    if value is None:
        return "not declared"
    return f"{value:,}"
