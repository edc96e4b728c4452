"""Reference convergence points: samples that one worker needs to the target, for several batches and seeds."""
