"""Partition `iid`: workers own no samples."""

from typing import ClassVar, Literal

from services.learning.partitions.base import Partition, SampleParts
from services.schema.arrays import HostArray


class IidPartition(Partition):
    """No parts: in every step, each worker gets a share of a batch that is drawn from all samples.

    The samples of all workers are independent and identically distributed (iid).
    """

    kind: Literal["iid"] = "iid"
    shares_all_samples: ClassVar[bool] = True

    def assign_samples(self, labels: HostArray, worker_count: int) -> SampleParts:  # noqa: ARG002 - no worker owns samples
        return ()
