"""Policies of parameter servers: synchronisation, update rules, staleness weights, delay compensation, placement."""
