"""Execution of a collective's schedule: operations of one rank, payloads of its messages, and the executor."""
