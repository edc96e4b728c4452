"""Kill matrix: each role is killed in each phase of a trial, under each strategy and policy (`make bench-faults`).

- `cells` lists the cells of the matrix: strategies, policies, roles and phases, and what must happen in each.
- `phases` finds out from outside when a trial is in a phase, and whether a node was killed in it.
- `outside_kill` kills a container or a process with SIGKILL, as another program of the host would.
- `cell_trial` runs the trial of one cell, and `cell_result` has what was measured, and what differs from the policy.
- `bench` runs cells and saves their results; `results_page` writes their page.
"""
