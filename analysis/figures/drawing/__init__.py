"""Shared parts of figures: style, labels, marks, files."""
