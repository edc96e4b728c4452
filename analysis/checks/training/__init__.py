"""Checks of the training itself: exit codes, logs, events, replicas, staleness."""
