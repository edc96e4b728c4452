"""Benchmarks and measuring programs behind `make bench-*`; not part of the wheel."""
