"""The coordinator: starts a run, evaluates its parameters and ends it.

`machine` and `switchover` decide, `runtime` acts on the decisions, `service` serves the calls of the nodes over gRPC.
"""
