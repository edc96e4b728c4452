"""What may be said of a few runs: how sure, of which difference, and is it too good to be true? Knows arrays only.

centre       the olympic mean, MLPerf's centre of a few runs
bootstrap    intervals: of a centre, of a ratio of two, of many centres together
efficiency   speedup, E', and its factors hardware x statistical
balance      how many workers are worth their cost, by three rules, with intervals
paired       two strategies over the same seeds; `holm` for many such comparisons
rounding     what is left of doubt where runs agree because they were rounded alike
guard        a strategy that needs fewer samples than the reference is checked for a bug, not celebrated
"""
