"""Readers of the log lines of nodes, and of the records in them."""
