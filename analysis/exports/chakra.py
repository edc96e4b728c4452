"""Execution traces in MLCommons' Chakra schema, which simulators such as ASTRA-sim replay: a file per node.

What a worker did in a step is a chain: compute, its messages, update, then the next step. An all-reduce is one
collective, of which the simulator picks the algorithm; what goes to and from a parameter server are pairs of a send
and a receive, so that the time of the network is the simulator's to find.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, ClassVar, Literal, TypeAlias

import pandas as pd

from analysis.exports.activities import activities, by_step
from analysis.exports.base import Exporter
from analysis.reading.plan_view import PlanView
from analysis.reading.run_table import RunTable, TrialTable

if TYPE_CHECKING:
    from chakra.schema.protobuf.et_def_pb2 import Node

SCHEMA = "1.0.0"
US_NS = 1000
ENTRY_BYTES = {"fp64": 8, "fp32": 4, "fp16": 2}  # of one parameter on the wire
ALL_REDUCE = 0  # CollectiveCommType
SERVED, COLLECTIVE = ("parameter_server", "easgd"), ("all_reduce",)
Span: TypeAlias = tuple[int, int]  # begin and duration, microseconds


class Chakra(Exporter):
    """A folder per trial: `trace.<npu>.et`, workers by rank, then the nodes that only serve."""

    kind: Literal["chakra"] = "chakra"
    reader: ClassVar[str] = "Chakra's tools"
    suffix: ClassVar[str] = ".et"
    package: ClassVar[str] = "chakra"

    def write(self, run: RunTable, out: Path) -> Iterator[str]:
        for trial in run.trials:
            if reason := "no steps were logged" if trial.steps.empty else refusal(trial.plan):
                yield f"{trial.plan.trial}: {reason}; the trial is left out"
                continue
            if trial.plan.strategy["kind"] in SERVED and trial.plan.synchrony_kind not in ("bsp", "asp"):
                yield f"{trial.plan.trial}: who waits for whom under {trial.plan.synchrony_kind}; answers don't wait"
            folder = out / trial.plan.trial
            folder.mkdir()
            for npu, trace in enumerate(traces(trial)):
                with (folder / f"trace.{npu}{self.suffix}").open("wb") as file:
                    trace.save(file)


def refusal(plan: PlanView) -> str | None:
    """Why the messages of a trial can't be told."""
    if plan.strategy.get("kind") not in (*SERVED, *COLLECTIVE, "none"):
        return f"the messages of strategy {plan.strategy.get('kind')} are not known to this export"
    if plan.strategy["kind"] in SERVED and len(plan.shards) != len(plan.shard_owners):
        return "its plan does not say who holds which shard"
    return None if plan.precision in ENTRY_BYTES else f"the size of messages in {plan.precision} is not known"


@dataclass
class Trace:
    """The nodes of one NPU; a node's id is its place."""

    npu: int
    nodes: list["Node"] = field(default_factory=list)

    def add(
        self, kind: str, name: str, after: Iterable[int], told: Mapping[str, int | bool], span: Span | None = None
    ) -> int:
        """One more node, to run when those in `after` are done; its id."""
        from chakra.schema.protobuf import et_def_pb2 as schema  # noqa: PLC0415 - an extra

        node = schema.Node(id=len(self.nodes), name=f"{kind}_{name}", type=schema.NodeType.Value(kind))
        node.data_deps.extend(sorted(set(after)))
        if span:
            node.start_time_micros, node.duration_micros = span
        for key, value in {"is_cpu_op": False, **told}.items():
            field_of = {"bool_val": value} if isinstance(value, bool) else {"int64_val": value}
            node.attr.append(schema.AttributeProto(name=key, **field_of))
        self.nodes.append(node)
        return int(node.id)

    def message(self, kind: str, step: int, ends: tuple[int, int], size: int, after: Iterable[int]) -> int:
        """A send or a receive from one NPU to another; both have the step as their tag."""
        source, target = ends
        attributes = {"comm_src": source, "comm_dst": target, "comm_tag": step, "comm_size": size}
        return self.add(kind, f"step{step}_{source}_to_{target}", after, attributes)

    def save(self, file: IO[bytes]) -> None:
        """Length-framed messages: what holds for all of them, then one after the other."""
        from chakra.schema.protobuf.et_def_pb2 import GlobalMetadata  # noqa: PLC0415 - an extra
        from chakra.src.third_party.utils.protolib import encodeMessage  # noqa: PLC0415 - an extra

        encodeMessage(file, GlobalMetadata(version=SCHEMA))
        for node in self.nodes:
            encodeMessage(file, node)


@dataclass(frozen=True)
class Exchange:
    """Who exchanges with whom in a trial, and how much."""

    workers: int
    collective: bool
    lockstep: bool
    whole: int  # bytes of the vector on the wire
    shards: tuple[tuple[int, int], ...]  # NPU that holds it, bytes


def traces(trial: TrialTable) -> list[Trace]:
    """One per NPU."""
    plan, exchange = trial.plan, _exchange(trial.plan)
    npus = 1 + max([plan.workers - 1, *(holder for holder, _ in exchange.shards)])
    found = [Trace(npu) for npu in range(npus)]
    spans = _spans(trial.steps)
    exchanged: dict[int, list[int]] = {}  # step -> ranks
    for trace in found[: plan.workers]:
        _work(trace, by_step(trial.steps[trial.steps["rank"] == trace.npu]), spans, exchange, exchanged)
    for holder, size in exchange.shards:
        _serve(found[holder], size, exchanged, lockstep=exchange.lockstep)
    return found


def _exchange(plan: PlanView) -> Exchange:
    """Workers are numbered by rank, other nodes after them as the plan does."""
    names = [node.name for node in plan.nodes if node.role == "worker"]
    names += [node.name for node in plan.nodes if node.role not in ("worker", "coordinator")]
    each, kind = ENTRY_BYTES[plan.precision], plan.strategy["kind"]
    pairs = zip(plan.shard_owners, plan.shards, strict=True) if kind in SERVED else ()
    shards = tuple((names.index(holder), each * (end - begin)) for holder, (begin, end) in pairs)
    lockstep = plan.synchrony_kind == "bsp" and kind != "easgd"
    return Exchange(plan.workers, kind in COLLECTIVE, lockstep, each * plan.parameters, shards)


def _spans(steps: pd.DataFrame) -> dict[tuple[int, int, str], Span]:
    """When each activity of a rank's step began and how long it took, in whole microseconds."""
    rows = activities(steps)
    keys = zip(rows["rank"].astype(int), rows["step"].astype(int), rows["activity"], strict=True)
    begins, ends = rows["begin_ns"] // US_NS, rows["end_ns"] // US_NS
    return {key: (begin, end - begin) for key, begin, end in zip(keys, begins, ends, strict=True)}


def _work(
    trace: Trace,
    steps: pd.DataFrame,
    spans: dict[tuple[int, int, str], Span],
    exchange: Exchange,
    exchanged: dict[int, list[int]],
) -> None:
    """A worker's steps, one after the other."""
    last: list[int] = []
    for step, sent in zip(steps["step"].astype(int), steps["bytes_sent"].fillna(0), strict=True):
        for activity in ("data", "compute"):
            if span := spans.get((trace.npu, step, activity)):
                on = {"is_cpu_op": activity == "data"}
                last = [trace.add("COMP_NODE", f"{activity}_step{step}", last, on, span)]
        if sent > 0:
            exchanged.setdefault(step, []).append(trace.npu)
            last = _talk(trace, step, exchange, last, spans.get((trace.npu, step, "exchange")))
        if span := spans.get((trace.npu, step, "update")):
            last = [trace.add("COMP_NODE", f"update_step{step}", last, {}, span)]


def _talk(trace: Trace, step: int, exchange: Exchange, after: list[int], span: Span | None) -> list[int]:
    """The messages of a step; what comes next waits for all of the returned nodes."""
    if exchange.collective:
        what = {"comm_type": ALL_REDUCE, "comm_size": exchange.whole}
        return [trace.add("COMM_COLL_NODE", f"all_reduce_step{step}", after, what, span)]
    answers = []
    for holder, size in exchange.shards:
        if holder != trace.npu:
            sent = trace.message("COMM_SEND_NODE", step, (trace.npu, holder), size, after)
            answers.append(trace.message("COMM_RECV_NODE", step, (holder, trace.npu), size, [sent]))
    return answers or after


def _serve(trace: Trace, size: int, exchanged: dict[int, list[int]], *, lockstep: bool) -> None:
    """One shard's side of all messages; in lockstep it answers when every worker's gradient is there."""
    before: dict[int, int] = {}
    for step, ranks in sorted(exchanged.items()):
        others = [rank for rank in sorted(ranks) if rank != trace.npu]
        for rank in others:
            after = [before[rank]] if rank in before else []
            before[rank] = trace.message("COMM_RECV_NODE", step, (rank, trace.npu), size, after)
        for rank in others:
            needed = [before[other] for other in others] if lockstep else [before[rank]]
            trace.message("COMM_SEND_NODE", step, (trace.npu, rank), size, needed)
