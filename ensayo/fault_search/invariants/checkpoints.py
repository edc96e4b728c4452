"""Invariant: all nodes write the checkpoints that the coordinator has announced."""

from collections.abc import Iterator

from ensayo.fault_search.simulation import TrialEvidence
from services.plan import COORDINATOR


def find_missed_checkpoints(evidence: TrialEvidence) -> Iterator[str]:
    """Yield each node that passed an announced step of the last membership epoch without writing its checkpoint.

    An attempt that fails because the disk is full counts. Nodes that did not reach the end of the training are not
    checked, and neither are steps that were announced before the last loss: it may have cancelled them.
    """
    coordinator = evidence.events[COORDINATOR]
    last_epoch_ms = max((event["time_ms"] for event in coordinator["membership_epoch"]), default=0.0)
    changes = [event["value"] for event in coordinator["membership"]]
    finished = sorted({change["node"] for change in changes if change["event"] == "left"})
    for announcement in coordinator["checkpoint_announced"]:
        step, announced_ms = announcement["metadata"]["step"], announcement["time_ms"]
        if announced_ms < last_epoch_ms:
            continue
        for node in finished:
            events = evidence.events[node]
            attempts = [*events["checkpoint"], *events["checkpoint_failed"]]
            if not any(each["metadata"]["step"] == step and each["time_ms"] >= announced_ms for each in attempts):
                yield f"{node} passed step {step} without writing the announced checkpoint"
