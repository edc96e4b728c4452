"""Sentence on the swept link rate from which compute utilisation stays high, for each strategy."""

import re
from collections.abc import Iterable, Mapping, Sequence

from analysis.report.wording import join_names
from analysis.results.summary import RunSummary
from analysis.results.trial_group import TrialGroup
from services.schema.units import Rate

HIGH_UTILISATION = 0.95
RATE_KEYS = ("uplink", "downlink", "rate")  # last parts of swept keys whose values are rates
MIN_RATES = 2


def describe_needed_rates(summary: RunSummary) -> str:
    """Return from which swept rate on the compute utilisation of each strategy is at least 95 %.

    Return an empty text if the scenario sweeps anything but the rate of links, or if a utilisation is not known.
    """
    groups = [group for group in summary.trial_groups if not group.is_baseline]
    key = _find_swept_rate(groups)
    if key is None or any(group.compute_utilisation is None for group in groups):
        return ""
    by_strategy = {name: [group for group in groups if group.strategy == name] for name in summary.strategies}
    if any(len(members) < MIN_RATES for members in by_strategy.values()):
        return ""
    highest = max((group.trials[0].labels[key] for group in groups), key=lambda text: Rate(str(text)))
    needed = {name: _find_needed_rate(members, key) for name, members in by_strategy.items()}
    name = key.split(".")[-1]
    high = [
        f"at least {HIGH_UTILISATION:.0%} from {name} {rate} on with {join_names(_strategies_with(needed, rate))}"
        for rate in sorted(set(filter(None, needed.values())), key=Rate)
    ]
    missed = _strategies_with(needed, None)
    low = [f"below {HIGH_UTILISATION:.0%} at {name} {highest} with {join_names(missed)}"] if missed else []
    return f"compute utilisation is {'; '.join([*high, *low])}"


def _strategies_with(needed: Mapping[str, str | None], rate: str | None) -> list[str]:
    return [strategy for strategy, needed_rate in needed.items() if needed_rate == rate]


def _find_swept_rate(groups: Sequence[TrialGroup]) -> str | None:
    """Return the swept key of all groups if it is the only one and declares rates; else None.

    None, too, if the number of workers varies.
    """
    keys = {key for group in groups for key in group.trials[0].labels} - {"workers"}
    if len(keys) != 1 or len({group.workers for group in groups}) > 1:
        return None
    (key,) = keys
    values = [group.trials[0].labels.get(key) for group in groups]
    is_rate = key.split(".")[-1] in RATE_KEYS and all(re.match(Rate.text_regex(), str(value)) for value in values)
    return key if is_rate else None


def _find_needed_rate(groups: Iterable[TrialGroup], key: str) -> str | None:
    """Return the lowest rate from which on all groups of a strategy have a high utilisation; None: not the highest."""
    needed: str | None = None
    for group in sorted(groups, key=lambda group: -Rate(str(group.trials[0].labels[key]))):
        if (group.compute_utilisation or 0.0) < HIGH_UTILISATION:
            break
        needed = str(group.trials[0].labels[key])
    return needed
