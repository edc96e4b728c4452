"""Invariant: a trial ends by itself, with success or with an error that its policy allows."""

from collections.abc import Iterator

from ensayo.fault_search.event_kinds import EVENT_KINDS
from ensayo.fault_search.simulation import TrialEvidence, WallLimitExceeded
from services.schema.errors import DeclaredNodeLoss, NetworkError, NodeLossError

LOSING_KINDS = {name for name, kind in EVENT_KINDS.items() if kind.may_lose_nodes}


def find_missing_end(evidence: TrialEvidence) -> Iterator[str]:
    """Yield how a trial has not ended as it should.

    A trial may end with a `NetworkError` if events stop messages for longer than the step timeout, and because of lost
    nodes as far as its policy says so.
    """
    error = evidence.error
    if isinstance(error, WallLimitExceeded):
        yield f"the trial hangs: {error}"
    elif error is None:
        yield from _find_wrong_end(evidence)
    elif reason := _explain_forbidden_error(evidence, error):
        yield f"the trial ended with {reason}"


def _find_wrong_end(evidence: TrialEvidence) -> Iterator[str]:
    """Yield how a trial without an error has not ended as it should."""
    longest_s = evidence.plan.timeouts.run
    if not evidence.run_stop:
        yield "the log of the coordinator has no run_stop"
    elif evidence.run_stop["reason"] != "budget used":
        yield f"the run stopped for another reason than its budget: {evidence.run_stop['reason']}"
    elif evidence.end_s > longest_s:
        yield f"the trial ended after {evidence.end_s:g} virtual seconds, later than {longest_s:g} s"


def _explain_forbidden_error(evidence: TrialEvidence, error: BaseException) -> str:
    """Return the error of a trial and why the trial must not end with it; empty if it may."""
    if isinstance(error, DeclaredNodeLoss | NodeLossError):
        reason = _explain_tolerable_loss(evidence)
        return f"{error!r}, although {reason}" if reason else ""
    if not isinstance(error, NetworkError):
        return f"an error that no policy allows: {error!r}"
    timeout_s = evidence.plan.timeouts.step
    if evidence.schedule.longest_wait_s < timeout_s:
        return f"{error!r}, although events do not last for the step timeout ({timeout_s:g} s)"
    return ""


def _explain_tolerable_loss(evidence: TrialEvidence) -> str:
    """Return why the policy of a trial tolerates its losses; empty if the trial may end because of them."""
    if evidence.schedule.longest_wait_s >= evidence.plan.timeouts.step:
        return ""  # it waited too long for another node
    away = {name for event in evidence.schedule.events if event["kind"] in LOSING_KINDS for name in event["of"]}
    servers = {node.name for node in evidence.plan.node_plans_of_role("ps_shard")}
    if evidence.plan.recovery.on_failure == "restore":
        return "all nodes can be restored"
    if away & servers or away >= set(evidence.worker_names):
        return ""
    return f"only {', '.join(sorted(away))} can be lost"
