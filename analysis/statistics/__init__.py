"""Statistics of a few runs, computed from arrays: confidence intervals, comparisons, best numbers of workers.

centre              olympic mean (MLPerf's centre of a few runs) and median
intervals           confidence intervals of a mean time and of a ratio of two mean times
efficiency          speedup, efficiency E', and its factors hardware x statistical
balance             the number of workers that is worth its cost, by three rules, with intervals
paired              comparison of two strategies over the same seeds
holm                correction of p-values for the number of comparisons
rounding            variance that remains where runs agree because their times were rounded to the same value
convergence_check   check for strategies that need fewer samples than the reference
"""
