"""Checks of the host: time dilation, CPU load, late wake-ups, missed deadlines, CPU quotas."""
