"""Quality target: the value of an evaluation metric at which training counts as done."""

from collections.abc import Mapping
from typing import Literal, Self, TypeAlias

from pydantic import Field, model_validator

from services.learning.objectives import OBJECTIVES, LossName, QualityMetric
from services.schema.component import FrozenRecord

MetricName: TypeAlias = Literal["accuracy", "r2", "mae", "mse", "map", "denoising_error", "perplexity", "loss"]


LOSS_METRIC = QualityMetric("at_most", 0.0)

QUALITY_METRICS: Mapping[str, QualityMetric] = {
    name: metric for objective in OBJECTIVES.values() for name, metric in objective.metrics.items()
} | {"loss": LOSS_METRIC}


def metric_names_of_loss(loss: LossName) -> tuple[str, ...]:
    """Return the names of the quality metrics that apply to a learning task with the given loss."""
    return (*OBJECTIVES[loss].metrics, "loss")


class QualityTarget(FrozenRecord):
    """Quality of the model at which training counts as done.

    It is measured on the evaluation set at the end of each epoch, or every `evaluate_every` samples.
    """

    metric: MetricName = Field(
        description="metric: accuracy (classification, tokens); r2, mae, mse (regression); map (detection, mean "
        "average precision at an IoU of 0.5); denoising_error (denoising); perplexity (tokens); loss (all)"
    )
    at_least: float | None = Field(None, description="bound of accuracy, r2 or map, which grow with quality")
    at_most: float | None = Field(None, description="bound of an error, perplexity or loss, which fall with quality")

    @model_validator(mode="after")
    def _check_bound_reachable(self) -> Self:
        properties = QUALITY_METRICS[self.metric]
        if reason := self._explain_wrong_bound_key(properties.bound_key):
            raise ValueError(reason)
        if not properties.is_reachable_bound(self.required_value):
            raise ValueError(
                f"no model reaches {self.metric} {properties.bound_key} {self.required_value:g}; "
                f"the best value is {properties.best_value:g}"
            )
        return self

    def _explain_wrong_bound_key(self, bound_key: Literal["at_least", "at_most"]) -> str:
        """Return why the declared bounds do not suit the metric, which takes `bound_key`; empty if they suit it."""
        other_key = "at_most" if bound_key == "at_least" else "at_least"
        has_bound, has_other = getattr(self, bound_key) is not None, getattr(self, other_key) is not None
        if has_bound:
            return f"metric {self.metric} takes only {bound_key}; remove {other_key}" if has_other else ""
        if has_other:
            value = getattr(self, other_key)
            return f"metric {self.metric} takes {bound_key}, not {other_key}; write {bound_key}: {value:g}"
        return f"metric {self.metric} needs {bound_key}; write for example {bound_key}: 0.9"

    @property
    def required_value(self) -> float:
        """Metric value that the model has to reach: the declared `at_least` or `at_most`."""
        return float(getattr(self, QUALITY_METRICS[self.metric].bound_key))

    def is_reached(self, values_by_metric: Mapping[str, float]) -> bool:
        """Return whether the metrics of an evaluation, by name, reach this quality target.

        They do not if they lack its metric: a line of a user's command may state only some metrics.
        """
        return self.metric in values_by_metric and self.is_reached_by(values_by_metric[self.metric])

    def is_reached_by(self, metric_value: float) -> bool:
        """Return whether a value of the metric reaches this quality target; NaN never does."""
        return metric_value >= self.required_value if self.at_least is not None else metric_value <= self.required_value

    def __str__(self) -> str:
        return f"{self.metric} {'≤' if self.at_least is None else '≥'} {self.required_value:g}"
