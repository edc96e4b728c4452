"""Parts of a training workload, such as models, datasets and optimisers.

Further parts are the data order and the layout of the parameter vector.
"""
