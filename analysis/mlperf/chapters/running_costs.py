"""Chapter on the accelerator-hours of each result, and on its energy and cost where prices are declared."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.mlperf.chapters.base import Chapter, ChapterTable, TableColumn
from analysis.mlperf.prices import AcceleratorPrice, PriceByAccelerator, find_accelerator_price
from analysis.mlperf.reading.results import MlperfResult
from analysis.mlperf.study import MlperfStudy, WorkloadComparison
from analysis.report.wording import format_minutes, format_number
from services.cluster.running_costs import HourlyPrice

MINUTES_PER_HOUR = 60
WATTS_PER_KILOWATT = 1000
NOT_DECLARED = "not declared"
LIMITS_TEXT = (
    "Accelerator-hours are the number of accelerators times the training time, initialisation not counted. Energy and "
    "cost follow from declared numbers (--prices): hours times the declared power draw and price of an accelerator. "
    "They are no measurements, and hosts and networks are not counted unless the declared numbers contain them."
)


def _format_or_not_declared(value: float | None) -> str:
    return NOT_DECLARED if value is None or pd.isna(value) else format_number(value)


COLUMNS = (
    TableColumn("workload", "workload"),
    TableColumn("system", "system"),
    TableColumn("accelerator", "accelerator"),
    TableColumn("accelerators", "accelerators"),
    TableColumn("minutes", "minutes", format_minutes),
    TableColumn("accelerator_hours", "accelerator-hours"),
    TableColumn("energy_kwh", "energy, kWh (model)", _format_or_not_declared),
    TableColumn("cost", "cost", _format_or_not_declared),
    TableColumn("currency", "currency"),
)


@dataclass(frozen=True)
class ResultCosts:
    """Accelerator-hours of one result, and its energy and cost where they follow from declared numbers."""

    workload: str
    result: MlperfResult
    declared: AcceleratorPrice | None

    @property
    def accelerator_hours(self) -> float:
        """Number of accelerators times training time."""
        return self.result.accelerator_count * self.result.minutes / MINUTES_PER_HOUR

    @property
    def energy_kwh(self) -> float | None:
        """Accelerator-hours times the declared power draw; None without one."""
        watts = self.declared.watts if self.declared else None
        return None if watts is None else self.accelerator_hours * watts / WATTS_PER_KILOWATT

    @property
    def cost(self) -> float | None:
        """Accelerator-hours times the declared price; None without one."""
        return self.accelerator_hours * self.price.amount if self.price else None

    @property
    def price(self) -> HourlyPrice | None:
        """Declared price of an accelerator per hour."""
        return self.declared.price if self.declared else None

    @property
    def currency(self) -> str:
        """Currency of the cost; empty without one."""
        return self.price.currency if self.price else ""

    def as_row(self) -> dict[str, object]:
        """Return the row of the chapter's tables."""
        return {
            "workload": self.workload,
            "system": f"{self.result.submitter} {self.result.system}",
            "accelerator": self.result.accelerator_kind,
            "accelerators": self.result.accelerator_count,
            "minutes": self.result.minutes,
            "accelerator_hours": self.accelerator_hours,
            "energy_kwh": self.energy_kwh,
            "cost": self.cost,
            "currency": self.currency,
        }

    def describe(self, value_text: str) -> str:
        """Return a text such as `BERT 0.66 (Dell XE9680, 8 × H100 SXM)`, for a value of this result."""
        result = self.result
        system = f"{result.submitter} {result.system}, {result.accelerator_count:,} × {result.accelerator_kind}"
        return f"{self.workload} {value_text} ({system})"


def running_costs_chapter(mlperf_study: MlperfStudy) -> Chapter | None:
    """Return the chapter on accelerator-hours, energy and cost; None without results of accelerators."""
    prices = mlperf_study.price_by_accelerator
    costs_by_workload = [_costs_of_workload(workload, prices) for workload in mlperf_study.workloads]
    all_costs = [costs for workload_costs in costs_by_workload for costs in workload_costs]
    if not all_costs:
        return None
    least = [min(costs, key=lambda each: each.accelerator_hours) for costs in costs_by_workload if costs]
    tables = (
        ChapterTable("least-accelerator-hours", "Least accelerator-hours of each workload", COLUMNS, _as_frame(least)),
        ChapterTable("running-costs", "All results of accelerators", COLUMNS, _as_frame(all_costs), is_short=False),
    )
    hours_text = ", ".join(each.describe(format_number(each.accelerator_hours)) for each in least)
    finding = f"Least accelerator-hours: {hours_text}; {_describe_least_costs(costs_by_workload)}."
    return Chapter("Accelerator-hours, energy and cost", finding, (LIMITS_TEXT,), tables)


def _costs_of_workload(workload: WorkloadComparison, prices: PriceByAccelerator) -> list[ResultCosts]:
    results = [each.result for each in workload.systems if each.result.unit == "accelerators"]
    return [ResultCosts(workload.name, result, find_accelerator_price(prices, result)) for result in results]


def _describe_least_costs(costs_by_workload: Sequence[Sequence[ResultCosts]]) -> str:
    """Return the least cost of each workload among the results with a declared price."""
    priced = [[(each.cost, each) for each in costs if each.cost is not None] for costs in costs_by_workload]
    least = [min(costs, key=lambda pair: pair[0]) for costs in priced if costs]
    if not least:
        return f"cost: {NOT_DECLARED}"
    texts = [each.describe(f"{format_number(cost)} {each.currency}") for cost, each in least]
    return f"least cost of accelerators with a declared price: {', '.join(texts)}"


def _as_frame(costs: Sequence[ResultCosts]) -> pd.DataFrame:
    return pd.DataFrame([each.as_row() for each in costs]).astype({"energy_kwh": float, "cost": float})
