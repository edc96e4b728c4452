"""Records of links that the transport shapes, for trials of the engines `local` and `simulated`."""

from collections.abc import Iterator, Mapping

from compose.shaping.link_state import link_changes
from services.plan import COORDINATOR, NodePlan, Plan
from services.plan.trial_outcome import LinkShapingRecord

NOT_EMULATED = "none"  # recorded as the mechanism of a declared property that is not emulated


def make_shaping_records(plan: Plan, shaping_mechanism: str) -> dict[str, LinkShapingRecord]:
    """Return the record of each link, with its declared properties and their emulation.

    The result maps node on the data network -> declared link properties and how each is emulated. The fluid model has
    rates, shared links, delays and jitter. It loses no packets and its queues have no limit, so `loss` and `buffer` are
    recorded as not emulated.

    Args:
        plan: of the trial.
        shaping_mechanism: `transport`, or `fluid` in virtual time.
    """
    return {
        node.name: LinkShapingRecord(
            rung=shaping_mechanism,
            uplink_bps=node.uplink_bps,
            downlink_bps=node.downlink_bps,
            rungs={
                name: NOT_EMULATED if name in ("loss", "buffer") else shaping_mechanism
                for name in _declared_link_properties(plan, node)
            },
        )
        for node in plan.nodes
        if node.name != COORDINATOR
    }


def unemulated_links_error(plan: Plan, shaping_by_node: Mapping[str, LinkShapingRecord]) -> str | None:
    """Return the reason why `strict: true` forbids a trial.

    The reason is that declared link properties are not emulated. Return None if the trial can run.
    """
    if not plan.strict:
        return None
    missing = sorted(
        {name for record in shaping_by_node.values() for name, value in record.rungs.items() if value == NOT_EMULATED}
    )
    if not missing:
        return None
    return (
        f"strict: engine {plan.engine} does not emulate {' and '.join(missing)}, which the scenario declares; "
        "try --engine docker, or remove `strict: true` from the scenario"
    )


def _declared_link_properties(plan: Plan, node: NodePlan) -> Iterator[str]:
    """Yield the properties that a trial plan declares for a node's link.

    The properties are rate, pipes (shared links), delay, loss and buffer.
    """
    changes = [change for change in link_changes(plan) if node.name in change.of]
    paths = [path for path in plan.network.paths if node.name in (path.source, path.target)]
    if node.uplink_bps or node.downlink_bps or any(change.uplink or change.downlink for change in changes):
        yield "rate"
    if any(node.name in pipe.sources + pipe.targets for pipe in plan.network.shared_links):
        yield "pipes"
    if any(path.delay_s for path in paths) or any(change.delay for change in changes):
        yield "delay"
    if any(path.losses for path in paths) or any(change.loss for change in changes):
        yield "loss"
    if node.buffer_bytes is not None:
        yield "buffer"
