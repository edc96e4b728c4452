"""Invariant: a trial ends by itself, with success or with an error that its policy allows."""

from collections.abc import Iterator

from ensayo.fault_search.simulation import TrialEvidence, WallLimitExceeded
from services.schema.errors import NetworkError


def find_missing_end(evidence: TrialEvidence) -> Iterator[str]:
    """Yield how a trial has not ended as it should.

    A trial may end with a `NetworkError` if events stop messages for longer than the step timeout.
    """
    error, timeouts = evidence.error, evidence.plan.timeouts
    if isinstance(error, WallLimitExceeded):
        yield f"the trial hangs: {error}"
    elif error is None:
        longest_s = timeouts.run
        if not evidence.run_stop:
            yield "the log of the coordinator has no run_stop"
        elif evidence.run_stop["reason"] != "budget used":
            yield f"the run stopped for another reason than its budget: {evidence.run_stop['reason']}"
        elif evidence.end_s > longest_s:
            yield f"the trial ended after {evidence.end_s:g} virtual seconds, later than {longest_s:g} s"
    elif not isinstance(error, NetworkError):
        yield f"the trial ended with an error that no policy allows: {error!r}"
    elif evidence.schedule.longest_wait_s < timeouts.step:
        yield f"the trial ended with {error!r}, although events do not last for the step timeout ({timeouts.step:g} s)"
