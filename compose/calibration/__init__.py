"""Calibration: measures what messages cost on this host and which link rates it reaches, and stores the results."""
