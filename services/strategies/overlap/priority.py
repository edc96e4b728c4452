"""Overlap by priority: layers that the next forward pass uses first are exchanged first, and that pass begins early.

A. Jayarajan et al., "Priority-based Parameter Propagation for Distributed DNN Training" (P3), MLSys 2019; Y. Peng et
al., "A Generic Communication Scheduler for Distributed DNN Training Acceleration" (ByteScheduler), SOSP 2019. There,
each worker chooses the next part when a transfer ends. Here, all workers follow one order, which is computed from the
declared cluster before the trial: the ranks of a collective must exchange the same parts at the same time.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, Self

from pydantic import Field

from services.collectives import NetworkAndModelSizes
from services.schema.component import SET_BY_ENSAYO
from services.schema.units import Bytes
from services.strategies.cost_model import StepTimePrediction
from services.strategies.overlap.base import BucketPart, GradientBucket, Overlap, PredictExchange
from services.strategies.overlap.timeline import (
    cut_into_buckets,
    end_of_next_forward_s,
    list_exchange_ends_s,
    order_by_priority,
    split_compute_time,
)


class PriorityOverlap(Overlap):
    """Exchange of the gradient in parts, those of the first layers first; no barrier before the next forward pass.

    Arrays above `partition_size` are cut into parts of this size, smaller neighbouring arrays form one part. A part is
    sent when the part before it has been exchanged (a credit of one part), so the parts of a layer near the input
    overtake those of later layers that wait. A layer begins its next forward pass when its own parameters are there and
    the layer before it has ended.
    """

    kind: Literal["priority"] = "priority"
    partition_size: Bytes = Field(Bytes("4MB"), description="largest part that is exchanged at once, on the wire")
    buckets: tuple[GradientBucket, ...] = Field(
        (), description="ranges of the model; set by Ensayo, do not write it", json_schema_extra=SET_BY_ENSAYO
    )
    order: tuple[BucketPart, ...] = Field(
        (), description="order of the parts; set by Ensayo, do not write it", json_schema_extra=SET_BY_ENSAYO
    )

    @property
    def gradient_buckets(self) -> tuple[GradientBucket, ...]:
        return self.buckets

    @property
    def exchange_order(self) -> tuple[BucketPart, ...]:
        return self.order

    @property
    def begins_next_step_early(self) -> bool:
        return True

    def resolve(self, sizes: NetworkAndModelSizes, predict_exchange: PredictExchange) -> Self:
        """Return this overlap with the parts of a model, in the order of their exchange.

        Without declared compute times, the order is that of the backward pass.
        """
        part_entries = max(1, int(self.partition_size / sizes.entry_bytes))
        buckets = tuple(cut_into_buckets(sizes, part_entries))
        parts = [list(_cut_into_parts(number, bucket, part_entries)) for number, bucket in enumerate(buckets)]
        compute_s = predict_exchange(sum(sizes.array_sizes)).compute_s
        if not compute_s:
            order = [part for parts_of_bucket in parts for part in parts_of_bucket]
        else:
            exchange_s = _exchange_s_by_entries((part for each in parts for part in each), predict_exchange)
            order = list(order_by_priority(split_compute_time(compute_s, buckets), parts, exchange_s))
        return self.model_copy(update={"buckets": buckets, "order": tuple(order)})

    def predict_step_time(
        self, whole_vector: StepTimePrediction, predict_exchange: PredictExchange
    ) -> StepTimePrediction:
        """Return the predicted step time: from one end of the forward pass to the next.

        After the backward pass, the parts are exchanged in their order. The next forward pass ends at
        f_l = max(f_(l-1), e_l) + t_f·(share of layer l), where e_l is the time at which the parameters of layer l are
        there. The step after an evaluation takes longer, since its forward pass begins with all parameters.
        """
        if not self.buckets:  # of a strategy that has not been resolved for a model
            return whole_vector
        exchange_s = _exchange_s_by_entries(self.order, predict_exchange)
        timeline = split_compute_time(whole_vector.compute_s, self.buckets)
        ends_s = list_exchange_ends_s(timeline, self.order, exchange_s)
        next_forward_end_s = end_of_next_forward_s(self.buckets, ends_s, timeline.forward_s)
        step_s = next_forward_end_s - timeline.forward_s
        return whole_vector.model_copy(
            update={
                "exchange_s": step_s - whole_vector.compute_s,
                "epoch_start_delay_s": max(ends_s) + timeline.forward_s - next_forward_end_s,
                "formula": f"t_c + exposed part of ΣT(S_j) over {len(self.order)} parts by priority, with T = "
                + whole_vector.formula.removeprefix("t_c + "),
            }
        )


def _cut_into_parts(number: int, bucket: GradientBucket, part_entries: int) -> Iterator[BucketPart]:
    """Yield the parts of a bucket; all but the last one have `part_entries` entries."""
    for start in range(bucket.start, bucket.stop, part_entries):
        yield BucketPart(bucket=number, start=start, stop=min(start + part_entries, bucket.stop))


def _exchange_s_by_entries(parts: Iterable[BucketPart], predict_exchange: PredictExchange) -> Mapping[int, float]:
    """Return the seconds of the exchange of each part, by its number of entries."""
    return {entries: predict_exchange(entries).exchange_s for entries in {part.vector_range.size for part in parts}}
