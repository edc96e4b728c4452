"""How close did the emulation come to what was declared? One row per property and class of nodes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import sqrt
from statistics import median
from typing import Any

import numpy as np

from analysis.checks.network.achieved_rates import LINK_DIRECTIONS, can_be_filled
from analysis.checks.network.achieved_rates import flow_rate_error as flow_error
from analysis.checks.network.mechanisms import mechanism_of
from analysis.checks.network.rates import IN_CODE_MECHANISMS
from analysis.checks.network.round_trips import measured_round_trips
from analysis.checks.network.shared_links import shared_link_rates
from analysis.reading.plan_view import PlannedNode
from analysis.reading.run_table import TrialTable
from analysis.statistics.centre import Floats

BY_CONSTRUCTION = "by construction"
ROLES = {"worker": "workers", "ps_shard": "servers"}


@dataclass(frozen=True)
class Proof:
    """One declared property of a node or path, or of alike ones together, and what was found."""

    what: str  # uplink, downlink, shared link, delay, jitter, loss, round trip, compute phase, event lateness
    of: str  # which nodes
    declared: float
    achieved: float | None  # median; None where nothing was measured
    error: float | None  # the worst, relative to what is declared; where nothing is declared, None
    unit: str  # bit/s, s; % for a share
    by: str  # what enforced it
    how: str  # how it is known: probed, read back, by construction, not at all


def proofs(trials: Iterable[TrialTable]) -> tuple[Proof, ...]:
    """The rows of all trials together."""
    return together(row for trial in trials for row in rows(trial))


def rows(trial: TrialTable) -> tuple[Proof, ...]:
    """A row per declared property of a node, path or link, and per event."""
    return (
        *_rates(trial),
        *_pipes(trial),
        *_paths(trial),
        *_round_trips(trial),
        *_devices(trial),
        *_events(trial),
    )


def together(found: Iterable[Proof]) -> tuple[Proof, ...]:
    """Alike rows in one, in the order in which they first appear."""
    alike: dict[tuple[str, str, float, str, str], list[Proof]] = {}
    for row in found:
        alike.setdefault((row.what, row.of, row.declared, row.by, row.how), []).append(row)
    return tuple(_row(each) for each in alike.values())


def _row(found: list[Proof]) -> Proof:
    achieved = [each.achieved for each in found if each.achieved is not None]
    errors = [each.error for each in found if each.error is not None]
    worst = max(errors, key=abs, default=None)
    return replace(found[0], achieved=median(achieved) if achieved else None, error=worst)


def _rates(trial: TrialTable) -> Iterator[Proof]:
    shaping = trial.status.get("shaping") or {}
    for node in trial.plan.nodes:
        for way in LINK_DIRECTIONS:
            declared = getattr(node, f"{way}_bps")
            if declared:
                shaped = shaping.get(node.name) or {}
                achieved, error, how = _rate(trial, node, way, shaped)
                of, by = ROLES.get(node.role, node.role), mechanism_of(shaped, "rate") or "unknown"
                yield Proof(way, of, declared, achieved, error, "bit/s", by, how)


def _rate(
    trial: TrialTable, node: PlannedNode, way: str, shaped: dict[str, Any]
) -> tuple[float | None, float | None, str]:
    """What a link's rate was, its relative error, and how that is known; the strongest evidence there is."""
    if (error := flow_error(trial, node, way)) is not None:
        how = "probed with a flow" if can_be_filled(trial, node, way) else "probed by all peers, who can't fill it"
        return float(shaped[f"achieved_{way}_bps"]), error, how
    declared = float(getattr(node, f"{way}_bps"))
    if (told := shaped.get(f"read_back_{way}_bps")) is not None:
        return float(told), float(told) / declared - 1, "read back"
    by_us = shaped.get("rung") in IN_CODE_MECHANISMS
    return (declared, 0.0, BY_CONSTRUCTION) if by_us else (None, None, "not at all")


def _pipes(trial: TrialTable) -> Iterator[Proof]:
    """Shared limits; what shapes them is recorded with the nodes on their ways."""
    shaping = (trial.status.get("shaping") or {}).values()
    by = next((rung for shaped in shaping if (rung := mechanism_of(shaped, "pipes")) not in (None, "none")), None)
    for pipe in shared_link_rates(trial):
        achieved, error, how = pipe.achieved_bps, pipe.relative_error, pipe.measured_how
        if achieved is None and by in IN_CODE_MECHANISMS:
            achieved, error, how = pipe.declared_bps, 0.0, BY_CONSTRUCTION
        yield Proof("shared link", "groups", pipe.declared_bps, achieved, error, "bit/s", by or "unknown", how)


def _paths(trial: TrialTable) -> Iterator[Proof]:
    """What our own code does to messages between pairs; what a kernel does is probed as round trips."""
    shaping = trial.status.get("shaping") or {}
    for path in trial.plan.network.paths:
        jitter_s = sqrt(sum(jitter.deviation**2 for jitter in path.jitters))
        told = (
            ("delay", path.delay_s, "s", "delay"),
            ("jitter", jitter_s, "s", "delay"),
            ("loss", path.loss_share, "%", "loss"),
        )
        for what, declared, unit, enforced in told:
            by = mechanism_of(shaping.get(path.target) or {}, enforced)
            if declared and by in IN_CODE_MECHANISMS:
                yield Proof(what, "pairs", declared, declared, 0.0, unit, by, BY_CONSTRUCTION)


def _round_trips(trial: TrialTable) -> Iterator[Proof]:
    shaping = trial.status.get("shaping") or {}
    for trip in measured_round_trips(trial):
        by = mechanism_of(shaping.get(trip.source) or {}, "delay") or "unknown"
        error = trip.error_s / trip.declared_s if trip.declared_s else None
        by = by if trip.declared_s else "nothing"
        yield Proof("round trip", "pairs", trip.declared_s, trip.measured_s, error, "s", by, "probed")


def _devices(trial: TrialTable) -> Iterator[Proof]:
    """Mean duration of a paced worker's mathematics; jitter and slow-downs are declared too, so those are left out."""
    changed = {name for event in trial.plan.events for name in event.change.node_names}
    samples, compute_s = (trial.steps[name].to_numpy(dtype=float) for name in ("samples", "compute_s"))
    done = trial.steps.groupby("node", observed=True).indices
    for node in trial.plan.nodes:
        own = done.get(node.name)
        if node.throughput and node.variation is None and node.name not in changed and own is not None:
            declared_s = round(_mean(samples[own] / node.throughput), 9)
            achieved_s = _mean(compute_s[own])
            error = achieved_s / declared_s - 1 if declared_s else None
            yield Proof("compute phase", "workers", declared_s, achieved_s, error, "s", "pacing", "measured")


def _mean(values: Floats) -> float:
    """Of those that are known."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else float("nan")


def _events(trial: TrialTable) -> Iterator[Proof]:
    own = {node.name for node in trial.plan.nodes}
    for _, row in trial.events.dropna(subset=["lateness_s"]).iterrows():
        late_s, by = abs(float(row["lateness_s"])), "the nodes" if str(row["by"]) in own else str(row["by"])
        yield Proof("event lateness", str(row["kind"]), 0.0, late_s, None, "s", by, "logged")
