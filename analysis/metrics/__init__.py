"""Metrics of trials, such as time to target, speedup, bytes sent and staleness.

A metric is a function of one trial, or of the groups of trials of a run.
"""
