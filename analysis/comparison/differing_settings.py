"""Settings that differ between compared runs.

Runs are ranked by time or loss only if no setting differs.
"""

from collections.abc import Hashable, Sequence

from analysis.comparison.curves import ComparedRun
from analysis.reading.plan_view import TrialPlan


def differing_settings(runs: Sequence[ComparedRun]) -> list[str]:
    """Return the names of the settings that differ between runs and affect results.

    Such settings are, for example, the links or the model.

    A swept setting is the same in two runs if both runs sweep the same values.
    """
    settings_by_run = [_settings_of_run(run) for run in runs]
    names = settings_by_run[0] if settings_by_run else ()
    return [name for name in names if len({settings[name] for settings in settings_by_run}) > 1]


def _settings_of_run(run: ComparedRun) -> dict[str, Hashable]:
    plans = [trial.plan for trial in run.table.trials]
    return {
        "scenario": run.summary.scenario,
        "target": frozenset(str(plan.target) for plan in plans),
        "model": frozenset(plan.parameters for plan in plans),
        "payload": frozenset(plan.payload.declared if plan.payload else "" for plan in plans),
        "samples": frozenset(plan.train_samples for plan in plans),
        "worker speeds": frozenset(speed for plan in plans for speed in _distinct_compute_speeds(plan)),
        "links": frozenset(rates for plan in plans for rates in _distinct_worker_link_rates(plan)),
        "delays": frozenset(path.delay_s for plan in plans for path in plan.network.paths),
    }


def _distinct_compute_speeds(plan: TrialPlan) -> set[Hashable]:
    return {(node.throughput, str(node.variation)) for node in plan.nodes if node.role == "worker"}


def _distinct_worker_link_rates(plan: TrialPlan) -> set[Hashable]:
    return {(node.uplink_bps, node.downlink_bps) for node in plan.nodes if node.role == "worker"}
