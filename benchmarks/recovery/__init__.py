"""Benchmark of recovery: times after the kill of a worker, and a training with many kills.

cases             scenarios and limits
kill_schedule     seeded moments of many kills
kill_outcomes     what followed each kill of a trial
expected_goodput  closed form of the goodput with a number of kills
node_resources    memory and file descriptors of the nodes
trials            runs of the scenarios
measurements      all measurements in order
gates             each limit, and whether it is met
results_page      tables and page
"""
