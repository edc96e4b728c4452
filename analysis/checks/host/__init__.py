"""Checks of the host: admission, load, lateness, deadlines."""
