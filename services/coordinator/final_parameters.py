"""Final parameters of an asynchronous training, joined from the final reports of its nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from services.runtime.control import FinalNodeReport
from services.schema.arrays import HostArray


def join_server_reports(reports: Mapping[str, FinalNodeReport], shard_owners: Sequence[str]) -> FinalNodeReport:
    """Return the final parameters of all servers as one vector, with the counts of the first server."""
    of_servers = [reports[name] for name in shard_owners]
    return replace(of_servers[0], parameters=b"".join(report.parameters for report in of_servers))


def average_worker_reports(
    reports: Mapping[str, FinalNodeReport], worker_names: Sequence[str], dtype: str
) -> FinalNodeReport:
    """Return the mean of the final parameters of all workers, with the largest number of samples."""
    of_workers = [reports[name] for name in worker_names]
    mean = _mean_vector([np.frombuffer(report.parameters, dtype) for report in of_workers])
    return FinalNodeReport(mean.tobytes(), of_workers[0].version, max(report.samples for report in of_workers))


def _mean_vector(vectors: Sequence[HostArray]) -> HostArray:
    """Return the mean of vectors of shape (n,), summed in fp64 in their order."""
    total = np.zeros(vectors[0].shape)
    for vector in vectors:
        total += vector
    return (total / len(vectors)).astype(vectors[0].dtype)
