"""Rows of the endurance benchmark, one file per subject."""
