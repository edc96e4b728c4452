"""Execution of a collective's schedule: the part of one rank, its messages, and the executor."""
