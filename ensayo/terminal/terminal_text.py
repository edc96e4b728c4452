"""Texts for the terminal, such as durations, byte counts and titles of trials.

Other texts state the time dilation (slowdown of the emulation) and the chosen collectives.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from compose.host.capacity_check import CapacityCheck
from services.cluster.undeclared_rates import describe_undeclared_rates
from services.plan import Plan, TrainingPlan
from services.runtime.data_protection import describe_data_protection

MINUTE_S, HOUR_S = 60, 3600


def format_step_time(seconds: float) -> str:
    """Return a time within a step, in milliseconds below a second: `12.5 ms`, `112 s`, `20 min 0 s`."""
    if seconds < 0.9995:  # noqa: PLR2004 - longer times are rounded to 1000 ms or more
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 999.5 else format_duration(seconds)  # noqa: PLR2004 - without an exponent


def format_duration(seconds: float) -> str:
    """Return a duration in at most two units: `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min`."""
    whole_s = round(seconds)
    if whole_s < MINUTE_S:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole_s} s"  # noqa: PLR2004 - one decimal below ten
    if whole_s < HOUR_S:
        return f"{whole_s // MINUTE_S} min {whole_s % MINUTE_S} s"
    return f"{whole_s // HOUR_S} h {whole_s % HOUR_S // MINUTE_S} min"


def format_sweep_labels(swept_values: Mapping[str, object]) -> str:
    """Return the swept values of a trial as text, such as `worker.uplink 25mbit, ratio 0.01`.

    The number of workers is left out.
    """
    key_paths = [key_path for key_path in swept_values if key_path != "workers"]
    return ", ".join(f"{_shortest_unique_suffix(key, key_paths)} {swept_values[key]}" for key in key_paths)


def _shortest_unique_suffix(key_path: str, key_paths: Sequence[str]) -> str:
    """Return the shortest suffix of a dotted key path with which no other path ends.

    For example, the suffix is `worker.uplink` if another path ends with `server.uplink`.
    """
    parts = key_path.split(".")
    suffixes = (".".join(parts[-count:]) for count in range(1, len(parts)))
    candidates = (suffix for suffix in suffixes if sum(f".{path}".endswith(f".{suffix}") for path in key_paths) == 1)
    return next(candidates, key_path)


def host_capacity_lines(capacity_check: CapacityCheck, plans: Sequence[Plan]) -> Iterator[str]:
    """Yield lines of text on the time dilation and on the most demanding trial.

    Time dilation is the slowdown of the emulation. The most demanding trial is the one with the highest demand on the
    host. In virtual time, no lines are yielded.
    """
    if capacity_check.capacity is None or capacity_check.most_demanding_trial is None:
        return
    demand = capacity_check.most_demanding_trial
    dilations = ", ".join(f"{dilation:g}" for dilation in sorted({plan.dilation for plan in plans}))
    status = capacity_check.capacity.calibration_status_text
    yield f"dilation {dilations}; this host ({status}) needs {demand.min_time_dilation:g}"
    yield f"highest demand: {demand.trial}: {demand.bottleneck_text}"
    if any(node.device == "cuda" for plan in plans for node in plan.nodes) and demand.compute_assumption:
        yield f"compute of {demand.trial}: {demand.compute_assumption}"


def chosen_collective_lines(plans: Sequence[Plan]) -> Iterator[str]:
    """Yield a line of text for each plan whose collective is chosen automatically (`auto`).

    The line states the chosen collective and the predicted exchange time of each candidate. Where not every step
    exchanges, it is the mean over the steps.
    """
    for plan in plans:
        if plan.exchange_s_by_choice:
            chosen, *slower = sorted(plan.exchange_s_by_choice, key=plan.exchange_s_by_choice.__getitem__)
            alternatives = ", ".join(f"{kind} {format_step_time(plan.exchange_s_by_choice[kind])}" for kind in slower)
            trial = f"{plan.trial[:3]} {trial_title(plan)}"
            seconds = format_step_time(plan.exchange_s_by_choice[chosen])
            yield f"{trial}: collective auto chose {chosen}, predicted exchange {seconds} per step; {alternatives}"


def data_protection_lines(plans: Sequence[Plan]) -> Iterable[str]:
    """Return one line for each protection of messages; frameworks of commands send messages of their own."""
    trainings = (plan for plan in plans if isinstance(plan, TrainingPlan))
    return dict.fromkeys(describe_data_protection(plan.security.data, plan.engine) for plan in trainings)


def undetected_corruption_lines(plans: Sequence[Plan]) -> Iterable[str]:
    """Yield a warning if events corrupt messages that have no authentication tags: training uses them as they are."""
    undetected = {
        plan.label: None
        for plan in plans
        if plan.security.data == "signed" and any(event.change.kind == "corrupt" for event in plan.events)
    }
    if undetected:
        yield (
            f"{', '.join(undetected)}: messages that the event corrupt changes are used as they are; write security: "
            "{data: authenticated} to refuse them"
        )


def undeclared_rate_lines(plans: Sequence[Plan]) -> Iterable[str]:
    """Return one line for each group of nodes whose links are not limited, though those of other nodes are."""
    return dict.fromkeys(line for plan in plans for line in describe_undeclared_rates(plan.nodes, plan.network))


def trial_title(plan: Plan) -> str:
    """Return a short title of a trial: strategy, number of workers, swept values and number of the repeat."""
    workers = f"{plan.workers} worker{'s' if plan.workers > 1 else ''}"
    repeat = f"repeat {plan.repeat}" if plan.repeat else ""
    return ", ".join(part for part in (plan.label, workers, format_sweep_labels(plan.labels), repeat) if part)
