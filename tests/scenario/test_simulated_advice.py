"""Advice for commands, which the engine `simulated` can't run."""

import pytest

from analysis.checks.verdict import SLOW_HOST_REMEDY, WRONG_LINKS_REMEDY
from services.scenario.commands.simulated_advice import leave_out_simulated_engine


@pytest.mark.parametrize(
    ("advice", "shortened"),
    [
        ("late (limit 5 ms); raise the dilation, or use the engine simulated", "late (limit 5 ms); raise the dilation"),
        ("Write dilation: 3 or dilation: auto, or use --engine simulated", "Write dilation: 3 or dilation: auto"),
        (
            SLOW_HOST_REMEDY,
            "This host is too slow for the declared cluster: declare slower workers, or raise the dilation.",
        ),
        (
            WRONG_LINKS_REMEDY,
            "The links differed from their declaration: raise the dilation, or declare lower rates or longer delays.",
        ),
        ("no advice, or none that is known", "no advice, or none that is known"),
    ],
)
def test_the_other_alternatives_stay(advice: str, shortened: str) -> None:
    """A user who follows the advice would otherwise get an error."""
    assert leave_out_simulated_engine(advice) == shortened
