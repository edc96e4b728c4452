"""Analysis of a run: reads the run folder, checks and measures the trials, and writes figures and reports.

It starts no nodes. Data flows from top to bottom:

reading/       run folder -> records and tidy tables; damage in the files
checks/        checks, one per file        (trial table -> verdict); `fidelity` runs all checks
metrics/       metrics, one per file       (trial table -> number)
statistics/    intervals and tests for few repeats (arrays -> numbers)
laws/          scaling laws: fits, predictions and backtests
results/       results of trials, groups of repeats, and summary.json
figures/       figures, one per file       (summary -> drawing)
report/        headline, summary text and report.html
comparison/    comparison of several runs
exports/       exports of a run for other tools, one format per file
mlperf/        study of MLCommons' public results
"""
