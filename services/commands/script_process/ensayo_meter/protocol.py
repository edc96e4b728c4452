"""Messages between a metered process and the agent of its node: one JSON object a line.

The process sends `hello`, then `begin` when its first step is recognised, then one `step` for each step, then `end`;
`note` at any time. The agent replies to `begin` and to each `step` with one line, which states the compute time of the
running step or of the next one. All times are `time.monotonic()`, in seconds.

A step is reported when the next one begins, because only then is it known that no further update belongs to it.
"""

import json
from collections.abc import Mapping
from typing import Any

HELLO = "hello"  # pid, torch: the version
BEGIN = "begin"  # begin_s: begin of the first step
STEP = "step"  # number, from 0, the columns STEP_TIMES, collectives
END = "end"  # collectives after the last step, parameters_sha256: digest of the parameters, null if unknown
NOTE = "note"  # text: a problem of the metering; the script goes on
COMPUTE_S = "compute_s"  # of a reply: wall seconds of compute that the step must take, or null: as it comes

# `exposed_s`: seconds in which the main thread waited for collectives; `hidden_s`: other seconds with one in flight.
STEP_TIMES = ("begin_s", "end_s", "exposed_s", "hidden_s")

# launch_s: the script calls the operation. begin_s: the process group gets it, after the pacing. end_s: it ends; null
# if it was not complete when it was reported. Collectives of step 0 with launch_s before its begin_s are those of the
# start. is_gloo_fallback: gloo runs it in place of Ensayo. is_extra: it belongs to an evaluation, or the step has it
# besides those of the step profile; it is not paced. root_rank: from which a broadcast starts, in its group.
# reduce_operation: sum, avg, max, …, of an operation that reduces. For operation and bytes see `collective_sizes`.
COLLECTIVE_COLUMNS = (
    "operation",
    "bytes",
    "dtype",
    "group_size",
    "is_asynchronous",
    "launch_s",
    "begin_s",
    "end_s",
    "is_gloo_fallback",
    "is_extra",
    "root_rank",
    "reduce_operation",
)
MEASURE, DRY_RUN = "measure", "dry_run"  # modes
GLOO, ENSAYO = "gloo", "ensayo"  # process groups


def encode_message(message: Mapping[str, Any]) -> bytes:
    """Return the line of a message."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
