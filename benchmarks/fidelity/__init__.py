"""Fidelity benchmark: how close this host comes to what a scenario declares (`make bench-fidelity`).

- `idle_trial` keeps real nodes waiting before training: started, shaped and probed as for a run. The measuring programs
  of `node_program` run in the containers of these nodes.
- `training` runs whole trials.
- A row is a function that measures one subject and returns measurements (`row`): declared, achieved, gate.
  `provenance` records which commit measured a row, and on which host.
- `bench` runs rows. `benchmarks.fidelity.__main__` starts it, since some rows need verdicts of `analysis`.
"""
