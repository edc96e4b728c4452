"""The coordinator of a run: starts and stops the training of all nodes, and evaluates the parameters.

`machine` and `switchover` decide, `runtime` acts on the decisions, `service` serves the calls of the nodes over gRPC.
"""
