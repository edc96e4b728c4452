"""Scenarios as a strategy sees them, for tests that look at strategies alone."""

from services.strategies import ScenarioProperties, Strategy


def context(workers: int) -> ScenarioProperties:
    """A scenario of `workers` workers that fits every strategy with a period of one step."""
    return ScenarioProperties(workers=workers, steps=100, steps_per_epoch=10, array_sizes=(1000,), has_link_rates=True)


def fits(strategy: Strategy, workers: int) -> bool:
    """Whether a strategy takes this number of workers."""
    return not list(strategy.conflicts(context(workers)))
