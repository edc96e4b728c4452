"""Reference convergence points: training samples that one worker needs to reach a target, by workload and batch."""
