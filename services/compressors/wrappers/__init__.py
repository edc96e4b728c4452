"""Compressors that contain another compressor: `error_feedback`, `large_arrays_only`."""
