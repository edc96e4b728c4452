"""Calibration of this host: message costs, shaped link rates, and the capacity that admission uses."""
