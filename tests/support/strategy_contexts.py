"""Properties of scenarios, for tests of strategies without a trial."""

from services.strategies import ScenarioSizes, Strategy


def context(workers: int) -> ScenarioSizes:
    """Return the properties of a scenario with `workers` workers that fits every strategy with a period of one step."""
    return ScenarioSizes(
        workers=workers,
        steps=100,
        steps_per_epoch=10,
        evaluations=10,
        array_sizes=(1000,),
        has_link_rates=True,
    )


def fits(strategy: Strategy, workers: int) -> bool:
    """Return whether a strategy allows this number of workers."""
    has_conflict = bool(strategy.explain_worker_count_conflict(workers))
    return not has_conflict and not list(strategy.find_scenario_conflicts(context(workers)))
