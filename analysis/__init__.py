"""From a run folder to a report: reads what nodes printed, measures, judges, draws. Starts nothing.

folder, plan   where things lie in a run, what the plan of a trial said
mllog          one log line; `record` merges the lines of a trial, `table` turns them into tidy frames
statistics/    what may be said of a few runs  (arrays -> intervals, factors, balance points)
laws/          how times grow with workers, and what held-out sizes say of such laws
metrics/       one number per file              (table -> number)
checks/        one doubt per file               (table -> verdict); `fidelity` puts them together
result         one trial in numbers; `summary` the whole run, written as summary.json
figures/       one figure per file              (summary -> drawing)
headline       the answer in one sentence; `report` the page around it; `compare` two runs side by side
export         a run for another tool; `exports/` one format per file
mlperf/        our rules for MLCommons' compliance checker
"""
