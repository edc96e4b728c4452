"""Fidelity benchmark: how close this host comes to what a scenario declares (`make bench-fidelity`).

- `idle_trial` keeps real nodes waiting before training: started, shaped and probed as for a run. The measuring programs
  of `node_program` run in the containers of these nodes.
- `training` runs whole trials. `trial_cases` runs them equally often, in turns, and counts every trial.
- `catalogue` lists the rows. A row measures one subject and returns measurements (`row`): declared, achieved, gate.
- `bench` runs rows and `results_page` writes their page. `provenance` records which commit measured a row, and on which
  host: a page has rows of one commit on one host.
"""
