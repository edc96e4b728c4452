"""Validation of status.json, the status file of a trial.

The file says how the trial ended, and what the engine measured of links and host. Checks read the keys that they need
from a dict. This module only checks the types of the values, so that a file of another version is reported as damage
and not as an error of a check.
"""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails

from services.plan.trial_outcome import TrialOutcome

OTHER_VERSION_ERRORS = {"missing", "extra_forbidden", "literal_error"}  # keys and names that differ between versions
NUMBER_ERRORS = {"float_type", "int_type"}
NULLABLE_SECTIONS = {"reason", "timings_s", "exit_codes", "shaping", "throttling", "host"}


def validate_trial_status(trial_status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of status.json unchanged if every known key has the right type.

    Keys may be missing or unknown, and a number may be null. A number in quotation marks is an error, because checks
    compute with it.

    Raises:
        ValidationError: a known key has another type.
    """
    try:
        TrialOutcome.model_validate_json(json.dumps(trial_status), strict=True)
    except ValidationError as error:
        if damage := [_to_pydantic_init_error(each) for each in error.errors() if not _is_tolerated_error(each)]:
            raise ValidationError.from_exception_data(error.title, damage, input_type="json") from None
    return dict(trial_status)


def _is_tolerated_error(error_details: ErrorDetails) -> bool:
    if error_details["type"] in OTHER_VERSION_ERRORS:
        return True
    is_section = len(error_details["loc"]) == 1 and error_details["loc"][0] in NULLABLE_SECTIONS
    return error_details["input"] is None and (is_section or error_details["type"] in NUMBER_ERRORS)


def _to_pydantic_init_error(error: ErrorDetails) -> InitErrorDetails:
    return InitErrorDetails(type=error["type"], loc=error["loc"], input=error["input"], ctx=error.get("ctx", {}))
