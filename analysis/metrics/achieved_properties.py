"""Comparison of the declared properties of the emulated cluster with the values that the emulation achieved."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import sqrt
from statistics import median
from typing import Any

import numpy as np

from analysis.checks.network.achieved_rates import LINK_DIRECTIONS, can_peers_fill_link
from analysis.checks.network.achieved_rates import probed_rate_error as flow_error
from analysis.checks.network.mechanisms import shaping_mechanism_name
from analysis.checks.network.rates import IN_CODE_MECHANISMS
from analysis.checks.network.round_trips import measured_round_trips
from analysis.checks.network.shared_links import compare_shared_link_rates
from analysis.reading.plan_view import PlannedNode
from analysis.reading.run_table import TrialLogTables
from analysis.statistics.centre import Floats

BY_CONSTRUCTION = "by construction"
ROLE_NAMES = {"worker": "workers", "ps_shard": "servers"}


@dataclass(frozen=True)
class DeclaredVsAchieved:
    """Declared and achieved value of one property, such as the delay of a path.

    The values are those of one trial, or of several trials together.
    """

    what: str  # uplink, downlink, shared link, delay, jitter, loss, round trip, compute phase, event lateness
    of: str  # the nodes or events that have the property, such as "workers"
    declared: float
    achieved: float | None  # median; None where nothing was measured
    error: float | None  # the largest, relative to the declared value; None where that is 0 or nothing was measured
    unit: str  # bit/s, s, or % for a share
    by: str  # mechanism that enforced it
    how: str  # how the achieved value is known: probed, read back, by construction, not at all
    trials: tuple[str, ...] = ()  # names of the trials that have the property


def list_achieved_properties(trial_tables: TrialLogTables) -> tuple[DeclaredVsAchieved, ...]:
    """Return the declared properties of a trial's cluster, each with its achieved value.

    Properties are those of nodes, network paths, links and events.
    """
    properties = (
        *_compare_link_rates(trial_tables),
        *_compare_shared_links(trial_tables),
        *_list_userspace_shaping(trial_tables),
        *_compare_rtts_with_plan(trial_tables),
        *_achieved_compute_times(trial_tables),
        *_planned_event_lateness(trial_tables),
    )
    return tuple(replace(each, trials=(trial_tables.plan.trial,)) for each in properties)


def merge_over_trials(achieved_properties: Iterable[DeclaredVsAchieved]) -> tuple[DeclaredVsAchieved, ...]:
    """Merge the achieved properties of several trials into one row per property.

    Rows with the same property, nodes and declared value are merged. The order of the input is kept.
    """
    rows_by_key: dict[tuple[str, str, float, str, str], list[DeclaredVsAchieved]] = {}
    for row in achieved_properties:
        rows_by_key.setdefault((row.what, row.of, row.declared, row.by, row.how), []).append(row)
    return tuple(_merge_property_rows(group) for group in rows_by_key.values())


def _merge_property_rows(property_rows: list[DeclaredVsAchieved]) -> DeclaredVsAchieved:
    achieved = [row.achieved for row in property_rows if row.achieved is not None]
    errors = [row.error for row in property_rows if row.error is not None]
    worst = max(errors, key=abs, default=None)
    trials = tuple(dict.fromkeys(trial for row in property_rows for trial in row.trials))
    return replace(property_rows[0], achieved=median(achieved) if achieved else None, error=worst, trials=trials)


def _compare_link_rates(trial: TrialLogTables) -> Iterator[DeclaredVsAchieved]:
    shaping = trial.status.get("shaping") or {}
    for node in trial.plan.nodes:
        for direction in LINK_DIRECTIONS:
            if declared := getattr(node, f"{direction}_bps"):
                link = shaping.get(node.name) or {}
                achieved, error, how = _measure_link_rate(trial, node, direction, link)
                of, by = ROLE_NAMES.get(node.role, node.role), shaping_mechanism_name(link, "rate") or "unknown"
                yield DeclaredVsAchieved(direction, of, declared, achieved, error, "bit/s", by, how)


def _measure_link_rate(
    trial: TrialLogTables, node: PlannedNode, link_direction: str, shaping_record: dict[str, Any]
) -> tuple[float | None, float | None, str]:
    """Return the achieved rate of a node's link in bit/s.

    Return also the rate's relative error, and how the rate was determined.

    The rate of a probe flow is preferred, then the rate read back from the kernel, then the declared rate if Ensayo's
    own code shapes the link.
    """
    if (error := flow_error(trial, node, link_direction)) is not None:
        can_fill = can_peers_fill_link(trial, node, link_direction)
        how = "probed with a flow" if can_fill else "probed by all peers, who can't fill it"
        return float(shaping_record[f"achieved_{link_direction}_bps"]), error, how
    declared = float(getattr(node, f"{link_direction}_bps"))
    if (read_back := shaping_record.get(f"read_back_{link_direction}_bps")) is not None:
        return float(read_back), float(read_back) / declared - 1, "read back"
    shaped_in_code = shaping_record.get("rung") in IN_CODE_MECHANISMS
    return (declared, 0.0, BY_CONSTRUCTION) if shaped_in_code else (None, None, "not at all")


def _compare_shared_links(trial: TrialLogTables) -> Iterator[DeclaredVsAchieved]:
    """Yield the declared and achieved rate of each link that several nodes share."""
    shaping = (trial.status.get("shaping") or {}).values()
    mechanisms = (shaping_mechanism_name(link_shaping, "pipes") for link_shaping in shaping)
    by = next((mechanism for mechanism in mechanisms if mechanism not in (None, "none")), None) or "unknown"
    for link in compare_shared_link_rates(trial):
        achieved, error, how = link.achieved_bps, link.relative_rate_error, link.measured_how
        if achieved is None and by in IN_CODE_MECHANISMS:
            achieved, error, how = link.declared_bps, 0.0, BY_CONSTRUCTION
        yield DeclaredVsAchieved("shared link", "groups", link.declared_bps, achieved, error, "bit/s", by, how)


def _list_userspace_shaping(trial: TrialLogTables) -> Iterator[DeclaredVsAchieved]:
    """Yield the delay, jitter and loss of network paths that Ensayo's own code enforces.

    Properties that the kernel enforces are left out.

    For paths that the kernel shapes, round trips are probed instead.
    """
    shaping = trial.status.get("shaping") or {}
    for path in trial.plan.network.paths:
        jitter_s = sqrt(sum(jitter.deviation**2 for jitter in path.jitters))
        properties = (
            ("delay", path.delay_s, "s", "delay"),
            ("jitter", jitter_s, "s", "delay"),
            ("loss", path.lost_packet_share, "%", "loss"),
        )
        for what, declared, unit, enforced_property in properties:
            by = shaping_mechanism_name(shaping.get(path.target) or {}, enforced_property)
            if declared and by in IN_CODE_MECHANISMS:
                yield DeclaredVsAchieved(what, "pairs", declared, declared, 0.0, unit, by, BY_CONSTRUCTION)


def _compare_rtts_with_plan(trial: TrialLogTables) -> Iterator[DeclaredVsAchieved]:
    shaping = trial.status.get("shaping") or {}
    for trip in measured_round_trips(trial):
        mechanism = shaping_mechanism_name(shaping.get(trip.source) or {}, "delay") or "unknown"
        error = trip.deviation_from_declared_s / trip.declared_s if trip.declared_s else None
        by = mechanism if trip.declared_s else "nothing"
        yield DeclaredVsAchieved("round trip", "pairs", trip.declared_s, trip.measured_s, error, "s", by, "probed")


def _achieved_compute_times(trial: TrialLogTables) -> Iterator[DeclaredVsAchieved]:
    """Yield the declared and the measured mean compute time of workers.

    Only workers whose compute time is set by the scenario are included.

    Workers whose speed is declared to vary, or changes by an event, are left out.
    """
    changed = {name for event in trial.plan.events for name in event.change.node_names}
    samples, compute_s = (trial.steps[name].to_numpy(dtype=float) for name in ("samples", "compute_s"))
    rows_by_node = trial.steps.groupby("node", observed=True).indices
    for node in trial.plan.nodes:
        rows = rows_by_node.get(node.name)
        if node.throughput and node.variation is None and node.name not in changed and rows is not None:
            declared_s = round(_mean_without_nan(samples[rows] / node.throughput), 9)
            achieved_s = _mean_without_nan(compute_s[rows])
            error = achieved_s / declared_s - 1 if declared_s else None
            yield DeclaredVsAchieved(
                "compute phase", "workers", declared_s, achieved_s, error, "s", "pacing", "measured"
            )


def _mean_without_nan(values: Floats) -> float:
    """Return the mean of the values that are not NaN.

    Return NaN if all values are NaN.
    """
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def _planned_event_lateness(trial: TrialLogTables) -> Iterator[DeclaredVsAchieved]:
    node_names = {node.name for node in trial.plan.nodes}
    for _, row in trial.events.dropna(subset=["lateness_s"]).iterrows():
        late_s, by = abs(float(row["lateness_s"])), "the nodes" if str(row["by"]) in node_names else str(row["by"])
        yield DeclaredVsAchieved("event lateness", str(row["kind"]), 0.0, late_s, None, "s", by, "logged")
