"""Figures of strategies over the number of workers: speedup, efficiency, and scaling laws."""
