"""Figures of public results, one kind of figure per file."""
