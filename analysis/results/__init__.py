"""Results of a run: numbers of each trial, groups of repeated trials, and summary.json."""
