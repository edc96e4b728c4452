"""Nodes of a trial: construction, node process, simulation in virtual time, scenario events, message costs."""
