"""Overlap by buckets: each bucket of the gradient is exchanged while the backward pass computes the next ones.

S. Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020. Unlike there, the
first bucket is as large as the others, and one bucket is exchanged at a time.
"""

from math import inf
from typing import Literal, Self

from pydantic import Field

from services.collectives import NetworkAndModelSizes
from services.schema.component import SET_BY_ENSAYO
from services.schema.units import Bytes
from services.strategies.cost_model import StepTimePrediction
from services.strategies.overlap.base import BucketPart, GradientBucket, Overlap, PredictExchange
from services.strategies.overlap.timeline import cut_into_buckets, list_exchange_ends_s, split_compute_time

MAX_LATENCY_SHARE = 0.1  # of the time of a bucket's exchange, where the size of buckets is chosen


class BucketOverlap(Overlap):
    """Exchange of the gradient in buckets of whole arrays, in the order in which the backward pass computes them.

    A bucket is exchanged when all its arrays have been computed and the bucket before it has been exchanged. So all
    workers exchange the same buckets in the same order. Sums have the same bits as those of an exchange that cuts the
    vector at the same places.
    """

    kind: Literal["buckets"] = "buckets"
    bucket_size: Bytes | Literal["auto"] = Field(
        Bytes("25MB"),
        description="bytes of a bucket on the wire; the array that reaches this size is the last one of its bucket. "
        "auto: the smallest size of whose exchange time latency is at most a tenth",
    )
    buckets: tuple[GradientBucket, ...] = Field(
        (), description="buckets of the model; set by Ensayo, do not write it", json_schema_extra=SET_BY_ENSAYO
    )

    @property
    def gradient_buckets(self) -> tuple[GradientBucket, ...]:
        return self.buckets

    @property
    def exchange_order(self) -> tuple[BucketPart, ...]:
        return tuple(
            BucketPart(bucket=number, start=bucket.start, stop=bucket.stop)
            for number, bucket in enumerate(self.buckets)
        )

    def resolve(self, sizes: NetworkAndModelSizes, predict_exchange: PredictExchange) -> Self:
        entries = self._entries_per_bucket(sizes, predict_exchange)
        return self.model_copy(update={"buckets": tuple(cut_into_buckets(sizes, entries))})

    def _entries_per_bucket(self, sizes: NetworkAndModelSizes, predict_exchange: PredictExchange) -> float:
        if self.bucket_size != "auto":
            return float(self.bucket_size) / sizes.entry_bytes
        entry_count = sum(sizes.array_sizes)
        latency_s, whole_s = (predict_exchange(entries).exchange_s for entries in (1, entry_count))
        transfer_s_per_entry = (whole_s - latency_s) / entry_count
        return latency_s / MAX_LATENCY_SHARE / transfer_s_per_entry if transfer_s_per_entry > 0 else inf

    def predict_step_time(
        self, whole_vector: StepTimePrediction, predict_exchange: PredictExchange
    ) -> StepTimePrediction:
        """Return the predicted step time.

        Bucket j is ready at r_j = t_f + t_b·(share of the backward pass up to j), and exchanged at
        e_j = max(r_j, e_(j-1)) + T(S_j). The step ends with the last bucket; the exposed part of the exchange is that
        after the end of the compute.
        """
        if not self.buckets:  # of a strategy that has not been resolved for a model
            return whole_vector
        exchanges = {bucket.vector_range.size: predict_exchange(bucket.vector_range.size) for bucket in self.buckets}
        exchange_s = {entries: exchange.exchange_s for entries, exchange in exchanges.items()}
        timeline = split_compute_time(whole_vector.compute_s, self.buckets)
        end_s = max(list_exchange_ends_s(timeline, self.exchange_order, exchange_s))
        return whole_vector.model_copy(
            update={
                "exchange_s": end_s - whole_vector.compute_s,
                "formula": f"t_c + exposed part of ΣT(S_j) over {len(self.buckets)} buckets, with T = "
                + whole_vector.formula.removeprefix("t_c + "),
                "inapplicable_reason": next(
                    (exchange.inapplicable_reason for exchange in exchanges.values() if exchange.inapplicable_reason),
                    "",
                ),
            }
        )
