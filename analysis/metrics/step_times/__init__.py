"""Metrics of the time of a step: measured, predicted, and spent on compute."""
