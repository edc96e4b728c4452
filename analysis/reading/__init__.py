"""Reading of a run folder: logs, plans, statuses, tidy tables, damage."""
