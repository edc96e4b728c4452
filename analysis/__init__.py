"""Analysis of a run: reads the run folder, checks and measures the trials, and writes figures and reports.

It starts no nodes. The data of a run goes through these packages, from top to bottom:

reading/       run folder -> tables of each trial; damage in the files
checks/        tables of a trial -> verdict, one check per file; `fidelity` runs all checks
metrics/       tables of a trial, or groups of trials -> numbers, one metric per file
results/       results of trials, groups of repeats, and summary.json
figures/       analysed run -> drawing, one figure per file
report/        headline, findings, summary text and report.html
comparison/    comparison of runs with each other and with published results
exports/       run -> files of other tools, one format per file

Packages that several of these use:

statistics/    arrays -> intervals and tests for few repeats
claims/        claims of a published study: outcomes and sentences
laws/          scaling laws: fits, predictions and backtests
mlperf/        study of MLCommons' public results
"""
