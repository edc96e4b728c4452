"""Scenario files: find, parse and validate them, and report every problem with its file, line and key."""
