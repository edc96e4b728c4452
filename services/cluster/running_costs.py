"""Power draw and price of a node, as a scenario declares them. Nothing is assumed for nodes that declare neither."""

import re
from collections.abc import Iterable, Iterator
from typing import ClassVar, NamedTuple, Self

from pydantic import Field, model_validator

from services.schema.component import FrozenRecord
from services.schema.conflicts import KeyConflict, KeyPath, raise_conflicts
from services.schema.units import NUMBER_PATTERN, Power
from services.schema.validated_text import ValidatedText

PRICE_PATTERN = rf"^({NUMBER_PATTERN})\s*([A-Za-z]{{1,16}})/h$"
PRICE_EXAMPLE = "2.5 USD/h"
MAX_PRICE_PER_HOUR = 1e9
WATTS_DESCRIPTION = "declared power draw of the node, idle and while it computes, such as {idle: 70W, busy: 700W}"
PRICE_DESCRIPTION = f"declared price of the node per hour with its currency, such as {PRICE_EXAMPLE}"


class HourlyPrice(ValidatedText):
    """Price of a node per hour, as text: `2.5 USD/h`. The currency is a label without a meaning for Ensayo."""

    __slots__ = ("amount", "currency")

    forms = f"a price per hour with its currency, for example {PRICE_EXAMPLE}"
    json_schema: ClassVar = {"type": "string", "pattern": PRICE_PATTERN, "examples": [PRICE_EXAMPLE]}
    amount: float
    currency: str

    def __new__(cls, text: str) -> Self:
        """Create a price from its text.

        Raises:
            ValueError: the text is not a positive number with a currency, per hour.
        """
        match = re.match(PRICE_PATTERN, text)
        if match is None or not 0 < float(match[1]) <= MAX_PRICE_PER_HOUR:
            raise ValueError(
                f"{text!r} is not a price per hour; write a number above zero and at most {MAX_PRICE_PER_HOUR:g}, a "
                f"currency and /h, such as {PRICE_EXAMPLE}"
            )
        price = super().__new__(cls, text)
        price.amount, price.currency = float(match[1]), match[2]
        return price


class PowerDraw(FrozenRecord):
    """Power that a node draws while it waits, and while it computes."""

    idle: Power = Field(description="power while the node does not compute")
    busy: Power = Field(description="power while the node computes")

    @model_validator(mode="after")
    def _reject_busy_below_idle(self) -> Self:
        if self.busy < self.idle:
            message = f"busy ({self.busy}) is below idle ({self.idle}); declare at least the idle power"
            raise_conflicts([KeyConflict(("busy",), message)])
        return self

    def mean_watts(self, compute_share: float) -> float:
        """Return the mean power in watts of a node that computes for this share of the time."""
        return self.idle + (self.busy - self.idle) * compute_share


class DeclaredPrice(NamedTuple):
    """Price in a scenario, and the path of its key."""

    key_path: KeyPath
    price: HourlyPrice | None


def find_currency_conflicts(declared_prices: Iterable[DeclaredPrice]) -> Iterator[KeyConflict]:
    """Yield a conflict for every price in another currency than the first one: their sum would have no meaning."""
    first: HourlyPrice | None = None
    for key_path, price in declared_prices:
        first = first or price
        if price and first and price.currency != first.currency:
            message = f"prices in {first.currency} and {price.currency} cannot be added; use one currency for all nodes"
            yield KeyConflict(key_path, message)
