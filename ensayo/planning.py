"""Planning of all trials of a scenario, without a run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Any

from compose.engines import choose_engine
from compose.host.capacity_check import CapacityCheck
from compose.runs.run import check_host_capacity
from compose.scenario_files.load import ScenarioDeclaration, load_scenario
from ensayo.unknown_predictions import unknown_bytes_reason, unknown_step_reason
from services.cluster.addresses import DummyAddresses
from services.plan import Plan, PostSwitchPhasePlan, make_plan

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PlannedTrials:
    """Plans of all trials of a scenario, and the check whether this host can run them."""

    plans: tuple[Plan, ...]
    capacity_check: CapacityCheck


def plan_trials(
    scenario: ScenarioDeclaration, engine: str | None = None, settings: Mapping[str, Any] | None = None
) -> PlannedTrials:
    """Plan all trials of a scenario for this host, and start nothing.

    The arguments and errors are those of `predict_trials`.
    """
    loaded = load_scenario(scenario, settings, engine)
    chosen_engine, _ = choose_engine(engine or loaded.engine)
    check = check_host_capacity(loaded, chosen_engine)
    dilation, alpha_s = check.dilation, check.calibrated_alpha_s
    plans = (
        make_plan(trial, "plan", chosen_engine.name, DummyAddresses(), dilation=dilation, alpha_s=alpha_s)
        for trial in loaded.trials()
    )
    return PlannedTrials(tuple(plans), check)


def predict_trials(
    scenario: ScenarioDeclaration, engine: str | None = None, settings: Mapping[str, Any] | None = None
) -> "pd.DataFrame":
    """Return the predicted times of all trials of a scenario, and start nothing.

    The data frame has one row per trial; a trial that switches its strategy has a second row for the phase after the
    switch. Column names end with the unit; times are virtual seconds, except `training_wall_s`, the time on this host.
    Each swept key has a column. `step_inapplicable_reason` and `training_inapplicable_reason` state why no closed form
    describes the step and the training time, and are empty if one does. The latter is empty in the row after a switch.
    Values that are not known, such as those of a command without a step profile, are NaN.

    Args:
        scenario: name of a shipped scenario, path of a scenario file, dict with the content of a scenario file, or
            Scenario.
        engine: name of the engine that would run the nodes; default: that of the scenario, else the best of this host.
        settings: values that replace those of the scenario: dotted key -> YAML text, or a number, boolean, None, list
            or dict.

    Raises:
        ScenarioError: the scenario is not valid. It is a UserError.
        UserError: there is no such scenario, or the engine or this host cannot run it.
    """
    import pandas as pd  # noqa: PLC0415 - takes a second to import, which the command `plan` does not need

    plans = plan_trials(scenario, engine, settings).plans
    frame = pd.DataFrame([row for plan in plans for row in _trial_rows(plan)])
    return frame.astype({"steps": "Int64", "training_wall_s": "float64"})  # both have rows without a value


def _trial_rows(plan: Plan) -> Iterator[dict[str, Any]]:
    """Yield one row per training phase of a planned trial."""
    trial = {
        "trial": plan.trial,
        "strategy": plan.label,
        "workers": plan.workers,
        "servers": plan.servers,
        "repeat": plan.repeat,
        "seed": plan.seed,
        "baseline": plan.baseline,
    }
    totals = {
        "steps": plan.steps,
        "training_s": plan.predicted_s,
        "training_wall_s": plan.estimated_training_wall_s or None,  # 0 in virtual time, whose wall time is not known
        "training_inapplicable_reason": plan.training_inapplicable_reason,
    }
    swept_values = {key: value for key, value in plan.labels.items() if key not in trial}
    phase = {"phase": "before switch" if plan.second_phase else ""}
    yield trial | phase | _phase_times(plan) | _unknown_values(plan) | totals | swept_values
    if plan.second_phase:
        no_total = {"training_inapplicable_reason": ""}
        yield trial | {"phase": "after switch"} | _phase_times(plan.second_phase) | no_total | swept_values


def _phase_times(phase: Plan | PostSwitchPhasePlan) -> dict[str, float | str]:
    return {
        "compute_s": phase.predicted.compute_s,
        "exchange_s": phase.predicted.exchange_s,
        "step_s": phase.predicted.step_s,
        "step_inapplicable_reason": phase.predicted.inapplicable_reason,
        "sent_bytes_per_step": sum(phase.bytes_per_step.values()),
    }


def _unknown_values(plan: Plan) -> dict[str, float | str]:
    """Return the cells of values that are not known, as NaN, with the reason; empty if all are known."""
    values: dict[str, float | str] = {}
    if reason := unknown_step_reason(plan):
        values = dict.fromkeys(("compute_s", "exchange_s", "step_s"), nan) | {"step_inapplicable_reason": reason}
    return values | ({"sent_bytes_per_step": nan} if unknown_bytes_reason(plan) else {})
