"""Records of a scenario file, such as workload and strategies, and the scenario's trials.

Further records are the sweep, the quality target and published results.
"""
