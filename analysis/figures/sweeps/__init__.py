"""Figures of strategies over swept scenario values: training time, and quality of the trained model."""
