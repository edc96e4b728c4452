"""Check that a single probe message takes as long as the rate of its link predicts."""

from collections.abc import Iterator

from analysis.checks.engine_kind import are_links_shaped_by_kernel
from analysis.checks.verdict import WRONG_LINKS_REMEDY, CheckVerdict, VerdictLevel, disturbed_verdict, valid_verdict
from analysis.reading.run_table import TrialLogTables


def check_probe_message_times(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `invalid` if a probe message was too slow or too fast for its link.

    The rate of the link predicts the message's duration.

    A probe message is as large as those of the workload. The tolerance is that of rates plus that of the host's timers.
    Long probe flows show only the long-term rate of a link. A single message also shows whether its beginning passes
    too fast (burst credits), and whether the transport reaches the link's rate.
    """
    if not are_links_shaped_by_kernel(trial):
        return valid_verdict("Ensayo's own code shapes the links, so they were not probed")
    messages = list(_read_message_durations(trial))
    if not messages:
        return valid_verdict("no message was timed: no path with a rate is without delay and loss and fast enough")
    path, declared_s, achieved_s = max(messages, key=lambda message: abs(message[2] / message[1] - 1))
    duration = f"a message from {path} took {1e3 * achieved_s:.3g} ms"
    measured = f"{duration}; the rate of its link predicts {1e3 * declared_s:.3g} ms"
    for _, expected_s, measured_s in messages:
        if abs(measured_s - expected_s) > trial.plan.fidelity.message_time_tolerance_s(expected_s, trial.plan.dilation):
            return disturbed_verdict(VerdictLevel.INVALID, measured, remedy=WRONG_LINKS_REMEDY)
    return valid_verdict(measured)


def _read_message_durations(trial: TrialLogTables) -> Iterator[tuple[str, float, float]]:
    """Yield the path, the predicted seconds and the measured seconds of each timed message.

    The path is text that names the source and the target of the message.
    """
    for node_name, link_shaping in (trial.status.get("shaping") or {}).items():
        for peer, message in (link_shaping.get("message_s") or {}).items():
            yield f"{node_name} to {peer}", float(message["declared"]), float(message["achieved"])
