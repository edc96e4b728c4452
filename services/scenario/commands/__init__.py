"""Workload of a scenario that runs a training command of the user."""
