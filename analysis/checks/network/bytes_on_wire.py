"""Check that every node sent as many payload bytes as planned."""

from analysis.checks.verdict import CheckVerdict, degraded_verdict, invalid_verdict, valid_verdict
from analysis.metrics.bytes_sent import bound_bytes_sent, sent_and_expected_bytes
from analysis.reading.run_table import TrialLogTables

BYTES_TOLERANCE = 0.01  # allows for message frames and rounding of chunks, not for a lost or doubled message


def check_bytes_sent(trial: TrialLogTables) -> CheckVerdict:
    """Return the verdict `invalid` if a node did not send as many payload bytes as planned.

    A difference of up to 1 % from the trial plan is accepted. Extra collectives of a user's command are not compared.
    Where workers choose their partners during the run, the plan bounds the bytes of a node, and a difference from the
    nearest bound counts.
    """
    if trial.membership.epochs:
        return valid_verdict("the bytes sent are not compared with the plan, because the workers changed")
    continued = trial.plan.continued
    if continued and continued.step and (continued.is_attempt or trial.plan.format_stages):
        return valid_verdict("the bytes sent are not compared with the plan, because training continued a checkpoint")
    sent, expected = sent_and_expected_bytes(trial)
    if not any(expected.values()):
        is_unknown = trial.plan.workload_kind == "command" and trial.plan.workers > 1
        return valid_verdict(
            "the bytes of the command's steps were not predicted" if is_unknown else "the plan expects no exchange"
        )
    uncounted = sorted(node for node in expected if node not in sent)
    if uncounted:
        return degraded_verdict(f"the bytes sent were not counted for {', '.join(uncounted)}")
    bounds = bound_bytes_sent(trial, expected)
    nearest = {node: min(max(sent[node], least), most) for node, (least, most) in bounds.items()}
    errors = {node: (sent[node] - count) / max(count, 1) for node, count in nearest.items()}
    worst = max(errors, key=lambda node: abs(errors[node]))
    if abs(errors[worst]) > BYTES_TOLERANCE:
        return invalid_verdict(
            f"{worst} sent {sent[worst]} bytes, but the plan expects {round(nearest[worst])} ({errors[worst]:+.1%}, "
            f"limit {BYTES_TOLERANCE:.0%})"
        )
    return valid_verdict(f"bytes sent agree with the plan within {abs(errors[worst]):.2%}")
