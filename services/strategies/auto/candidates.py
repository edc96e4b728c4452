"""Candidates of an automatic choice: strategies that a user lists, or a default list."""

from collections.abc import Iterator
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from services.collectives.all_gather import AnyAllGather
from services.collectives.all_gather.direct import DirectAllGather
from services.collectives.all_gather.ring import RingAllGather
from services.collectives.auto import SINGLE_LEVEL_CANDIDATES, TWO_LEVEL_CANDIDATES, AutoCollective
from services.compressors import AnyCompressor, ErrorFeedback, Fp16, IdentityCompressor, Int8, OneBit, TopK
from services.schema.component import ScenarioComponent
from services.strategies.all_reduce import AllReduce
from services.strategies.auto.quality import QualityGuard
from services.strategies.local_training import DiLoCo, LocalSgd
from services.strategies.overlap import AnyOverlap, BucketOverlap, NoOverlap
from services.strategies.server_based import ParameterServer
from services.strategies.single_phase import AnySinglePhaseStrategy
from services.strategies.vector_sums import PowerSgd

AnyCandidate: TypeAlias = Annotated[AnySinglePhaseStrategy, Field(discriminator="kind")]

COLLECTIVES = (*SINGLE_LEVEL_CANDIDATES, *TWO_LEVEL_CANDIDATES)
OVERLAPS: tuple[AnyOverlap, ...] = (NoOverlap(), BucketOverlap(bucket_size="auto"))
ALL_GATHER_ALGORITHMS: tuple[AnyAllGather, ...] = (RingAllGather(), DirectAllGather())
GATHERED_COMPRESSORS: tuple[AnyCompressor, ...] = (
    Int8(),
    ErrorFeedback(inner=OneBit()),
    ErrorFeedback(inner=TopK(ratio=0.01)),
)
PERIODS = (2, 4, 8, 16, 32, 64, 128)
STREAMED_FRAGMENTS = 4
STREAMED_OVERLAP_STEPS = 1
STREAMED_MERGE_WEIGHT = 0.5


def list_default_candidates(
    guard: QualityGuard, server_count: int, max_period: int
) -> Iterator[AllReduce | ParameterServer | LocalSgd | DiLoCo]:
    """Yield the default candidates that a quality guard permits, those of the best quality first.

    `dgc` is not among them: it adds momentum, which the workload may not declare, or equals `top_k` with feedback.

    Args:
        guard: quality guard.
        server_count: servers that a candidate may use; 0: none.
        max_period: longest period of local steps.
    """
    yield from _list_gradient_sums(IdentityCompressor(), server_count)
    if guard == "exact":
        return
    yield from _list_gradient_sums(Fp16(), server_count)
    if guard == "rounded":
        return
    for compressor in GATHERED_COMPRESSORS:
        yield from (AllReduce(compress=compressor, gather=gather) for gather in ALL_GATHER_ALGORITHMS)
    yield AllReduce(compress=PowerSgd(), collective=AutoCollective())
    yield from _list_local_training(max_period)


def _list_gradient_sums(
    compressor: IdentityCompressor | Fp16, server_count: int
) -> Iterator[AllReduce | ParameterServer]:
    """Yield the strategies that sum gradients in every step with one compressor."""
    for overlap in OVERLAPS:
        yield from (
            AllReduce.model_validate({"collective": collective, "compress": compressor, "overlap": overlap})
            for collective in COLLECTIVES
        )
    if server_count:
        yield ParameterServer(servers=server_count, compress=compressor)


def _list_local_training(max_period: int) -> Iterator[LocalSgd | DiLoCo]:
    """Yield the strategies whose workers train alone for several steps, up to the longest period."""
    periods = [period for period in PERIODS if period <= max_period]
    yield from (LocalSgd(period=period, collective=AutoCollective()) for period in periods)
    for period in periods[-1:]:
        if period % STREAMED_FRAGMENTS == 0:
            yield DiLoCo(
                period=period,
                fragments=STREAMED_FRAGMENTS,
                overlap_steps=STREAMED_OVERLAP_STEPS,
                merge_weight=STREAMED_MERGE_WEIGHT,
                collective=AutoCollective(),
            )


def describe_candidate(component: ScenarioComponent) -> str:
    """Return the kind of a strategy or another component, and its keys that differ from the defaults.

    For example: `all_reduce (collective halving_doubling, compress fp16)`.
    """
    keys = [
        f"{name} {_describe_value(getattr(component, name))}"
        for name, field in type(component).model_fields.items()
        if name != "kind"
        and getattr(component, name) != field.get_default(call_default_factory=True, validated_data={})
    ]
    return f"{component.kind} ({', '.join(keys)})" if keys else component.kind


def _describe_value(value: Any) -> str:
    return describe_candidate(value) if isinstance(value, ScenarioComponent) else str(value)
