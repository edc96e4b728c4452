"""Analysis of a run: reads the run folder, checks and measures the trials, and writes figures and reports.

It starts no nodes. Data flows from top to bottom:

reading/       run folder -> records and tidy tables; damage in the files
checks/        one check per file          (trial table -> verdict); `fidelity` runs all of them
metrics/       one metric per file         (trial table -> number)
statistics/    intervals, tests and efficiency of a few repeats (arrays -> numbers)
laws/          scaling laws: fits, predictions and backtests
results/       trials in numbers, groups of repeats, summary.json
figures/       one figure per file         (summary -> drawing)
report/        headline, summary text and report.html
comparison/    several runs side by side
exports/       a run in the formats of other tools, one format per file
mlperf/        study of MLCommons' public results
"""
