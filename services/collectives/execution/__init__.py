"""Execution of a collective: sends and receives of one rank, payloads of its messages, and the executor."""
