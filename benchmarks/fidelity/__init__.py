"""How close does this host come to what a scenario declares? `make bench-fidelity` answers, row by row.

`lab` holds real nodes at their gate: started, shaped and probed as for a run. Measuring programs (`benchmarks.fidelity.node_program`)
run in their containers. `training` runs whole trials. A row asks one question and returns lines (`line`): declared,
achieved, gate; `origin` says which code measured it where. `bench` runs rows; `benchmarks.fidelity.__main__`
starts it, since some ask for verdicts, which only `analysis` knows.
"""
