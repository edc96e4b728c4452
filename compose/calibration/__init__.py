"""Calibration of this host: message time, shaped rates, capacity."""
