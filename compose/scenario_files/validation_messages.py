"""Messages that explain validation errors of pydantic to users.

They state the wrong value, the allowed values, and how to fix the value.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from compose.scenario_files.json_schema import (
    allowed_component_kinds,
    describe_allowed_number,
    find_allowed_keys,
    find_key_description,
    find_kind_without_key,
)
from services.schema.conflicts import KeyConflict, KeyPath, ScenarioKeyConflictError

MISSING_KIND_TEMPLATE = (
    "needs a kind, for example {{kind: {it.first_allowed_kind}}}; supported kinds are {it.allowed_kinds_text}"
)

KEY_OF_OTHER_KIND_TEMPLATE = (
    "{it.kind_without_key} does not support {it.key}; remove it; allowed keys are {it.sibling_keys}"
)

# Type of a pydantic error -> message. For all other types, the message of pydantic is clear.
MESSAGE_TEMPLATES: Mapping[str, str] = {
    "extra_forbidden": "unknown key; allowed keys are {it.sibling_keys}{it.similar_name_hint}",
    "item_missing": "has too few items{it.key_description_text}",
    "missing": "required key is missing; add it",
    "model_type": "must be a section of keys and values{it.wrong_value_text}; allowed keys are {it.allowed_keys}",
    "dict_type": "must be a section of keys and values{it.wrong_value_text}{it.key_description_text}",
    "list_type": "must be a list{it.wrong_value_text}{it.list_syntax_hint}{it.key_description_text}",
    "tuple_type": "must be a list{it.wrong_value_text}{it.list_syntax_hint}{it.key_description_text}",
    "bool_type": "must be true or false{it.wrong_value_text}",
    "too_long": "has too many items{it.key_description_text}",
    "too_short": "must not be empty; declare at least one entry{it.key_description_text}",
    "string_pattern_mismatch": "{it.given_value!r} is not allowed; use only lower-case letters, digits, - and _",
    "union_tag_not_found": MISSING_KIND_TEMPLATE,
    "model_attributes_type": MISSING_KIND_TEMPLATE,
    "union_tag_invalid": (
        "{it.unsupported_component_kind!r} is not supported; "
        "supported kinds are {it.allowed_kinds_text}{it.similar_name_hint}"
    ),
    "literal_error": "{it.given_value!r} is not supported; choose {it.allowed_values_text}",
    "value_error": "{it.error_from_validator}",
}


def explain_validation_error(pydantic_error: ValidationError, document: Any) -> Iterator[KeyConflict]:
    """Yield a conflict between scenario keys for each validation error of a scenario document.

    The conflict states the wrong key and an explanation.
    """
    for details in pydantic_error.errors(include_url=False):
        finding = InvalidScenarioValue(details, document, key_path_of_error(details["loc"], document))
        yield from finding.validation_problems()


def key_path_of_error(pydantic_location: tuple[Any, ...], document: Any) -> KeyPath:
    """Convert the location of a pydantic validation error to the path of keys in the scenario document.

    The kind of a component in the location, and `[key]` after a wrong label, are left out. A kind is recognised
    by its position right after the key of a component, since a key may have the same name as a kind.
    """
    path: list[Any] = []
    value, remaining = document, iter(pydantic_location)
    for key in remaining:
        if not isinstance(value, list if isinstance(key, int) else dict) or (key == "[key]" and key not in value):
            break
        if isinstance(key, int) and key >= len(value):
            break
        path.append(key)
        value = value[key] if isinstance(value, list) else value.get(key)
        if allowed_component_kinds(document, tuple(path)):
            next(remaining, None)  # the kind of the component
    return tuple(path)


@dataclass(frozen=True)
class InvalidScenarioValue:
    """An invalid value in a scenario: pydantic's validation error, and the texts that message templates insert."""

    details: ErrorDetails
    data: Any  # the whole document
    path: KeyPath  # of the wrong value in the document

    def validation_problems(self) -> Iterator[KeyConflict]:
        """Yield the conflict between scenario keys that this validation error describes.

        If a validator found several conflicts, yield all of them.
        """
        if self.error_type == "too_short" and self.given_value:
            return  # pydantic does not count invalid items; each of these has an error of its own
        error = self.error_from_validator
        if isinstance(error, ScenarioKeyConflictError):
            yield from (KeyConflict((*self.path, *inner.key_path), inner.message) for inner in error.conflicts)
        else:
            yield KeyConflict(self.path, self.message)

    @property
    def message(self) -> str:
        """Message for the user: what is wrong with the value, and what is allowed."""
        template = MESSAGE_TEMPLATES.get(self.error_type)
        if self.allowed_kinds_text and self.error_type == "dict_type":
            template = MISSING_KIND_TEMPLATE
        if self.error_type == "extra_forbidden" and self.kind_without_key:
            template = KEY_OF_OTHER_KIND_TEMPLATE
        if template:
            return template.format(it=self)
        if allowed_number := describe_allowed_number(self.data, self.path):
            return f"must be {allowed_number}{self.wrong_value_text}"
        subject, should, rest = self.details["msg"].partition(" should ")  # such as "Input should be a valid string"
        return (f"must {rest}" if should else subject) + self.wrong_value_text

    @property
    def error_type(self) -> str:
        """Type of the validation error, as named by pydantic.

        The type is `item_missing` if a list has too few items.
        """
        is_item_missing = self.details["type"] == "missing" and isinstance(self.details["loc"][-1], int)
        return "item_missing" if is_item_missing else self.details["type"]

    @property
    def given_value(self) -> Any:
        """The wrong value in the scenario document."""
        return self.details["input"]

    @property
    def wrong_value_text(self) -> str:
        """End of a message, which quotes the wrong value of a scenario key.

        It is empty unless the value is text or a number.
        """
        return f", not {self.given_value!r}" if isinstance(self.given_value, str | int | float) else ""

    @property
    def key_description_text(self) -> str:
        """Description of the wrong scenario key, in brackets, for a message.

        It is empty if the key has no description.
        """
        description = find_key_description(self.data, self.path)
        return f" ({description})" if description else ""

    @property
    def list_syntax_hint(self) -> str:
        """End of a message that proposes a list, such as `; write [3]`.

        The result is empty unless the value is text or a number.
        """
        return f"; write [{self.given_value}]" if isinstance(self.given_value, str | int | float) else ""

    @property
    def error_from_validator(self) -> object:
        """Exception that a validator of Ensayo has raised.

        It is None if pydantic itself detected the error.
        """
        return self.details.get("ctx", {}).get("error")

    @property
    def allowed_values_text(self) -> str:
        """Allowed values of the wrong scenario key, as text for a message.

        The text has the expected words, and the number if the key also allows a number.
        """
        words, number = str(self.details["ctx"]["expected"]), describe_allowed_number(self.data, self.path)
        return f"{words} or {number}" if number else words

    @property
    def unsupported_component_kind(self) -> str:
        """Component kind that the scenario names and that is not supported."""
        return str(self.details["ctx"]["tag"])

    @property
    def allowed_keys(self) -> str:
        """Keys allowed in the invalid section of the scenario, separated by commas."""
        return ", ".join(find_allowed_keys(self.data, self.path))

    @property
    def sibling_keys(self) -> str:
        """Keys allowed in the section of the wrong key, separated by commas."""
        return ", ".join(find_allowed_keys(self.data, self.path[:-1]))

    @property
    def key(self) -> str:
        """The wrong key, without the sections that contain it."""
        return str(self.path[-1])

    @property
    def kind_without_key(self) -> str:
        """Kind of the component that does not support the key, while other kinds of the same component do.

        It is empty for a key that no kind supports.
        """
        return find_kind_without_key(self.data, self.path)

    @property
    def allowed_kinds_text(self) -> str:
        """Component kinds allowed at the invalid key, separated by commas.

        The result is empty if the key is not a component.
        """
        return ", ".join(allowed_component_kinds(self.data, self.path))

    @property
    def first_allowed_kind(self) -> str:
        """First of the component kinds allowed at the invalid key, as an example for a message."""
        return self.allowed_kinds_text.partition(",")[0]

    @property
    def similar_name_hint(self) -> str:
        """End of a message that suggests the most similar component kind or key.

        The result is empty if none is similar.
        """
        word, known_words = str(self.path[-1]), self.sibling_keys
        if self.allowed_kinds_text:
            word, known_words = self.unsupported_component_kind, self.allowed_kinds_text
        matches = get_close_matches(word, known_words.split(", "), n=1)
        return f"; did you mean {matches[0]}?" if matches else ""
