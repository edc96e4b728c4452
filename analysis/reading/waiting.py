"""How much of a worker's exchange was waiting for slower workers?

Nodes log how long a step's exchange took, and how long a server kept its answer back for others. In lockstep there is
a better measure, which no queue at a server blurs: all nodes share a clock, so here it can be seen when the last worker
of a step began its own exchange; until then, an earlier worker could only wait.
"""

import pandas as pd


def part_waiting(steps: pd.DataFrame) -> pd.DataFrame:
    """`steps` of a synchronous trial with exchanges parted anew into `wait_s` and `exchange_s`, in virtual seconds."""
    reached_s = steps["start_s"] + steps["data_s"] + steps["compute_s"]
    last_s = reached_s.groupby(steps["step"]).transform("max")
    together_s = steps["exchange_s"] + steps["wait_s"]
    wait_s = (last_s - reached_s).clip(lower=0.0, upper=together_s)
    return steps.assign(wait_s=wait_s, exchange_s=together_s - wait_s)
