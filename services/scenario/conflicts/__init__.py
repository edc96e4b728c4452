"""Conflicts between the keys of a scenario, which are reported before anything starts."""
