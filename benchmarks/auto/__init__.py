"""Benchmark of strategy `auto`: the chosen strategy against the best fixed one (`make bench-auto`)."""
