"""Parts of a training workload: models, datasets, optimisers, data order, layout of the parameter vector."""
