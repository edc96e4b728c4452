"""Figures of public results: one file per kind, drawn once for each workload."""
