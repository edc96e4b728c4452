"""May times and losses of runs be ranked? Only where they learn the same on the same cluster."""

from collections.abc import Hashable, Sequence

from analysis.comparison.lines import Compared
from analysis.reading.plan_view import PlanView


def differing(runs: Sequence[Compared]) -> list[str]:
    """In what runs differ that decides times and losses; a kind of thing that both sweep alike does not differ."""
    told = [_decisive(run) for run in runs]
    return [what for what in (told[0] if told else ()) if len({each[what] for each in told}) > 1]


def _decisive(run: Compared) -> dict[str, Hashable]:
    plans = [trial.plan for trial in run.table.trials]
    return {
        "scenario": run.summary.scenario,
        "target": frozenset(str(plan.target) for plan in plans),
        "model": frozenset(plan.parameters for plan in plans),
        "samples": frozenset(plan.train_samples for plan in plans),
        "paces": frozenset(pace for plan in plans for pace in _paces(plan)),
        "links": frozenset(link for plan in plans for link in _links(plan)),
        "delays": frozenset(path.delay_s for plan in plans for path in plan.network.paths),
    }


def _paces(plan: PlanView) -> set[Hashable]:
    return {(node.throughput, str(node.variation)) for node in plan.nodes if node.role == "worker"}


def _links(plan: PlanView) -> set[Hashable]:
    return {(node.uplink_bps, node.downlink_bps) for node in plan.nodes if node.role == "worker"}
