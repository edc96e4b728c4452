"""Conflicts between the keys of a scenario: its trials, its sweep, names of nodes and strategies, sizes, events."""

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from services.cluster.cluster import cluster_node_names
from services.cluster.connection_drop import ConnectionDrop
from services.cluster.events import LinkChange, event_conflicts
from services.cluster.links.message_corruption import MessageCorruption
from services.scenario.commands.command_conflicts import find_command_conflicts
from services.scenario.conflicts.recovery_conflicts import find_recovery_conflicts
from services.scenario.conflicts.training_conflicts import find_training_size_conflicts, find_unswept_conflicts
from services.scenario.published_curves import unknown_label_conflicts
from services.scenario.sweep import WORKERS_KEY_PATH, is_positive_int, unsweepable_key_reason
from services.schema.conflicts import KeyConflict, prepend_parent_key, raise_conflicts
from services.schema.limits import MAX_SERVERS, MAX_TRIALS, MAX_WORKERS

if TYPE_CHECKING:
    from services.scenario.scenario import Scenario


def raise_scenario_conflicts(scenario: "Scenario") -> None:
    """Raise the conflicts between the keys of a scenario.

    Most can be checked only without a sweep, when each key has a single value: they are checked for each trial.

    Raises:
        ScenarioKeyConflictError: keys conflict with each other, or a limit is exceeded.
    """
    raise_conflicts(_find_trial_count_conflicts(scenario))  # before the trials are enumerated
    raise_conflicts((*_find_sweep_item_conflicts(scenario), *_find_unknown_name_conflicts(scenario)))
    if scenario.sweep:
        return
    raise_conflicts(prepend_parent_key("cluster", scenario.cluster.find_variation_conflicts()))
    if scenario.workload.kind == "command":
        raise_conflicts((*find_command_conflicts(scenario), *_find_rate_change_conflicts(scenario)))
        return
    raise_conflicts(find_training_size_conflicts(scenario))  # before strategies compute anything for each step
    partition_conflicts = scenario.training_workload.find_partition_conflicts(scenario.cluster.workers)
    raise_conflicts(prepend_parent_key("workload", partition_conflicts))
    raise_conflicts(
        (
            *find_unswept_conflicts(scenario),
            *find_recovery_conflicts(scenario),
            *_find_corruption_conflicts(scenario),
            *_find_rate_change_conflicts(scenario),
            *_find_connection_conflicts(scenario),
        )
    )


def _find_trial_count_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict if the scenario has more trials than allowed; the trials are counted, not enumerated."""
    labels = ((None,) if scenario.baseline else ()) + tuple(scenario.strategies)
    combinations = sum(
        prod(len(axis.swept_values_or_names) for axis in scenario.sweep_axes_of_strategy(label).values())
        for label in labels
    )
    if combinations * scenario.repeats > MAX_TRIALS:
        message = (
            f"the scenario has {combinations * scenario.repeats:,} trials: {combinations:,} combinations of strategy "
            f"and swept values, times {scenario.repeats:,} repeats; at most {MAX_TRIALS:,} trials are allowed; "
            "reduce repeats, swept values or strategies"
        )
        yield KeyConflict(("sweep" if combinations > scenario.repeats else "repeats",), message)


def _find_connection_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict for each event that ends connections of a transport that does not open them again."""
    for k, event in enumerate(scenario.events):
        if isinstance(event, ConnectionDrop) and scenario.transport != "tcp":
            message = (
                f"streams over {scenario.transport} are not opened again, so the trial would fail; write transport: tcp"
            )
            yield KeyConflict(("events", k, "kind"), message)


def _find_sweep_item_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    document = scenario.encode()
    for name, axis in scenario.sweep.items():
        for path in axis.swept_key_paths(name):
            if message := unsweepable_key_reason(path, document):
                yield KeyConflict(("sweep", name), message)
        counts = axis.list_swept_values(name, WORKERS_KEY_PATH)
        if invalid_counts := [v for v in counts if not (is_positive_int(v) and v <= MAX_WORKERS)]:
            message = (
                f"the number of workers should be a whole number from 1 to {MAX_WORKERS:,}, not {invalid_counts[0]!r}"
            )
            yield KeyConflict(("sweep", name), message)


def _find_unknown_name_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict for every name of a node or strategy that exists in no trial of the sweep."""
    workers, servers = _largest_node_counts(scenario)
    yield from prepend_parent_key("cluster", scenario.cluster.find_unknown_node_refs(workers, servers))
    yield from prepend_parent_key("events", event_conflicts(scenario.events, cluster_node_names(workers, servers)))
    yield from unknown_label_conflicts(scenario.published, list(scenario.strategies))


def _swept_node_counts(scenario: "Scenario", count_key_path: str) -> Iterator[int]:
    """Yield the values of a swept key that counts nodes, such as the number of workers or of servers."""
    values = (value for name, axis in scenario.sweep.items() for value in axis.list_swept_values(name, count_key_path))
    return (value for value in values if is_positive_int(value) and value <= max(MAX_WORKERS, MAX_SERVERS))


def _swept_server_counts(scenario: "Scenario") -> Iterator[int]:
    for label in scenario.strategies:
        for phase in ("", ".before", ".after"):  # keys of a strategy with two phases
            yield from _swept_node_counts(scenario, f"strategies.{label}{phase}.servers")


def _largest_node_counts(scenario: "Scenario") -> tuple[int, int]:
    """Return the largest numbers of workers and of servers in any trial of the sweep."""
    workers = max(_swept_node_counts(scenario, WORKERS_KEY_PATH), default=scenario.cluster.workers)
    server_counts = (strategy.training_phases().server_count for strategy in scenario.strategies.values())
    return workers, max((*_swept_server_counts(scenario), *server_counts))


def _find_rate_change_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict for every event that changes the rate of a link without a declared rate."""
    names = cluster_node_names(*_largest_node_counts(scenario))
    for k, declared_event in enumerate(scenario.events):
        event = declared_event.expand_node_groups(names)
        for key in ("uplink", "downlink"):
            if not isinstance(event, LinkChange) or getattr(event, key) is None:
                continue
            unshaped = [name for name in event.of if getattr(scenario.cluster.access_link(name), key) is None]
            if unshaped:
                message = f"{unshaped[0]} has no declared {key} that the event could change; declare one in cluster"
                yield KeyConflict(("events", k, key), message)


def _find_corruption_conflicts(scenario: "Scenario") -> Iterator[KeyConflict]:
    """Yield a conflict for every event that corrupts messages before TLS encrypts them, so that TLS can't see it."""
    for k, event in enumerate(scenario.events):
        if isinstance(event, MessageCorruption) and scenario.security.data == "tls":
            message = (
                "the event flips bits before TLS encrypts the message, so TLS can't detect the corruption; "
                "write security: {data: authenticated}, which refuses such messages, or remove the event"
            )
            yield KeyConflict(("events", k, "kind"), message)
