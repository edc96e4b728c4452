"""Exporter of execution traces in MLCommons' Chakra schema, one file per node.

The traces are input for simulators such as ASTRA-sim.

The trace of a worker is a chain of operations for each step: compute, messages, update. An all-reduce is one collective
operation, and the simulator chooses the algorithm. A message to or from a parameter server is a pair of a send and a
receive. The traces contain no network times, because the simulator computes network times.

NPU is Chakra's term for a processing unit. In these traces an NPU is a worker or a server.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, ClassVar, Literal, TypeAlias

import pandas as pd

from analysis.exports.activities import sort_steps_by_rank, split_steps_into_activities
from analysis.exports.base import Exporter
from analysis.reading.plan_view import TrialPlan
from analysis.reading.run_table import RunLogTables, TrialLogTables

if TYPE_CHECKING:
    from chakra.schema.protobuf.et_def_pb2 import Node

SCHEMA_VERSION = "1.0.0"
NS_PER_US = 1000
BYTES_PER_PARAMETER_BY_PRECISION = {"fp64": 8, "fp32": 4}
ALL_REDUCE_TYPE = 0  # CollectiveCommType
SERVER_STRATEGIES, COLLECTIVE_STRATEGIES = ("parameter_server", "easgd"), ("all_reduce",)
SpanUs: TypeAlias = tuple[int, int]  # begin and duration, microseconds


class ChakraExporter(Exporter):
    """Exporter of one folder of Chakra traces per trial.

    A folder has one file `trace.<number>.et` per node: workers by rank, then dedicated servers.
    """

    kind: Literal["chakra"] = "chakra"
    tool_name: ClassVar[str] = "Chakra's tools"
    file_suffix: ClassVar[str] = ".et"
    pip_requirement: ClassVar[str] = "mlc-chakra>=1.0"

    def write(self, run_tables: RunLogTables, out_folder: Path) -> Iterator[str]:
        for trial in run_tables.trials:
            plan = trial.plan
            reason = "no steps were logged" if trial.steps.empty else find_export_obstacle(plan)
            if reason:
                yield f"{plan.trial}: {reason}; the trial is left out"
                continue
            if plan.strategy["kind"] in SERVER_STRATEGIES and plan.synchronisation_policy_kind not in ("bsp", "asp"):
                yield (
                    f"{plan.trial}: the waiting rule of {plan.synchronisation_policy_kind} is left out; "
                    "in the trace, the replies of servers wait for no other worker"
                )
            if (plan.strategy.get("overlap") or {"kind": "none"})["kind"] != "none":
                yield (
                    f"{plan.trial}: the overlap of the exchange with the compute is left out; "
                    "in the trace, one all-reduce follows the compute of a step"
                )
            folder = out_folder / plan.trial
            folder.mkdir()
            for npu, trace in enumerate(build_chakra_traces(trial)):
                with (folder / f"trace.{npu}{self.file_suffix}").open("wb") as file:
                    trace.save(file)


def find_export_obstacle(trial_plan: TrialPlan) -> str | None:
    """Return why a trial's messages cannot be exported to Chakra traces.

    Return None if they can be exported.
    """
    if trial_plan.strategy.get("kind") not in (*SERVER_STRATEGIES, *COLLECTIVE_STRATEGIES, "none"):
        return f"the messages of strategy {trial_plan.strategy.get('kind')} are not supported by this export"
    if trial_plan.strategy["kind"] in SERVER_STRATEGIES and len(trial_plan.shards) != len(trial_plan.shard_owners):
        return "its plan does not record the owner of every shard"
    if trial_plan.precision not in BYTES_PER_PARAMETER_BY_PRECISION:
        return f"the size of messages in precision {trial_plan.precision} is not known"
    for key in ("compress", "compress_replies"):
        if (compressor := trial_plan.strategy.get(key, {}).get("kind", "identity")) != "identity":
            return f"the size of messages compressed by {compressor} is not known"
    return None


@dataclass
class ChakraTrace:
    """Execution trace of one worker or server (NPU).

    The trace is a list of Chakra nodes (operations) with ids from 0.
    """

    npu: int
    nodes: list["Node"] = field(default_factory=list)

    def add_operation(
        self,
        op_type: str,
        operation_name: str,
        dependency_ids: Iterable[int],
        operation_attributes: Mapping[str, int | bool],
        start_and_duration_us: SpanUs | None = None,
    ) -> int:
        """Add an operation to the trace, and return the id of the operation.

        The operation runs after the operations with the ids `dependency_ids`.
        """
        from chakra.schema.protobuf import et_def_pb2 as schema  # noqa: PLC0415 - an extra

        node = schema.Node(id=len(self.nodes), name=f"{op_type}_{operation_name}", type=schema.NodeType.Value(op_type))
        node.data_deps.extend(sorted(set(dependency_ids)))
        if start_and_duration_us:
            node.start_time_micros, node.duration_micros = start_and_duration_us
        for key, value in {"is_cpu_op": False, **operation_attributes}.items():
            attribute_value = {"bool_val": value} if isinstance(value, bool) else {"int64_val": value}
            node.attr.append(schema.AttributeProto(name=key, **attribute_value))
        self.nodes.append(node)
        return int(node.id)

    def add_message_op(
        self, op_type: str, step: int, npu_pair: tuple[int, int], size_bytes: int, dependency_ids: Iterable[int]
    ) -> int:
        """Add the send or the receive of a message to the trace, and return the operation's id.

        The message goes from one node (NPU) to another.

        `npu_pair` is the sending and the receiving NPU. A send and the matching receive have the step number as tag.
        """
        source, target = npu_pair
        attributes = {"comm_src": source, "comm_dst": target, "comm_tag": step, "comm_size": size_bytes}
        return self.add_operation(op_type, f"step{step}_{source}_to_{target}", dependency_ids, attributes)

    def save(self, file: IO[bytes]) -> None:
        """Write the trace to a file.

        The file contains first the metadata, then all operations, each preceded by its length.
        """
        from chakra.schema.protobuf.et_def_pb2 import GlobalMetadata  # noqa: PLC0415 - an extra
        from chakra.src.third_party.utils.protolib import encodeMessage  # noqa: PLC0415 - an extra

        encodeMessage(file, GlobalMetadata(version=SCHEMA_VERSION))
        for node in self.nodes:
            encodeMessage(file, node)


@dataclass(frozen=True)
class StepMessageExchange:
    """Messages that the nodes of a trial exchange per step.

    The fields describe participants, synchrony and message sizes.
    """

    worker_count: int
    is_collective: bool
    is_synchronous: bool
    vector_bytes: int  # of the parameter vector on the wire
    shard_owners_and_bytes: tuple[tuple[int, int], ...]  # per shard: NPU of its owner, bytes on the wire


def build_chakra_traces(trial: TrialLogTables) -> list[ChakraTrace]:
    """Return the Chakra execution traces of a trial, one per worker and server (NPU)."""
    plan, pattern = trial.plan, _derive_step_messages(trial.plan)
    npu_count = 1 + max([plan.workers - 1, *(owner for owner, _ in pattern.shard_owners_and_bytes)])
    traces = [ChakraTrace(npu) for npu in range(npu_count)]
    spans = _activity_spans_us(trial.steps)
    ranks_by_step: dict[int, list[int]] = {}
    for trace in traces[: plan.workers]:
        steps = sort_steps_by_rank(trial.steps[trial.steps["rank"] == trace.npu])
        _add_worker_steps(trace, steps, spans, pattern, ranks_by_step)
    for owner, shard_bytes in pattern.shard_owners_and_bytes:
        _add_server_shard_messages(traces[owner], shard_bytes, ranks_by_step, is_synchronous=pattern.is_synchronous)
    return traces


def _derive_step_messages(trial_plan: TrialPlan) -> StepMessageExchange:
    """Return which messages the nodes exchange per step.

    Nodes are numbered: workers by rank, then servers.
    """
    names = [node.name for node in trial_plan.nodes if node.role == "worker"]
    names += [node.name for node in trial_plan.nodes if node.role not in ("worker", "coordinator")]
    kind, scale = trial_plan.strategy["kind"], trial_plan.payload.scale if trial_plan.payload else 1
    parameter_bytes = BYTES_PER_PARAMETER_BY_PRECISION[trial_plan.precision] * scale
    owners_and_ranges = (
        zip(trial_plan.shard_owners, trial_plan.shards, strict=True) if kind in SERVER_STRATEGIES else ()
    )
    shards = tuple(
        (names.index(owner), round(parameter_bytes * (end - begin))) for owner, (begin, end) in owners_and_ranges
    )
    return StepMessageExchange(
        trial_plan.workers,
        is_collective=kind in COLLECTIVE_STRATEGIES,
        is_synchronous=trial_plan.synchronisation_policy_kind == "bsp" and kind != "easgd",
        vector_bytes=round(parameter_bytes * trial_plan.parameters),
        shard_owners_and_bytes=shards,
    )


def _activity_spans_us(step_rows: pd.DataFrame) -> dict[tuple[int, int, str], SpanUs]:
    """Return begin and duration of each activity of a step, in microseconds.

    The keys are (rank, step, activity).
    """
    rows = split_steps_into_activities(step_rows)
    keys = zip(rows["rank"].astype(int), rows["step"].astype(int), rows["activity"], strict=True)
    begins, ends = rows["begin_ns"] // NS_PER_US, rows["end_ns"] // NS_PER_US
    return {key: (begin, end - begin) for key, begin, end in zip(keys, begins, ends, strict=True)}


def _add_worker_steps(
    trace: ChakraTrace,
    step_rows: pd.DataFrame,
    activity_spans: dict[tuple[int, int, str], SpanUs],
    exchange_pattern: StepMessageExchange,
    sender_ranks_by_step: dict[int, list[int]],
) -> None:
    """Add the steps of a worker to its trace.

    The worker is recorded as a sender in each step in which it sent messages.

    `sender_ranks_by_step` maps a step to the ranks of the workers that sent messages in the step.
    """
    dependencies: list[int] = []
    for step, sent_bytes in zip(step_rows["step"].astype(int), step_rows["bytes_sent"].fillna(0), strict=True):
        for activity in ("data", "compute"):
            if span := activity_spans.get((trace.npu, step, activity)):
                attributes = {"is_cpu_op": activity == "data"}
                node_id = trace.add_operation("COMP_NODE", f"{activity}_step{step}", dependencies, attributes, span)
                dependencies = [node_id]
        if sent_bytes > 0:
            sender_ranks_by_step.setdefault(step, []).append(trace.npu)
            span = activity_spans.get((trace.npu, step, "exchange"))
            dependencies = _add_worker_messages(trace, step, exchange_pattern, dependencies, span)
        if span := activity_spans.get((trace.npu, step, "update")):
            dependencies = [trace.add_operation("COMP_NODE", f"update_step{step}", dependencies, {}, span)]


def _add_worker_messages(
    trace: ChakraTrace,
    step: int,
    exchange_pattern: StepMessageExchange,
    dependency_ids: list[int],
    comm_span_us: SpanUs | None,
) -> list[int]:
    """Add the messages that a worker exchanges in one step to its trace.

    Return the ids of the operations that the worker then waits for.
    """
    if exchange_pattern.is_collective:
        attributes = {"comm_type": ALL_REDUCE_TYPE, "comm_size": exchange_pattern.vector_bytes}
        return [
            trace.add_operation("COMM_COLL_NODE", f"all_reduce_step{step}", dependency_ids, attributes, comm_span_us)
        ]
    replies = []
    for owner, shard_bytes in exchange_pattern.shard_owners_and_bytes:
        if owner != trace.npu:
            sent = trace.add_message_op("COMM_SEND_NODE", step, (trace.npu, owner), shard_bytes, dependency_ids)
            replies.append(trace.add_message_op("COMM_RECV_NODE", step, (owner, trace.npu), shard_bytes, [sent]))
    return replies or dependency_ids


def _add_server_shard_messages(
    trace: ChakraTrace, shard_bytes: int, worker_ranks_by_step: dict[int, list[int]], *, is_synchronous: bool
) -> None:
    """Add a server shard's messages to a Chakra trace.

    A synchronous shard replies after it has all gradients.
    """
    last_receive: dict[int, int] = {}  # rank -> node id
    for step, ranks in sorted(worker_ranks_by_step.items()):
        remote_ranks = [rank for rank in sorted(ranks) if rank != trace.npu]
        for rank in remote_ranks:
            previous = [last_receive[rank]] if rank in last_receive else []
            endpoints = (rank, trace.npu)
            last_receive[rank] = trace.add_message_op("COMM_RECV_NODE", step, endpoints, shard_bytes, previous)
        for rank in remote_ranks:
            received = [last_receive[sender] for sender in remote_ranks] if is_synchronous else [last_receive[rank]]
            trace.add_message_op("COMM_SEND_NODE", step, (trace.npu, rank), shard_bytes, received)
