"""Scenario files: find, parse, validate, and report problems with file, line and key."""
