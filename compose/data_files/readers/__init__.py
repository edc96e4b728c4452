"""Readers of data files, one for each format: they check a file and return its samples."""
