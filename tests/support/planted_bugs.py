"""Bugs that tests plant into the product, to show that the fault search finds them."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from ensayo.fault_search import simulation
from ensayo.fault_search.fault_schedule import SAMPLES_PER_WORKER
from services.checkpoints.node_checkpoints import NodeCheckpoints
from services.checkpoints.state_tree import State
from services.compressors import CompressorState, ErrorFeedback
from services.compressors.base import CompressedPayload
from services.coordinator.checkpoint_announcements import CheckpointAnnouncements
from services.learning.data_order import DataOrder, RankWeights
from services.learning.epoch_orders import SampleIndices
from services.learning.optimisers import OptimiserState
from services.parameter_server.update_rules import WorkerContribution
from services.ps_shard.runtime import ServerRuntime
from services.ps_shard.shard_actions import WorkerPush
from services.ps_shard.strategy_switch import StrategySwitchingServer
from services.runtime.control import StrategySwitchDecision
from services.runtime.membership import CheckpointProposal
from services.runtime.transport import Message, MessageKind, MessageTag, ReceiveOutcome
from services.schema.arrays import HostArray, Vector
from services.transport import epoch_transport
from services.transport.mailbox import Mailbox

PlantBug: TypeAlias = Callable[[pytest.MonkeyPatch], None]


def apply_duplicates(patch: pytest.MonkeyPatch) -> None:
    """A server adds the vector of a push once more if a duplicate of the push has arrived before the update."""
    initialise, register = Mailbox.__init__, Mailbox._register_tag_if_new
    contribute = ServerRuntime._make_worker_contribution
    duplicates = set[tuple[str, int]]()  # of this trial: sender and step

    def forget_earlier_trial(mailbox: Mailbox, timeout_s: float, dilation: float = 1.0) -> None:
        duplicates.clear()
        initialise(mailbox, timeout_s, dilation)

    def register_duplicates(mailbox: Mailbox, source: str, tag: MessageTag) -> bool:
        is_new = register(mailbox, source, tag)
        if not is_new and tag.kind == MessageKind.PUSH:
            duplicates.add((source, tag.step))
        return is_new

    def contribute_duplicates(server: ServerRuntime, push: WorkerPush, staleness: int) -> WorkerContribution:
        contribution = contribute(server, push, staleness)
        is_duplicate = (server.worker_names[push.worker], push.step) in duplicates
        return contribution._replace(vector=2 * contribution.vector) if is_duplicate else contribution

    patch.setattr(Mailbox, "__init__", forget_earlier_trial)
    patch.setattr(Mailbox, "_register_tag_if_new", register_duplicates)
    patch.setattr(ServerRuntime, "_make_worker_contribution", contribute_duplicates)


def number_pushes_by_arrival(patch: pytest.MonkeyPatch) -> None:
    """Servers number pushes by their arrival, so that a duplicate counts as the next push."""
    deliver, arrivals = Mailbox.deliver, Counter[tuple[Mailbox, str]]()

    def deliver_numbered(mailbox: Mailbox, source: str, message: Message) -> None:
        if message.tag.kind == MessageKind.PUSH:
            message = message._replace(tag=message.tag._replace(step=arrivals[mailbox, source]))
            arrivals[mailbox, source] += 1
        deliver(mailbox, source, message)

    patch.setattr(Mailbox, "deliver", deliver_numbered)


def lose_residuals(patch: pytest.MonkeyPatch) -> None:
    """Error feedback forgets the error of each vector."""
    compress = ErrorFeedback.compress

    def compress_without_residual(
        compressor: ErrorFeedback, vector: Vector, state: Any
    ) -> tuple[CompressedPayload, CompressorState]:
        payload, new_state = compress(compressor, vector, state)
        return payload, new_state._replace(residual=None)

    patch.setattr(ErrorFeedback, "compress", compress_without_residual)


def keep_stale_shards(patch: pytest.MonkeyPatch) -> None:
    """A server starts its second phase with the parameters that it had before a strategy switch."""
    start = StrategySwitchingServer._start_new_server

    def start_stale(
        server: StrategySwitchingServer, decision: StrategySwitchDecision, params: HostArray, state: OptimiserState
    ) -> None:
        del params
        start(server, decision, server.server.update_rule.params, state)

    patch.setattr(StrategySwitchingServer, "_start_new_server", start_stale)


def overlap_shares(patch: pytest.MonkeyPatch) -> None:
    """The share of the second worker begins with the last sample of the first worker."""

    def select_overlapping(
        order: DataOrder,
        step: int,
        worker_rank: int,
        batch_weights: RankWeights,
        owned_samples: SampleIndices | None = None,
    ) -> SampleIndices:
        del owned_samples
        sizes = order.share_sizes(step, batch_weights)
        start = sum(sizes[:worker_rank]) - (worker_rank == 1)
        return order.batch_sample_indices(step)[start : start + sizes[worker_rank]]

    patch.setattr(DataOrder, "select_sample_indices", select_overlapping)


def accept_old_messages(patch: pytest.MonkeyPatch) -> None:
    """A node takes a late duplicate of an older step for the message of the current step."""
    take = Mailbox._take_message_or_error

    def take_of_any_step(mailbox: Mailbox, source: str, tags: tuple[MessageTag, ...]) -> ReceiveOutcome | None:
        for tag in tags:
            for known_source, known in list(mailbox._unclaimed):
                if known_source == source and known[1:] == tag[1:] and known.step < tag.step:
                    return mailbox._unclaimed.pop((source, known))._replace(tag=tag)
        return take(mailbox, source, tags)

    patch.setattr(Mailbox, "_register_tag_if_new", lambda *_: True)
    patch.setattr(Mailbox, "_take_message_or_error", take_of_any_step)


def share_batches_as_before_a_loss(patch: pytest.MonkeyPatch) -> None:
    """After an eviction, the first worker computes the whole batch, in addition to the shares of the others."""
    select = DataOrder.select_sample_indices

    def select_too_much(
        order: DataOrder,
        step: int,
        worker_rank: int,
        batch_weights: RankWeights,
        owned_samples: SampleIndices | None = None,
    ) -> SampleIndices:
        indices = select(order, step, worker_rank, batch_weights, owned_samples)
        is_after_eviction = order.batch // SAMPLES_PER_WORKER > len(batch_weights)
        return order.batch_sample_indices(step) if is_after_eviction and worker_rank == 0 else indices

    patch.setattr(DataOrder, "select_sample_indices", select_too_much)


def continue_from_older_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """One worker continues from its oldest checkpoint, whatever step all nodes have agreed on."""
    read = NodeCheckpoints.read

    def read_oldest(checkpoints: NodeCheckpoints, step: int) -> State:
        kept_steps = [kept_step for kept_step in checkpoints.list_steps() if kept_step]
        return read(checkpoints, min(kept_steps) if checkpoints.node_name == "worker-1" else step)

    patch.setattr(NodeCheckpoints, "read", read_oldest)


def accept_old_epochs(patch: pytest.MonkeyPatch) -> None:
    """Messages do not carry the membership epoch, so that those of a step that was broken off count in the next one."""
    patch.setattr(epoch_transport, "first_step_on_wire", lambda _epoch: 0)


def announce_checkpoints_too_late(patch: pytest.MonkeyPatch) -> None:
    """The announced step of a checkpoint is the current one, which other nodes may have passed already."""
    announce = CheckpointAnnouncements.propose

    async def announce_too_late(announcements: CheckpointAnnouncements, proposal: CheckpointProposal) -> None:
        await announce(announcements, replace(proposal, step=proposal.step - 1))

    patch.setattr(CheckpointAnnouncements, "propose", announce_too_late)


PLANTED_BUGS: list[PlantBug] = [
    announce_checkpoints_too_late,
    share_batches_as_before_a_loss,
    accept_old_epochs,
    continue_from_older_checkpoint,
    apply_duplicates,
    number_pushes_by_arrival,
    lose_residuals,
    keep_stale_shards,
    overlap_shares,
    accept_old_messages,
]


@contextmanager
def planted(plant_bug: PlantBug) -> Iterator[None]:
    """Plant a bug for the duration of the `with` block, in which no earlier simulation is remembered."""
    simulation._simulate_by_json.cache_clear()
    try:
        with pytest.MonkeyPatch.context() as patch:
            plant_bug(patch)
            yield
    finally:
        simulation._simulate_by_json.cache_clear()
