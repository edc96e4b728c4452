"""Collectives of `torch.distributed` that the nodes of a user's command logged."""

from collections.abc import Mapping

import pandas as pd

from analysis.reading.logs.mllog import NodeLog

COLLECTIVE_COLUMNS = (  # those of `node_collectives`; times in seconds since run_start
    *("step", "operation", "bytes", "dtype", "group_size", "is_asynchronous"),
    *("launch_s", "begin_s", "end_s", "is_gloo_fallback", "is_extra"),
)
TIME_COLUMNS = ["launch_s", "begin_s", "end_s"]


def read_collectives(log_by_node_name: Mapping[str, NodeLog], start_s: float) -> pd.DataFrame:
    """Return a row per node and collective, in the order of the calls; empty if no command logged any.

    The columns are `node` and COLLECTIVE_COLUMNS. A collective that was not complete has no end. Collectives before the
    first step have the step -1, those after the last one -2.
    """
    rows = [
        {"node": node_name, **dict(zip(event.value["columns"], row, strict=True))}
        for node_name, log in sorted(log_by_node_name.items())
        for event in log.events_with_key("node_collectives")
        for row in event.value["rows"]
    ]
    table = pd.DataFrame(rows, columns=["node", *COLLECTIVE_COLUMNS])
    return table.assign(
        is_extra=table["is_extra"] == True,  # noqa: E712 - not logged by other versions
        **{name: table[name].astype(float) - start_s for name in TIME_COLUMNS},
    )
