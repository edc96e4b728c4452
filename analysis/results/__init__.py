"""Results of a run: trials in numbers, repeats as groups, and summary.json."""
