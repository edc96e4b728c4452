"""Findings on a run: sentences for the first line of a report and for its summary."""
