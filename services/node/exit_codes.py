"""Exit codes of the process of a node, which engines read."""

EXIT_FAILED = 4  # an error that another node may have caused
EXIT_EVICTED = 5  # the coordinator has considered the node lost, and training goes on without it
