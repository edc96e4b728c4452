"""What is trained: models, datasets, optimisers, data order, layout of the parameter vector."""
