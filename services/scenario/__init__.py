"""What the user declares: scenario, workload, sweep, target, published results."""
