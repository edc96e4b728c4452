"""How does pydantic's finding read to the person who wrote the file?"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from compose.scenario_files.json_schema import description, keys, kinds, number
from services.schema.conflicts import Conflict, ConflictError, KeyPath

KINDS = "needs a kind; supported kinds are {it.kinds}"

TEMPLATES: Mapping[str, str] = {  # type of a finding -> its wording; what is not here, pydantic words well
    "extra_forbidden": "unknown key; allowed here are {it.siblings}{it.guess}",
    "item_missing": "needs more items{it.meaning}",
    "missing": "is missing, and has no default",
    "model_type": "should be a section{it.instead}; its keys are {it.keys}",
    "dict_type": "should be a section{it.instead}{it.meaning}",
    "list_type": "should be a list{it.instead}{it.meaning}",
    "tuple_type": "should be a list{it.instead}{it.meaning}",
    "bool_type": "should be true or false{it.instead}",
    "too_long": "should have fewer items{it.meaning}",
    "too_short": "should not be empty",
    "string_pattern_mismatch": "{it.given!r} should be made of small letters, digits, - and _",
    "union_tag_not_found": KINDS,
    "model_attributes_type": KINDS,
    "union_tag_invalid": "{it.tag!r} is not supported; supported kinds are {it.kinds}{it.guess}",
    "literal_error": "{it.given!r} is not supported; choose {it.expected}",
    "value_error": "{it.cause}",
}


def explain(error: ValidationError, data: Any) -> Iterator[Conflict]:
    """Every finding of `error` about the document `data`: the key to change, what is wrong, what is allowed."""
    for details in error.errors(include_url=False):
        finding = Finding(details, data, written(details["loc"], data))
        yield from finding.conflicts()


def written(loc: tuple[Any, ...], data: Any) -> KeyPath:
    """The path in the file of pydantic's `loc`, which also names the kind of each component and marks wrong labels.

    A kind stands in it right after the place of a component. It is told by that: a key may have the same name.
    """
    path: list[Any] = []
    here, rest = data, iter(loc)
    for key in rest:
        if not isinstance(here, list if isinstance(key, int) else dict) or (key == "[key]" and key not in here):
            break
        if isinstance(key, int) and key >= len(here):
            break
        path.append(key)
        here = here[key] if isinstance(here, list) else here.get(key)
        if kinds(data, tuple(path)):
            next(rest, None)
    return tuple(path)


@dataclass(frozen=True)
class Finding:
    """What pydantic found at one path of a document, in the words that templates use."""

    details: ErrorDetails
    data: Any
    path: KeyPath

    def conflicts(self) -> Iterator[Conflict]:
        """The finding, or those that it stands for."""
        if self.type == "too_short" and self.given:
            return  # pydantic counts items that are good; what is wrong with the others is found too
        if isinstance(self.cause, ConflictError):
            yield from (Conflict((*self.path, *inner.key_path), inner.message) for inner in self.cause.conflicts)
        else:
            yield Conflict(self.path, self.message)

    @property
    def message(self) -> str:
        """What is wrong, and what is allowed."""
        template = KINDS if self.kinds and self.type == "dict_type" else TEMPLATES.get(self.type)
        allowed = number(self.data, self.path)
        pydantics = f"should be {allowed}" if allowed else self.details["msg"].replace("Input ", "")
        return template.format(it=self) if template else pydantics + self.instead

    @property
    def type(self) -> str:
        """Pydantic's word for what is wrong, or ours for an item that a list lacks."""
        lacks = self.details["type"] == "missing" and isinstance(self.details["loc"][-1], int)
        return "item_missing" if lacks else self.details["type"]

    @property
    def given(self) -> Any:
        """The value that stands there."""
        return self.details["input"]

    @property
    def instead(self) -> str:
        """A half sentence on the value that stands there."""
        return f", not {self.given!r}" if isinstance(self.given, str | int | float) else ""

    @property
    def meaning(self) -> str:
        """A half sentence on what stands there."""
        meaning = description(self.data, self.path)
        return f" ({meaning})" if meaning else ""

    @property
    def cause(self) -> object:
        """The exception of one of our own validators."""
        return self.details.get("ctx", {}).get("error")

    @property
    def expected(self) -> str:
        """The words that may stand there."""
        return str(self.details["ctx"]["expected"])

    @property
    def tag(self) -> str:
        """The kind that stands there."""
        return str(self.details["ctx"]["tag"])

    @property
    def keys(self) -> str:
        """The keys that may stand below."""
        return ", ".join(keys(self.data, self.path))

    @property
    def siblings(self) -> str:
        """The keys that may stand beside it."""
        return ", ".join(keys(self.data, self.path[:-1]))

    @property
    def kinds(self) -> str:
        """The kinds of component that may stand there; empty where no component stands."""
        return ", ".join(kinds(self.data, self.path))

    @property
    def guess(self) -> str:
        """A half sentence on the word that was probably meant."""
        word, known = (self.tag, self.kinds) if self.kinds else (str(self.path[-1]), self.siblings)
        close = get_close_matches(word, known.split(", "), n=1)
        return f"; did you mean {close[0]}?" if close else ""
