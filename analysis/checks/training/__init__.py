"""Checks of the training: exit codes, logs, events, model replicas, gradient staleness."""
