"""A worker, which computes gradients: `loop` is its life."""
