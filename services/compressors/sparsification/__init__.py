"""Few entries of each vector: `top_k`, `random_k`, `dgc`."""
