"""Coordinator of a run, which starts and stops the training of all nodes and evaluates the parameters.

`machine` and `switch_machine` decide, `runtime` and `strategy_switch` execute their decisions, and `service` serves the
gRPC calls of the nodes.
"""
