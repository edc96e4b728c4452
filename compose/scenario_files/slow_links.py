"""Check that every link of a scenario transfers a message faster than nodes stop to wait for it."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import NamedTuple

from compose.scenario_files.swept_trial import SweptTrial, list_flows, list_training_phases
from services.cluster.cluster import Cluster
from services.cluster.links.fluid_link import to_goodput_bytes_per_s
from services.cluster.network import SharedLink
from services.plan import Plan, PostSwitchPhasePlan
from services.scenario.learning_task import learning_task_of
from services.scenario.run_settings import EngineName
from services.scenario.scenario import TrialSpec
from services.scenario.sweep import SweepPoint
from services.schema.conflicts import KeyConflict, KeyPath
from services.schema.units import Rate
from services.strategies.cost_model import LinkId

MAX_PARAMETER_BITS = 64  # of the widest type of parameters


class SlowTransfer(NamedTuple):
    """Transfer of one message over a link that takes longer than nodes wait for the message."""

    transfer_s: float
    message_bytes: float
    limit_s: float  # for which nodes wait
    link_text: str
    swept_trial: SweptTrial

    @property
    def message(self) -> str:
        """Message of the conflict: link, times, and how to correct them."""
        needed_bps = self.message_bytes / to_goodput_bytes_per_s(1.0) / self.limit_s
        needed_rate = Rate(f"{1.1 * needed_bps / 1e3:.2g}kbit")
        return (
            f"strategy {self.swept_trial.trial.label}: {self.link_text} needs {self.transfer_s:,.0f} s to transfer one "
            f"message of {self.message_bytes:,.0f} bytes, but nodes wait at most {self.limit_s:,.0f} s (from "
            f"timeouts.step: {self.swept_trial.declared.timeouts.step}); declare a rate of at least {needed_rate}, or "
            "increase timeouts.step"
        )


def find_slow_links(
    trials: Sequence[SweptTrial], resolve_engine_name: Callable[[], EngineName]
) -> Iterator[tuple[KeyConflict, SweepPoint]]:
    """Yield a conflict for each key that declares a link on which nodes give up waiting for a message.

    Each conflict states the slowest transfer of all trials. With it come the swept values of the trial, unless all
    trials of the strategy have the conflict.

    Args:
        trials: all trials to check.
        resolve_engine_name: returns the engine that will run the trials, which decides how long messages are; it is
            called only if a link may be too slow.
    """
    candidates = [swept_trial for swept_trial in trials if _may_have_slow_link(swept_trial.trial)]
    if not candidates:
        return
    engine_name = resolve_engine_name()
    transfers_by_key: dict[KeyPath, list[SlowTransfer]] = defaultdict(list)
    for swept_trial in candidates:
        for key_path, transfer in _slowest_transfer_by_key(swept_trial, engine_name).items():
            transfers_by_key[key_path].append(transfer)
    trials_by_label = Counter(swept_trial.trial.label for swept_trial in trials)
    for key_path, transfers in transfers_by_key.items():
        slowest = max(transfers, key=lambda transfer: transfer.transfer_s)
        label = slowest.swept_trial.trial.label
        affected = sum(transfer.swept_trial.trial.label == label for transfer in transfers)
        sweep_point = slowest.swept_trial.identity.sweep_point if affected < trials_by_label[label] else {}
        yield KeyConflict(key_path, slowest.message), sweep_point


def _may_have_slow_link(trial: TrialSpec) -> bool:
    """Return whether the slowest link would transfer the whole parameter vector too slowly.

    Otherwise every message is fast enough, and no plan is needed.
    """
    scenario = trial.scenario
    if scenario.workload.kind == "command":
        return False  # the command has time limits of its own
    workload = scenario.training_workload
    layout, payload = workload.model.parameter_layout(learning_task_of(workload.dataset).task), workload.planned_payload
    vector_bits = MAX_PARAMETER_BITS * layout.parameter_count * (payload.scale if payload else 1)
    return vector_bits > scenario.timeouts.step * scenario.cluster.slowest_link_bps


def _slowest_transfer_by_key(swept_trial: SweptTrial, engine_name: EngineName) -> dict[KeyPath, SlowTransfer]:
    """Return the slowest transfer over the links of each key that declares a too slow link in one trial."""
    plan = swept_trial.plan_without_events(engine_name)
    limit_s = plan.message_timeout_s + plan.predicted.compute_s * plan.exchange_period
    slowest: dict[KeyPath, SlowTransfer] = {}
    for phase in list_training_phases(plan):
        for transfer_s, message_bytes, link in _message_transfer_times_s(plan, phase):
            if transfer_s > limit_s:
                key_path, link_text = _describe_link(swept_trial.declared.cluster, plan, link)
                transfer = SlowTransfer(transfer_s, message_bytes, limit_s, link_text, swept_trial)
                known = slowest.get(key_path, transfer)
                slowest[key_path] = transfer if transfer_s > known.transfer_s else known
    return slowest


def _message_transfer_times_s(plan: Plan, phase: Plan | PostSwitchPhasePlan) -> Iterator[tuple[float, float, LinkId]]:
    """Yield for each sender, receiver and link between them: seconds and bytes of a mean message, and the link."""
    flows = list(list_flows(plan, phase))
    flow_counts = Counter(source for source, _ in flows)
    max_message_bytes = phase.schedule.max_message_bytes(plan.vector_bytes, *plan.message_size_limits)
    cost_model = plan.step_cost_model
    for source, target in dict.fromkeys(flows):
        exchange_bytes = phase.bytes_per_step[source] * phase.exchange_period / phase.exchanges_per_period
        vector_bytes = exchange_bytes / flow_counts[source]
        message_bytes = vector_bytes / max(1, ceil(vector_bytes / max_message_bytes))
        for link, busy_s in cost_model.busy_s_by_link([((source, target), message_bytes)]).items():
            yield busy_s, message_bytes, link


def _describe_link(cluster: Cluster, plan: Plan, link: LinkId) -> tuple[KeyPath, str]:
    """Return the key of the declared cluster that limits a link of the plan, and a description of the link."""
    direction, node = link
    if isinstance(node, int):
        shared_link = plan.network.shared_links[node]
        return _find_key_of_shared_link(cluster, shared_link), f"link {shared_link.name}"
    key = {"up": "uplink", "down": "downlink"}[direction]
    return (*_find_section_of_access_link(cluster, node, key), key), f"{node}'s {key}"


def _find_section_of_access_link(cluster: Cluster, node_name: str, rate_key: str) -> KeyPath:
    """Return the section that declares the access link of a node: that of its group, or of its role."""
    role, _, rank = node_name.rpartition("-")
    for number, group in enumerate(cluster.groups):
        if role == "worker" and int(rank) in group.ranks and (getattr(group, rate_key) or group.link):
            return ("cluster", "groups", number)
    return ("cluster", role)


def _find_key_of_shared_link(cluster: Cluster, shared_link: SharedLink) -> KeyPath:
    """Return the key that declares a shared link: an item of `links` for a pair of nodes, else `network`."""
    for number, link in enumerate(cluster.links):
        if shared_link.name in {f"{source} to {target}" for source, target in link.directed_node_pairs}:
            return ("cluster", "links", number)
    return ("cluster", "network")
