"""Check whether this host is fast enough for a scenario.

The check also finds the dilation (slow-down of the clock) that the scenario needs. A dilation of D makes a trial D
times slower in wall-clock time and leaves its virtual time as it is. A trial fits this host under a dilation D if all
of these hold:

- every shaped rate, divided by D, is one that this host can enforce,
- the rates of all links together, divided by D, are at most what this host can move,
- the CPU time of a step is at most 40 % of the time of all cores during the step,
- the CPU time of the workers' compute is at most 40 % of the time of all cores while the declared devices compute.

Workers with `device: cuda` compute on a GPU, whose speed is not measured: their compute is not checked, and the result
says so. The compute of workers with `device: auto` is checked as if they computed on the CPU.

Within these limits, workers whose compute time is set by the scenario keep their deadlines within 2 to 3 % (16 workers
of 1 ms in steps of 20 ms on two cores); beyond, they do not.

With `dilation: auto`, the dilation is also so large that messages and updates use at most a tenth of the cores' time,
because they seldom overlap with the time of transfers: in a ring of eight at 25 Gbit/s and a dilation of 24, whose
transfers took as long as the cores, steps took 1.9 times as long. Messages of asynchronous workers arrive while other
workers compute: 1.5 % of compute phases of 20 ms (wall clock) ended late, and 0.2 to 0.7 % of those of 40 ms (eight
workers on two cores), so 40 ms is the shortest compute phase that `auto` allows.
"""

from collections.abc import Sequence
from math import ceil, inf

from compose.calibration.capacity import HostCapacity
from compose.host.compute_speed import CpuTimeFunctions
from compose.host.host_demand import USUAL_DILATIONS, TrialHostDemand, compute_host_demand
from services.plan import Plan
from services.scenario.commands.simulated_advice import leave_out_simulated_engine
from services.scenario.scenario import AUTO, Scenario
from services.schema.component import FrozenRecord
from services.schema.errors import UserError


class CapacityCheck(FrozenRecord):
    """Result of the check whether this host is fast enough for a run.

    Contains the dilation, and what each trial needs of the host.
    """

    capacity: HostCapacity | None  # None: virtual time needs none
    dilation: float  # of trials with dilation: auto
    demands: tuple[TrialHostDemand, ...]

    @property
    def calibrated_alpha_s(self) -> float:
        """Latency α of a message for predictions, in wall seconds.

        It is 0 if this host is not calibrated.
        """
        return self.capacity.alpha_s if self.capacity and self.capacity.calibrated else 0.0

    @property
    def most_demanding_trial(self) -> TrialHostDemand | None:
        """Needs of the trial that requires the largest time dilation (slow-down).

        The value is None if the run has no trials.
        """
        return max(self.demands, key=lambda demand: max(demand.dilation_by_need.values(), default=0.0), default=None)


def check_host_can_run(
    scenario: Scenario, trial_plans: Sequence[Plan], host_capacity: HostCapacity, step_cpu_times: CpuTimeFunctions
) -> CapacityCheck:
    """Check whether this host is fast enough for all trials of a scenario.

    The result also states at which dilation (slow-down of the emulation) it is fast enough.

    Args:
        scenario: scenario to check.
        trial_plans: one plan per trial that is run, made with a dilation of 1 where the scenario has `dilation: auto`.
        host_capacity: messages and rates that this host can carry.
        step_cpu_times: CPU seconds of gradients and updates on this host.

    Raises:
        UserError: a trial does not fit; the message names the largest need and the dilation that would be enough.
    """
    auto_trials = {trial.id for trial in scenario.trials() if trial.scenario.dilation == AUTO}
    demands = tuple(
        compute_host_demand(
            plan, host_capacity, step_cpu_times, time_dilation=None if plan.trial in auto_trials else plan.dilation
        )
        for plan in trial_plans
    )
    if impossible := [demand for demand in demands if demand.min_time_dilation == inf]:
        raise UserError(_advise_for_workload(_format_slow_host_error(impossible[0], host_capacity), scenario))
    if too_low := [demand for demand in demands if demand.exceeds_declared_dilation]:
        largest = max(too_low, key=lambda demand: demand.min_time_dilation)
        raise UserError(_advise_for_workload(_format_dilation_error(largest, host_capacity), scenario))
    auto_dilations = [demand.min_time_dilation for demand in demands if demand.declared is None]
    return CapacityCheck(capacity=host_capacity, dilation=max(auto_dilations, default=1.0), demands=demands)


def _advise_for_workload(message: str, scenario: Scenario) -> str:
    """Return an error message; for a command, without the advice to use an engine that can't run it."""
    return leave_out_simulated_engine(message) if scenario.workload.kind == "command" else message


def _format_dilation_error(demand: TrialHostDemand, host_capacity: HostCapacity) -> str:
    need, enough = demand.bottleneck_text, f"{demand.min_time_dilation:g}"
    return (
        f"dilation: {demand.declared:g} is too small for this host. Trial {demand.trial} needs {need}; on this host, "
        f"{demand.limits[need]}. So the smallest sufficient dilation (slow-down of the run) is "
        f"{_format_rounded_up(demand.needs[need])} ({_format_assumptions(demand, host_capacity)}). Write dilation: "
        f"{enough} at the top level of the scenario (rounded up to a usual value; the run takes {enough} times as long "
        "as the emulated training, and its results do not change) or dilation: auto, or use --engine simulated"
    )


def _format_rounded_up(dilation: float) -> str:
    """Return a dilation that suffices, with one decimal."""
    return f"{ceil(10 * dilation) / 10:g}"


def _format_slow_host_error(trial_host_demand: TrialHostDemand, host_capacity: HostCapacity) -> str:
    return (
        f"dilation: no dilation up to {USUAL_DILATIONS[-1]} is enough for this host. Trial "
        f"{trial_host_demand.trial} needs {trial_host_demand.bottleneck_text} "
        f"({_format_assumptions(trial_host_demand, host_capacity)}). Declare slower links or workers, or use --engine "
        "simulated"
    )


def _format_assumptions(trial_host_demand: TrialHostDemand, host_capacity: HostCapacity) -> str:
    return "; ".join(filter(None, (host_capacity.calibration_status_text, trial_host_demand.compute_assumption)))


def make_virtual_time_check() -> CapacityCheck:
    """Return the capacity check of a run in virtual (computed) time.

    Every host is fast enough for such a run.
    """
    return CapacityCheck(capacity=None, dilation=1.0, demands=())
