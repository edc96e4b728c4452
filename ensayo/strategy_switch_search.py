"""Search for the earliest switch to asynchronous training that loses no quality.

The search follows the timing policy of Sync-Switch. S. Li, O. Mangoubi, L. Xu, T. Guo, "Sync-Switch", ICDCS 2021:
bisect the fraction of the workload after which training becomes asynchronous, and keep the smallest fraction whose mean
quality over the repeats is at most β worse than that of fully synchronous training. Differences: the quality is the
metric of the scenario's target, or of its task, and each fraction is measured by an ordinary run with its own report.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from services.scenario.scenario import Scenario
from services.schema.errors import UserError

FULLY_SYNCHRONOUS = 1.0


@dataclass(frozen=True)
class SwitchFractionResult:
    """Measured quality and training time for one moment of the strategy switch.

    The moment is given by the switch fraction, the share of the workload before the strategy switch.
    """

    fraction: float
    quality: float  # mean over the repeats
    virtual_s: float  # mean over the repeats, virtual seconds
    is_good_enough: bool


def bisect_switch_fraction(
    measure_quality_and_time: Callable[[float], tuple[float, float]],
    max_quality_loss: float,
    interval_halving_count: int,
) -> Iterator[SwitchFractionResult]:
    """Search by bisection for the earliest strategy switch with acceptable quality.

    The bisected quantity is the switch fraction, the share of the workload before the switch. Yield each result, the
    first without a switch.

    Args:
        measure_quality_and_time: returns quality (higher is better) and virtual seconds of a fraction, as means of
            repeats.
        max_quality_loss: how much worse than that of fully synchronous training a quality may be.
        interval_halving_count: number of times the interval of fractions is halved.
    """
    synchronous_quality, seconds = measure_quality_and_time(FULLY_SYNCHRONOUS)
    yield SwitchFractionResult(FULLY_SYNCHRONOUS, synchronous_quality, seconds, is_good_enough=True)
    low, high = 0.0, FULLY_SYNCHRONOUS
    for _ in range(interval_halving_count):
        fraction = (low + high) / 2
        quality, seconds = measure_quality_and_time(fraction)
        is_good_enough = quality >= synchronous_quality - max_quality_loss  # NaN is never good enough
        low, high = (low, fraction) if is_good_enough else (fraction, high)
        yield SwitchFractionResult(fraction, quality, seconds, is_good_enough)


def find_earliest_good_switch(switch_results: list[SwitchFractionResult]) -> SwitchFractionResult:
    """Return the result with the earliest strategy switch of sufficient quality.

    Results of sufficient quality are marked `is_good_enough`. The earliest switch is the one with the smallest share of
    synchronous training.
    """
    return min((result for result in switch_results if result.is_good_enough), key=lambda result: result.fraction)


def find_only_strategy_switch(scenario: Scenario) -> tuple[str, str]:
    """Return label and key path of the only strategy switch in a scenario.

    The label is that of the switching strategy, and the dotted key path is that of its switch fraction.

    Raises:
        UserError: no or several strategies switch, the switch has no fraction, or the scenario sweeps another key.
    """
    switches = {label: strategy.training_phases().switch for label, strategy in scenario.strategies.items()}
    switching = {label: switch for label, switch in switches.items() if switch}
    if len(switching) != 1:
        raise UserError(
            f"search-switch needs a scenario with one strategy_switch or sync_switch; {scenario.name} has "
            f"{len(switching)}: {', '.join(switching) or 'none'}"
        )
    ((label, switch),) = switching.items()
    if switch.fraction_key is None:
        key = f"strategies.{label}.when"
        raise UserError(f"search-switch needs {key}.fraction; write for example {key}: {{kind: at, fraction: 0.5}}")
    fraction_key = ".".join(("strategies", label, *switch.fraction_key))
    if others := [key for key in scenario.sweep if key != fraction_key]:
        raise UserError(f"search-switch needs a scenario without a sweep; {scenario.name} sweeps {', '.join(others)}")
    return label, fraction_key
