"""How much of a worker's exchange was waiting for slower workers?

Nodes log how long a step's exchange took. All nodes share a clock, so here it can be seen when the last worker of a
step began its own exchange; until then, an earlier worker of a synchronous strategy could only wait.
"""

import pandas as pd


def part_waiting(steps: pd.DataFrame) -> pd.DataFrame:
    """`steps` of a synchronous trial with `wait_s` taken out of `exchange_s`; both in virtual seconds."""
    reached_s = steps["start_s"] + steps["data_s"] + steps["compute_s"]
    last_s = reached_s.groupby(steps["step"]).transform("max")
    wait_s = (last_s - reached_s).clip(lower=0.0, upper=steps["exchange_s"])
    return steps.assign(wait_s=wait_s, exchange_s=steps["exchange_s"] - wait_s)
