"""Distances of the workers' parameters from their mean, which workers of gossip strategies log at evaluations."""

from collections.abc import Mapping

import pandas as pd

from analysis.reading.logs.mllog import NodeLog

# Euclidean distance of a worker's parameters from the mean of all workers, norm of this mean, and what the exchange
# that computed the mean has cost this worker.
CONSENSUS_COLUMNS = ("distance", "mean_norm", "seconds", "bytes_sent")


def read_consensus(log_by_node_name: Mapping[str, NodeLog]) -> pd.DataFrame:
    """Return a row per worker and evaluation; empty if the strategy needs no exchange before evaluations.

    The columns are `node`, `step` (finished steps) and CONSENSUS_COLUMNS.
    """
    rows = [
        (node_name, int(event.metadata["step"]), *(float(event.value[name]) for name in CONSENSUS_COLUMNS))
        for node_name, log in sorted(log_by_node_name.items())
        for event in log.events_with_key("consensus")
    ]
    return pd.DataFrame(rows, columns=["node", "step", *CONSENSUS_COLUMNS])
