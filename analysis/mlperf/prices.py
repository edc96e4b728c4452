"""Declared prices and power draws of accelerators, for the cost and energy of published results."""

from collections.abc import Mapping
from typing import Self, TypeAlias

from pydantic import Field, model_validator

from analysis.mlperf.reading.results import MlperfResult
from services.cluster.running_costs import PRICE_EXAMPLE, HourlyPrice
from services.schema.component import FrozenRecord
from services.schema.units import Power

PRICE_FILE_EXAMPLE = f"H100 SXM: {{price: {PRICE_EXAMPLE}, watts: {Power.example}}}"


class AcceleratorPrice(FrozenRecord):
    """Declared price and power draw of one accelerator."""

    price: HourlyPrice | None = Field(None, description=f"price of one accelerator per hour, such as {PRICE_EXAMPLE}")
    watts: Power | None = Field(None, description=f"mean power draw of one accelerator, such as {Power.example}")

    @model_validator(mode="after")
    def _reject_empty_declaration(self) -> Self:
        if self.price is None and self.watts is None:
            raise ValueError(f"declare price, watts or both, for example {PRICE_FILE_EXAMPLE}")
        return self


PriceByAccelerator: TypeAlias = Mapping[str, AcceleratorPrice]  # kind or name of an accelerator -> its price


def find_accelerator_price(price_by_accelerator: PriceByAccelerator, result: MlperfResult) -> AcceleratorPrice | None:
    """Return the declared price of a result's accelerator, by its name or else by its kind; None without one."""
    return price_by_accelerator.get(result.accelerator) or price_by_accelerator.get(result.accelerator_kind)
