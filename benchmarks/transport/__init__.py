"""Transport benchmark: Ensayo's data planes compared with other implementations (`make bench-transport`).

- `cases` defines what is measured and which ratios must be reached.
- `network_namespaces` creates the links, and `rank_processes` starts the processes behind them.
- `jobs` is the protocol between the benchmark and these processes.
- `protection` compares the protections of messages (`make bench-protection`).
- `rank` is the program over Ensayo's data planes. `gloo`, `raw_tcp`, `textbook_grpc` and `bare_grpc` are its rivals.
"""
