"""Policies of parameter servers: synchronisers, update rules, staleness, compensation, placement."""
