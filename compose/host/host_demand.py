"""Needs of a trial, and the dilation (slow-down of the clock) from which this host meets each of them."""

from math import inf

from pydantic import Field

from compose.calibration.capacity import HostCapacity
from compose.host.compute_speed import CpuTimeFunctions
from compose.host.network_load import format_rate_gbit, max_traffic_bps_by_link, total_payload_bps
from compose.host.step_load import MAX_CPU_SHARE, format_cores, predict_step_load, training_phases
from services.plan import Plan
from services.schema.component import FrozenRecord

USUAL_DILATIONS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
MAX_OVERHEAD_SHARE = 0.1  # share of the cores' time for messages and updates
MIN_ASYNC_COMPUTE_S = 0.04  # wall seconds; shortest compute phase of an asynchronous worker
ROUNDING_TOLERANCE = 1e-9


class TrialHostDemand(FrozenRecord):
    """Needs of one trial, each with the time dilation (slow-down) that it requires.

    For each need in words, this is the smallest dilation at which the host meets the need.
    """

    trial: str
    declared: float | None  # declared dilation; None: auto
    needs: dict[str, float]  # need in words -> smallest dilation under which this host can meet it
    limits: dict[str, str] = Field(default={})  # need in words -> what a trial may use of this host, in words
    wishes: dict[str, float] = Field(default={})  # needs for precise steps, in the same form; they count for auto only
    gradient_cpu_s: float  # measured CPU seconds of one gradient, wall clock
    cpu_s: float  # CPU seconds of a step over all nodes, wall clock
    messages: int  # per step
    compute_assumption: str = ""  # on what the compute of workers was checked, in words; empty: it was not

    @property
    def dilation_by_need(self) -> dict[str, float]:
        """Smallest time dilation (slowdown of the emulation) that meets each need of the trial.

        The mapping is need in words -> smallest dilation that meets the need.
        """
        return self.needs | (self.wishes if self.declared is None else {})

    @property
    def bottleneck_text(self) -> str:
        """Need of the trial, in words, that requires the largest dilation."""
        return max(self.dilation_by_need, key=self.dilation_by_need.__getitem__, default="nothing that this host lacks")

    @property
    def min_time_dilation(self) -> float:
        """Smallest dilation from the list of usual values at which this host is fast enough.

        The dilation is the slowdown of the emulation. It is inf if no usual value suffices.
        """
        smallest = max(self.dilation_by_need.values(), default=1.0)
        return next((float(d) for d in USUAL_DILATIONS if d >= smallest - ROUNDING_TOLERANCE), inf)

    @property
    def exceeds_declared_dilation(self) -> bool:
        """Whether the declared time dilation (slowdown of the emulation) is too small for this host."""
        return self.declared is not None and self.declared < max(self.needs.values(), default=1.0) - ROUNDING_TOLERANCE


def compute_host_demand(
    plan: Plan, host_capacity: HostCapacity, step_cpu_times: CpuTimeFunctions, time_dilation: float | None
) -> TrialHostDemand:
    """Return the least time dilation (slowdown of the emulation) for each need of a trial.

    An example of a need is a link rate. The plan's dilation is ignored.
    """
    has_paced_workers = any(node.throughput for node in plan.node_plans_of_role("worker"))
    loads = [predict_step_load(plan, phase, host_capacity, step_cpu_times) for phase in training_phases(plan)]
    needs = {link: rate_bps / host_capacity.shaped_bps for link, rate_bps in max_traffic_bps_by_link(plan)}
    limits = dict.fromkeys(needs, f"a link may have up to {format_rate_gbit(host_capacity.shaped_bps)}")
    if total_bps := total_payload_bps(plan):
        all_links_need = f"all links together, {format_rate_gbit(total_bps)}"
        needs[all_links_need] = total_bps / host_capacity.total_bps
        limits[all_links_need] = f"all links together may have up to {format_rate_gbit(host_capacity.total_bps)}"
    wishes: dict[str, float] = {}
    cores = host_capacity.fingerprint.cores
    for load in loads if has_paced_workers else ():
        overhead_s, overhead_limit_s = load.overhead_cpu_s / cores, MAX_OVERHEAD_SHARE * load.step_s
        _raise_min_dilation(
            wishes, f"{load.messages} messages in {load.step_duration_text}", overhead_s / overhead_limit_s
        )
        cpu_limit_s = MAX_CPU_SHARE * cores * load.step_s
        cpu_need = f"{1e3 * load.total_cpu_s:.3g} ms of CPU time in {load.step_duration_text} on {cores} cores"
        _raise_min_dilation(needs, cpu_need, load.total_cpu_s / cpu_limit_s)
        limits[cpu_need] = f"a step may use {MAX_CPU_SHARE:.0%} of the time of {format_cores(cores)}"
        if load.compute_phases:
            compute_dilation, compute_need = load.find_min_compute_dilation(cores), load.worst_slowdown_text
            if compute_dilation >= needs.get(compute_need, 0.0):
                limits[compute_need] = load.describe_compute_limit(cores)
            _raise_min_dilation(needs, compute_need, compute_dilation)
        if load.compute_phases and load.is_asynchronous:
            shortest_s = min(phase.device_s for phase in load.compute_phases)
            asynchronous_need = f"asynchronous workers with {1e3 * shortest_s:.3g} ms of compute per step"
            _raise_min_dilation(wishes, asynchronous_need, MIN_ASYNC_COMPUTE_S / shortest_s)
    largest_load = max(loads, key=lambda load: load.total_cpu_s)
    return TrialHostDemand(
        trial=plan.trial,
        declared=time_dilation,
        needs=needs,
        limits=limits,
        wishes=wishes,
        gradient_cpu_s=max((phase.cpu_s for load in loads for phase in load.compute_phases), default=0.0),
        cpu_s=largest_load.total_cpu_s,
        messages=largest_load.messages,
        compute_assumption=_describe_compute_assumption(plan),
    )


def _describe_compute_assumption(plan: Plan) -> str:
    """Return in words by which device the compute of workers with a declared speed was checked."""
    devices = [node.device for node in plan.node_plans_of_role("worker") if node.throughput]
    parts = []
    if gpu_workers := devices.count("cuda"):
        count = f"{gpu_workers} worker{'s' if gpu_workers > 1 else ''}"
        parts.append(f"a GPU is assumed to be fast enough for {count} with device: cuda")
    if gpu_workers < len(devices):
        parts.append("gradients are timed on this CPU" + (", also for device: auto" if "auto" in devices else ""))
    return "; ".join(parts)


def _raise_min_dilation(dilation_by_demand: dict[str, float], demand_text: str, min_time_dilation: float) -> None:
    """Record a need of a trial, and the least time dilation that meets the need.

    If the need is recorded already, keep the larger one.
    """
    dilation_by_demand[demand_text] = max(min_time_dilation, dilation_by_demand.get(demand_text, 0.0))
