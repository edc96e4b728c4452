"""Benchmarks behind `make bench` and `make bench-*`. They are not part of the wheel."""
