"""Declared payload: messages of a training run that are as large as those of another, larger model.

The declared model is named, or given by its number of parameters and their number format. One entry of the trained
model's vector counts as `PlannedPayload.scale` times its own size wherever bytes are sent, planned or measured.
"""

import re
from functools import cached_property
from typing import ClassVar, NamedTuple, Self, get_args

from services.learning.published_models import (
    BYTES_BY_NUMBER_FORMAT,
    PUBLISHED_MODELS,
    NumberFormat,
    PublishedModel,
    PublishedModelName,
)
from services.schema.component import FrozenRecord
from services.schema.units import NUMBER_PATTERN
from services.schema.validated_text import ValidatedText

MODEL_NAMES: tuple[PublishedModelName, ...] = get_args(PublishedModelName)
NUMBER_FORMATS: tuple[NumberFormat, ...] = get_args(NumberFormat)
COUNT_UNITS = {"": 1.0, "K": 1e3, "M": 1e6, "B": 1e9}
MAX_DECLARED_PARAMETERS = 1e13
ROUNDING_TOLERANCE = 1e-12  # of the product of a decimal fraction and its unit
EXAMPLE = "30.8M x fp32"
PAYLOAD_FORMS = (
    f"a known model ({', '.join(MODEL_NAMES)}) or a number of parameters with a format ({', '.join(NUMBER_FORMATS)}); "
    f"write for example bert-large, bert-large x bf16 or {EXAMPLE}"
)
TIMES_FORMAT_PATTERN = rf"\s*[x×*]\s*({'|'.join(NUMBER_FORMATS)})"
NAMED_PATTERN = rf"^({'|'.join(MODEL_NAMES)})(?:{TIMES_FORMAT_PATTERN})?$"
COUNTED_PATTERN = rf"^({NUMBER_PATTERN})\s*([KMB]?){TIMES_FORMAT_PATTERN}$"


class ModelSize(NamedTuple):
    """Number of parameters of a declared model, and their number format in messages."""

    model_name: PublishedModelName | None  # None: the declared model has no name
    parameter_count: int
    number_format: NumberFormat


class DeclaredPayload(ValidatedText):
    """Model whose messages a scenario declares, as text: `bert-large`, `bert-large x bf16` or `30.8M x fp32`."""

    __slots__ = ("model_size",)

    forms = PAYLOAD_FORMS
    json_schema: ClassVar = {
        "anyOf": [
            {"type": "string", "enum": list(MODEL_NAMES)},
            {"type": "string", "pattern": f"{NAMED_PATTERN}|{COUNTED_PATTERN}", "examples": [EXAMPLE]},
        ]
    }
    model_size: ModelSize

    def __new__(cls, text: str) -> Self:
        """Create a declared payload from its text.

        Raises:
            ValueError: the text names no known model, and no number of parameters with a format.
        """
        payload = super().__new__(cls, text)
        payload.model_size = _parse_payload(text)
        return payload

    @property
    def published_model(self) -> PublishedModel | None:
        """Sizes of the named model; None if the payload is given by a number of parameters."""
        return PUBLISHED_MODELS[self.model_size.model_name] if self.model_size.model_name else None

    @property
    def size_bytes(self) -> int:
        """Bytes of the declared model's vector."""
        return self.model_size.parameter_count * BYTES_BY_NUMBER_FORMAT[self.model_size.number_format]


def _parse_payload(text: str) -> ModelSize:
    """Return the size of the model that the text of a payload declares."""
    if named := re.match(NAMED_PATTERN, text):
        name = next(name for name in MODEL_NAMES if name == named[1])
        model = PUBLISHED_MODELS[name]
        return ModelSize(name, model.parameter_count, _find_number_format(named[2]) or model.number_format)
    counted = re.match(COUNTED_PATTERN, text)
    number_format = _find_number_format(counted[3]) if counted else None
    if counted is None or number_format is None:
        raise ValueError(f"{text!r} is not {PAYLOAD_FORMS}")
    return ModelSize(None, _parse_parameter_count(text, float(counted[1]) * COUNT_UNITS[counted[2]]), number_format)


def _find_number_format(text: str | None) -> NumberFormat | None:
    return next((number_format for number_format in NUMBER_FORMATS if number_format == text), None)


def _parse_parameter_count(text: str, count: float) -> int:
    if not 1 <= count <= MAX_DECLARED_PARAMETERS:
        raise ValueError(f"{text!r} has {count:g} parameters; write 1 to {MAX_DECLARED_PARAMETERS:g} parameters")
    if abs(count - round(count)) > ROUNDING_TOLERANCE * count:
        raise ValueError(f"{text!r} has {count:.12g} parameters; write a whole number of parameters")
    return round(count)


class PlannedPayload(FrozenRecord):
    """Sizes of the declared and of the trained model, as recorded in the plan of a trial."""

    declared: str  # text in the scenario
    model_name: str | None  # None: the scenario gives a number of parameters
    parameters: int  # of the declared model
    number_format: str  # of the declared model's parameters in messages
    size_bytes: int  # of the declared model's vector
    trained_parameters: int
    trained_bytes: int  # of the trained model's vector
    source: str  # of the declared model's sizes; empty for a number of parameters

    @cached_property
    def scale(self) -> float:
        """Bytes on the wire for each byte of the trained model's vector: at least 1."""
        return self.size_bytes / self.trained_bytes


def plan_payload(declared: DeclaredPayload, trained_parameters: int, trained_bytes: int) -> PlannedPayload:
    """Return the sizes of the declared model beside those of the trained model."""
    model = declared.published_model
    return PlannedPayload(
        declared=str(declared),
        model_name=declared.model_size.model_name,
        parameters=declared.model_size.parameter_count,
        number_format=declared.model_size.number_format,
        size_bytes=declared.size_bytes,
        trained_parameters=trained_parameters,
        trained_bytes=trained_bytes,
        source=model.source if model else "",
    )
