"""Did every node send what the plan says?"""

from analysis.checks.verdict import Verdict, degraded, invalid, valid
from analysis.metrics.bytes_sent import bytes_sent, expected_bytes_sent
from analysis.reading.run_table import TrialTable

TOLERANCE = 0.01  # frames and rounding of chunks, not a lost or doubled message


def bytes_on_wire(trial: TrialTable) -> Verdict:
    """Invalid when a node's payload bytes differ by more than 1 % from bytes per step x its steps."""
    sent, expected = bytes_sent(trial), expected_bytes_sent(trial)
    if not any(expected.values()):
        return valid("nothing is to be exchanged")
    silent = sorted(node for node in expected if node not in sent)
    if silent:
        return degraded(f"{', '.join(silent)}: no count of bytes sent")
    errors = {node: (sent[node] - count) / max(count, 1) for node, count in expected.items()}
    node = max(errors, key=lambda name: abs(errors[name]))
    if abs(errors[node]) > TOLERANCE:
        return invalid(f"{node} sent {sent[node]} bytes where the plan says {expected[node]} ({errors[node]:+.1%})")
    return valid(f"bytes sent agree with the plan within {abs(errors[node]):.2%}")
