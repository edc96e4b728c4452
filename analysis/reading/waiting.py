"""Split of the exchange time of synchronous steps into communication and waiting for slower workers.

Nodes log how long the exchange of a step took, and how long a server delayed its reply for other workers. For
synchronous training there is a better measure, which queues at a server do not blur. All nodes share a clock, so the
tables show when the last worker of a step began its exchange. Until then, an earlier worker could only wait.
"""

import pandas as pd


def separate_straggler_wait(step_table: pd.DataFrame) -> pd.DataFrame:
    """Return the step table of a synchronous trial with newly computed communication and waiting times.

    The exchange time is split anew into `exchange_s` and `wait_s`, both in virtual seconds. Their sum stays as it was
    logged. Compute before the begin of a step does not delay the exchange of the step.
    """
    early_s = step_table["early_s"].astype(float).fillna(0.0)
    exchange_begins_s = step_table["start_s"] - early_s + step_table["data_s"] + step_table["compute_s"]
    last_begins_s = exchange_begins_s.groupby(step_table["step"]).transform("max")
    total_s = step_table["exchange_s"] + step_table["wait_s"]
    wait_s = (last_begins_s - exchange_begins_s).clip(lower=0.0, upper=total_s)
    return step_table.assign(wait_s=wait_s, exchange_s=total_s - wait_s)
