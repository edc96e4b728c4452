"""Records of a scenario file (workload, strategies, sweep, quality target, published results), and its trials."""
