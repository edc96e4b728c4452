"""Metrics: one number (or one small table of numbers) per file, each a function of a trial or of a group of trials."""
