"""Metrics in the output of commands."""

import pytest

from services.commands.log_lines import MetricPatterns


def test_a_line_may_state_several_metrics() -> None:
    """Most scripts print loss and accuracy together."""
    patterns = MetricPatterns({"loss": r"loss=([^ ]+)", "accuracy": "acc ([0-9.]+)%?"})

    assert patterns.find_values("epoch 3 loss=1.5e-2 acc 0.75") == {"loss": 0.015, "accuracy": 0.75}
    assert patterns.find_values("epoch 3 loss=nothing") == {}
    assert patterns.find_values("") == {}


@pytest.mark.parametrize("text", ["nan", "inf"])
def test_a_loss_that_is_no_finite_number_is_a_value(text: str) -> None:
    """A training that diverges prints it, and the trial then counts as diverged."""
    values = MetricPatterns({"loss": r"loss=(\S+)"}).find_values(f"loss={text}")

    assert str(values["loss"]) == text
