"""After which fraction of the workload may workers stop waiting? Sync-Switch's timing policy, by search.

S. Li, O. Mangoubi, L. Xu, T. Guo, "Sync-Switch", ICDCS 2021: bisect the fraction, and keep the earliest whose mean
quality over the repeats is at most β worse than that of training in lockstep to the end. We differ: the quality is
that of the scenario's target, or of its task; every try is an ordinary run with a report of its own.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from services.scenario.scenario import Scenario
from services.schema.errors import UserError

ALL_IN_LOCKSTEP = 1.0


@dataclass(frozen=True)
class Try:
    """One fraction and what came of it."""

    fraction: float
    quality: float  # mean over the repeats
    seconds: float  # mean over the repeats, virtual
    good_enough: bool


def search(measure: Callable[[float], tuple[float, float]], beta: float, tries: int) -> Iterator[Try]:
    """The tries in their order; the first trains in lockstep to the end. The answer is the least good fraction.

    Args:
        measure: quality (more is better) and seconds of switching after a fraction, means over repeats.
        beta: by how much a quality may be worse than that of lockstep.
        tries: how often the interval is halved.
    """
    goal, seconds = measure(ALL_IN_LOCKSTEP)
    yield Try(ALL_IN_LOCKSTEP, goal, seconds, good_enough=True)
    low, high = 0.0, ALL_IN_LOCKSTEP
    for _ in range(tries):
        fraction = (low + high) / 2
        quality, seconds = measure(fraction)
        good = quality >= goal - beta  # not a number is never good enough
        low, high = (low, fraction) if good else (fraction, high)
        yield Try(fraction, quality, seconds, good)


def answer(tries: list[Try]) -> Try:
    """The earliest switch that was good enough."""
    return min((each for each in tries if each.good_enough), key=lambda each: each.fraction)


def searched(scenario: Scenario) -> tuple[str, str]:
    """The one switching strategy of a scenario, and the dotted path of its fraction.

    Raises:
        UserError: it has none, or several, or its moment is no fraction.
    """
    switches = {label: strategy.phases().switch for label, strategy in scenario.strategies.items()}
    switching = {label: switch for label, switch in switches.items() if switch}
    if len(switching) != 1:
        raise UserError(
            f"search-switch takes a scenario with one strategy_switch or sync_switch; {scenario.name} has "
            f"{len(switching)}: {', '.join(switching) or 'none'}"
        )
    ((label, switch),) = switching.items()
    if switch.fraction_key is None:
        key = f"strategies.{label}.when"
        raise UserError(f"search-switch varies {key}.fraction; write for example {key}: {{kind: at, fraction: 0.5}}")
    path = ".".join(("strategies", label, *switch.fraction_key))
    if swept := [name for name in scenario.sweep if name != path]:
        raise UserError(f"search-switch runs one scenario; {scenario.name} sweeps {', '.join(swept)}")
    return label, path
