"""Metrics in the output of commands."""

import pytest

from services.commands.log_lines import MetricPatterns, explain_missing_metrics


def test_a_line_may_state_several_metrics() -> None:
    """Most scripts print loss and accuracy together."""
    patterns = MetricPatterns({"loss": r"loss=([^ ]+)", "accuracy": "acc ([0-9.]+)%?"})

    assert patterns.find_values("epoch 3 loss=1.5e-2 acc 0.75") == {"loss": 0.015, "accuracy": 0.75}
    assert patterns.find_values("epoch 3 loss=nothing") == {}
    assert patterns.find_values("") == {}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("loss=5.811448886561266e-07", 5.811448886561266e-07),
        ("loss=2E3, lr=1e-3", 2000.0),
        ("loss=1.5epochs=3", 1.5),
        ("loss=1.5 e-3", 1.5),
    ],
)
def test_a_pattern_for_digits_reads_a_number_with_its_exponent(line: str, value: float) -> None:
    """Python prints small losses with an exponent; without it, a loss of 6e-07 would be reported as 6."""
    assert MetricPatterns({"loss": "loss=([0-9.]+)"}).find_values(line) == {"loss": value}


@pytest.mark.parametrize("text", ["nan", "inf"])
def test_a_loss_that_is_no_finite_number_is_a_value(text: str) -> None:
    """A training that diverges prints it, and the trial then counts as diverged."""
    values = MetricPatterns({"loss": r"loss=(\S+)"}).find_values(f"loss={text}")

    assert str(values["loss"]) == text


def test_a_note_on_a_missing_metric_shows_the_last_lines() -> None:
    """A pattern that never matches is a mistake that the lines themselves explain."""
    note = explain_missing_metrics(["accuracy"], ["accuracy: 0.9", "done"])

    assert note == (
        "no line of rank 0 matched metrics.accuracy with a number; its last lines were: accuracy: 0.9 | done"
    )
    assert explain_missing_metrics(["a", "b"], []).endswith("metrics.a and metrics.b with a number: it wrote no lines")
