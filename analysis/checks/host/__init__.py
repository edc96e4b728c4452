"""Checks of the host: admission, load, late wake-ups, missed deadlines, CPU quotas."""
