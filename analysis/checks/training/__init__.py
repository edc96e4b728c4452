"""Checks of the training itself: replicas, staleness, events, exit codes, logs."""
