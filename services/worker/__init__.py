"""The worker: computes gradients, trains with a strategy and takes part in a strategy switch."""
