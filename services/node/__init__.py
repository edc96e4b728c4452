"""Nodes of a trial: assembly, node process, trial in virtual time, event runner and message probe."""
