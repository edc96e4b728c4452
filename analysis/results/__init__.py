"""Results of a run in numbers: trials, groups of trials, summary.json."""
