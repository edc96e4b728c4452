"""Checks of the bytes sent and of the staleness where workers choose their partners during the run."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from analysis.checks.network.bytes_on_wire import check_bytes_sent
from analysis.checks.training.staleness import check_gradient_staleness
from analysis.checks.verdict import VerdictLevel
from analysis.metrics.bytes_sent import bytes_sent
from analysis.metrics.learning.staleness import staleness_statistics
from analysis.reading.run_table import RunLogTables, TrialLogTables

RunSimulated = Callable[..., RunLogTables]

STRATEGIES: dict[str, dict[str, Any]] = {
    "pairs": {"kind": "partial_all_reduce", "group_size": 2},
    "threes": {"kind": "partial_all_reduce", "group_size": 3},
    "ad_psgd": {"kind": "ad_psgd"},
}
UNEQUAL = {"kind": "lognormal", "sigma": 0.5}


def with_bytes(trial: TrialLogTables, node: str, factor: float) -> TrialLogTables:
    """Return a trial in which one node has counted `factor` times its bytes."""
    changed = (
        replace(each, total=round((each.total or 0) * factor)) if each.node == node else each
        for each in trial.process_bytes
    )
    return replace(trial, process_bytes=tuple(changed))


def test_staleness_without_servers_is_that_of_the_workers(run_simulated: RunSimulated) -> None:
    """A report must not say that no gradient is stale while averages change the parameters of passive workers."""
    strategies = {name: STRATEGIES[name] for name in ("pairs", "ad_psgd")}
    pairs, ad_psgd = run_simulated(strategies, workers=4, variation=UNEQUAL).trials

    assert check_gradient_staleness(pairs).reason == "no gradient is stale"
    assert staleness_statistics(pairs) is None
    found = staleness_statistics(ad_psgd)
    assert found is not None
    assert 0 < found["mean"] < found["max"]
    reason = f"mean staleness {found['mean']:.2f}, at most {found['max']}, as logged by the workers"
    assert check_gradient_staleness(ad_psgd).reason == reason


@pytest.mark.parametrize("name", STRATEGIES)
def test_bytes_of_unequal_workers_are_valid_and_lost_messages_are_not(run_simulated: RunSimulated, name: str) -> None:
    """Bounds that are too wide would accept a worker that does not exchange in every step."""
    (trial,) = run_simulated({name: STRATEGIES[name]}, workers=5, variation=UNEQUAL).trials

    assert check_bytes_sent(trial).level == VerdictLevel.VALID
    assert len(set(bytes_sent(trial).values())) > 1
    for node in ("worker-1", "worker-2"):
        for factor in (0.92, 1.08):
            assert check_bytes_sent(with_bytes(trial, node, factor)).level == VerdictLevel.INVALID
