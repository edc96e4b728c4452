"""Trials of a run: which of them run, their attempts, their supervision, and the probes before them."""
