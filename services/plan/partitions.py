"""Partitions of the data network in an error's text: which nodes a partition separated, when, and which event it is."""

from collections.abc import Mapping, Sequence

from services.cluster.events import NetworkPartition, PlannedEvent
from services.cluster.node_faults import COORDINATOR
from services.plan.lost_nodes import describe_moment
from services.plan.plan import Plan

MAX_NAMED_NODES = 4  # of each side, in a text
END_OF_PROCESS_S = 1.0  # virtual seconds within which the process of a node ends after its error


def partition_events(plan: Plan) -> tuple[PlannedEvent, ...]:
    """Return the partitions that a plan has."""
    return tuple(event for event in plan.events if isinstance(event.change, NetworkPartition))


def explain_partitions(plan: Plan, begins_s: Mapping[int, float], now_s: float) -> str:
    """Return which nodes were separated while a message was awaited, as the end of an error's text; empty if none were.

    A node waits for a message for at most `message_timeout_s`, and then for the announcement of a lost node. So a
    partition that ended before these times explains no error.

    Args:
        plan: plan of the trial.
        begins_s: when partitions have begun, by number of the event, in seconds of a clock in virtual time.
        now_s: time of the error on this clock.
    """
    waiting_s = plan.message_timeout_s + plan.loss_announcement_timeout_s + END_OF_PROCESS_S
    return "".join(
        f"; {_describe_separation(plan, event.change)} {describe_moment(event)}"
        for event in partition_events(plan)
        if isinstance(event.change, NetworkPartition) and event.number in begins_s
        if begins_s[event.number] <= now_s <= begins_s[event.number] + event.change.lasts + waiting_s
    )


def _describe_separation(plan: Plan, partition: NetworkPartition) -> str:
    """Return the two sides of a partition, such as `a partition separated worker-2 from server-0 and worker-1`."""
    apart = _list_nodes(partition.apart)
    data_nodes = [node.name for node in plan.nodes if node.name != COORDINATOR]
    others = _list_nodes([name for name in data_nodes if name not in partition.apart])
    if partition.direction == "both":
        return f"a partition separated {apart} from {others}"
    source, target = (apart, others) if partition.direction == "from_apart" else (others, apart)
    return f"a partition stopped messages from {source} to {target}"


def _list_nodes(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    if len(names) > MAX_NAMED_NODES:
        return f"{', '.join(names[:MAX_NAMED_NODES])} and {len(names) - MAX_NAMED_NODES} more"
    return f"{', '.join(names[:-1])} and {names[-1]}"
