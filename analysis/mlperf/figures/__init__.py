"""Figures of public MLPerf Training results, one kind of figure per file."""
