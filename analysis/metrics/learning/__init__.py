"""Metrics of what was learned: progress, quality target, stale gradients, distance of replicas, samples per worker."""
