"""Times of a step whose exchange overlaps with the compute: when buckets are ready, exchanged and used again."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from services.collectives import NetworkAndModelSizes
from services.runtime.pacing import FORWARD_SHARE
from services.strategies.overlap.base import BucketPart, GradientBucket


class ComputeTimeline(NamedTuple):
    """Compute of one step: durations of the forward and the backward pass, and the buckets of the gradient."""

    forward_s: float
    backward_s: float
    buckets: Sequence[GradientBucket]

    @property
    def ready_s(self) -> tuple[float, ...]:
        """Time from the start of the forward pass until each bucket is ready, by bucket."""
        shares = accumulate(bucket.backward_share for bucket in self.buckets)
        return tuple(self.forward_s + self.backward_s * share for share in shares)


def split_compute_time(compute_s: float, buckets: Sequence[GradientBucket]) -> ComputeTimeline:
    """Return the timeline of a step that computes for `compute_s` seconds."""
    return ComputeTimeline(FORWARD_SHARE * compute_s, (1 - FORWARD_SHARE) * compute_s, buckets)


def cut_into_buckets(sizes: NetworkAndModelSizes, entries_per_bucket: float) -> Iterator[GradientBucket]:
    """Yield buckets of whole arrays, from the end of the parameter vector to its start.

    The array with which a bucket reaches `entries_per_bucket` entries is its last one.
    """
    stop = sum(sizes.array_sizes)
    start, open_share, stop_array = stop, 0.0, len(sizes.array_sizes)
    shares = _operation_shares(sizes)
    for number, entries in reversed(tuple(enumerate(sizes.array_sizes))):
        start -= entries
        open_share += shares[number]
        if stop - start >= entries_per_bucket or not start:
            yield GradientBucket(
                start=start,
                stop=stop,
                backward_share=open_share,
                forward_share=open_share,
                arrays=sizes.array_names[number:stop_array],
            )
            stop, open_share, stop_array = start, 0.0, number


def _operation_shares(sizes: NetworkAndModelSizes) -> Sequence[float]:
    """Return the share of each array in the operations of a pass.

    Where the operations of the model are not known, they are taken as proportional to the entries of the arrays.
    """
    operations = sizes.array_flops or tuple(map(float, sizes.array_sizes))
    total = sum(operations)
    return [each / total for each in operations]


def order_by_priority(
    timeline: ComputeTimeline, parts_by_bucket: Sequence[Sequence[BucketPart]], exchange_s: Mapping[int, float]
) -> Iterator[BucketPart]:
    """Yield the parts of all buckets in an order that prefers the layers that the next forward pass uses first.

    One part is exchanged at a time. When it ends, the next part is that of the ready bucket nearest to the start of the
    parameter vector; if no bucket is ready, that of the bucket that is ready next.

    Args:
        timeline: compute of the step; its buckets are in the order of the backward pass.
        parts_by_bucket: parts of each bucket.
        exchange_s: seconds of the exchange of a part, by its entries.
    """
    unsent = {bucket: list(parts) for bucket, parts in enumerate(parts_by_bucket) if parts}
    now_s = 0.0
    while unsent:
        now_s = max(now_s, timeline.ready_s[min(unsent)])  # buckets are ready in the order of their numbers
        bucket = max(bucket for bucket in unsent if timeline.ready_s[bucket] <= now_s)
        part = unsent[bucket].pop(0)
        if not unsent[bucket]:
            del unsent[bucket]
        yield part
        now_s += exchange_s[part.vector_range.size]


def list_exchange_ends_s(
    timeline: ComputeTimeline, order: Sequence[BucketPart], exchange_s: Mapping[int, float]
) -> list[float]:
    """Return the time at which each bucket has been exchanged completely, by bucket.

    Times begin with the forward pass. Parts are exchanged one after another, in the order `order`.
    """
    end_s, ends_s = 0.0, [0.0] * len(timeline.buckets)
    for part in order:
        end_s = max(timeline.ready_s[part.bucket], end_s) + exchange_s[part.vector_range.size]
        ends_s[part.bucket] = end_s
    return ends_s


def end_of_next_forward_s(
    buckets: Sequence[GradientBucket], exchange_ends_s: Sequence[float], forward_s: float
) -> float:
    """Return the time at which the next forward pass ends if each layer waits only for its own parameters.

    Args:
        buckets: in the order of the backward pass; the forward pass uses them in reverse order.
        exchange_ends_s: time at which the parameters of each bucket are there, by bucket.
        forward_s: duration of the forward pass.
    """
    end_s = 0.0
    for bucket, ready_s in zip(reversed(buckets), reversed(exchange_ends_s), strict=True):
        end_s = max(end_s, ready_s) + bucket.forward_share * forward_s
    return end_s
