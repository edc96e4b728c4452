"""Process group of torch.distributed that runs collectives with Ensayo's schedules and transport."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch._C._distributed_c10d import ProcessGroupGloo  # the class in distributed_c10d may be replaced
from torch.distributed import PrefixStore, ProcessGroup, ReduceOp, Store, Work

from services.commands.process_group.arguments import make_options, read_root_rank, to_tensor_list, to_tensor_lists
from services.commands.process_group.group_queues import GroupQueues, RunOnTensors
from services.commands.process_group.settings import ProcessGroupSettings, read_settings
from services.commands.process_group.tensors import are_exchangeable, find_reductions


def make_process_group(
    store: Store, rank: int, world_size: int, timeout: timedelta, settings: dict[str, Any]
) -> ProcessGroup:
    """Return a process group whose collectives run on Ensayo's transport.

    All ranks of the group call this function, as they would call the constructor of `ProcessGroupGloo`.

    Args:
        store: store of the group, with a prefix of its own.
        rank: rank of this process in the group.
        world_size: number of ranks in the group.
        timeout: time limit of a message, and of operations that gloo does.
        settings: JSON form of `ProcessGroupSettings`.

    Raises:
        UserError: the settings are wrong.
        NetworkError: a node of the group does not accept streams in time.
    """
    return EnsayoProcessGroup(store, rank, world_size, timeout, read_settings(settings))


class EnsayoProcessGroup(ProcessGroup):
    """Process group that runs collectives with Ensayo's schedules, compressors and TCP transport.

    Collectives run in the order in which they are launched, which must be the same on all ranks.

    All-reduce uses the declared collective. All-gather and reduce-scatter use a ring, broadcast a binomial tree. Sums
    of fp32 and fp64 tensors have the declared number format, and nothing else is compressed. Gloo does the rest:
    `gloo_fallback_operations` has the names of the operations that it has done, and `gloo_fallback_calls` their number.
    """

    def __init__(
        self, store: Store, rank: int, world_size: int, timeout: timedelta, settings: ProcessGroupSettings
    ) -> None:
        super().__init__(rank, world_size)
        self.gloo_fallback_operations: frozenset[str] = frozenset()
        self.gloo_fallback_calls = 0  # of these operations
        self._gloo = ProcessGroupGloo(PrefixStore("gloo/", store), rank, world_size, timeout=timeout)
        self._register_backend(torch.device("cpu"), ProcessGroup.BackendType.GLOO, self._gloo)
        self._set_default_backend(ProcessGroup.BackendType.GLOO)
        # A ring with a declared order, for example, does not describe groups of fewer ranks.
        self._sums_with_gloo = settings.collective.unsupported_rank_count_reason(world_size) is not None
        self._queues = GroupQueues(store, rank, world_size, settings, settings.message_time_limit_s(timeout))

    @property
    def options(self) -> Any:
        """Options of the inner group, into which PyTorch writes the name and the ranks of the group."""
        return self._gloo.options

    def allreduce(self, tensors: Any, opts: Any = ReduceOp.SUM, timeout: Any = None) -> Work:  # noqa: ARG002
        own = to_tensor_list(tensors)
        reductions = None if len(own) > 1 or self._sums_with_gloo else find_reductions(opts, own)
        if reductions is None:
            return self._run_with_gloo("allreduce", own, make_options("AllreduceOptions", opts))
        return self._submit("allreduce", lambda operations, step: operations.all_reduce(step, own, reductions), own)

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any = ReduceOp.SUM) -> Work:
        own = list(tensors)
        reductions = None if self._sums_with_gloo else find_reductions(opts, own)
        if reductions is None:
            return self._run_with_gloo("allreduce_coalesced", own, make_options("AllreduceCoalescedOptions", opts))
        return self._submit(
            "allreduce_coalesced", lambda operations, step: operations.all_reduce(step, own, reductions), own
        )

    def broadcast(self, tensors: Any, opts: Any = 0, timeout: Any = None) -> Work:  # noqa: ARG002
        own, root_rank = to_tensor_list(tensors), read_root_rank(opts)
        if len(own) > 1 or not are_exchangeable(*own):
            return self._run_with_gloo("broadcast", own, make_options("BroadcastOptions", opts))
        return self._submit("broadcast", lambda operations, step: operations.broadcast(step, own[0], root_rank), own)

    def barrier(self, opts: Any = None, timeout: Any = None) -> Work:  # noqa: ARG002
        return self._submit("barrier", lambda operations, step: operations.barrier(step), [])

    def allgather(self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: Any = None) -> Work:  # noqa: ARG002
        outputs, inputs = to_tensor_lists(output_tensors), to_tensor_list(input_tensors)
        if not are_exchangeable(*inputs, *(tensor for each in outputs for tensor in each)):
            return self._run_with_gloo("allgather", outputs, inputs)
        return self._submit("allgather", lambda operations, step: operations.all_gather(step, outputs, inputs), outputs)

    def allgather_coalesced(self, output_lists: Any, input_list: Any, opts: Any = None) -> Work:  # noqa: ARG002
        """Gather several tensors; `output_lists` has one list per tensor, with one tensor per rank."""
        outputs, inputs = [list(each) for each in output_lists], list(input_list)
        if not are_exchangeable(*inputs, *(tensor for each in outputs for tensor in each)):
            return self._run_with_gloo("allgather_coalesced", outputs, inputs)
        return self._submit(
            "allgather_coalesced", lambda operations, step: operations.all_gather(step, outputs, inputs), outputs
        )

    def all_gather_single(self, output: Tensor, own: Tensor, opts: Any = None, timeout: Any = None) -> Work:  # noqa: ARG002
        return self._all_gather_into("all_gather_single", [output], [own])

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> Work:  # noqa: ARG002
        return self._all_gather_into("all_gather_single_coalesced", list(outputs), list(inputs))

    def _all_gather_into(self, name: str, outputs: list[Tensor], inputs: list[Tensor]) -> Work:
        if not are_exchangeable(*outputs, *inputs):
            return self._reject_tensors(name)
        return self._submit(name, lambda operations, step: operations.all_gather_into(step, outputs, inputs), outputs)

    def reduce_scatter(
        self,
        output_tensors: Any,
        input_tensors: Any,
        opts: Any = ReduceOp.SUM,
        timeout: Any = None,  # noqa: ARG002
    ) -> Work:
        outputs, inputs = to_tensor_list(output_tensors), to_tensor_lists(input_tensors)
        reductions = find_reductions(opts, outputs)
        if reductions is None or not are_exchangeable(*(tensor for each in inputs for tensor in each)):
            return self._run_with_gloo("reduce_scatter", outputs, inputs, make_options("ReduceScatterOptions", opts))
        return self._submit(
            "reduce_scatter",
            lambda operations, step: operations.reduce_scatter(step, outputs, inputs, reductions),
            outputs,
        )

    def reduce_scatter_single(
        self,
        output: Tensor,
        own: Tensor,
        opts: Any = ReduceOp.SUM,
        timeout: Any = None,  # noqa: ARG002
    ) -> Work:
        return self._reduce_scatter_from("reduce_scatter_single", [output], [own], opts)

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = ReduceOp.SUM) -> Work:
        return self._reduce_scatter_from("reduce_scatter_single_coalesced", list(outputs), list(inputs), opts)

    def _reduce_scatter_from(self, name: str, outputs: list[Tensor], inputs: list[Tensor], opts: Any) -> Work:
        reductions = find_reductions(opts, outputs)
        if reductions is None or not are_exchangeable(*inputs):
            options = make_options("ReduceScatterOptions", opts)
            works = [
                self._run_with_gloo("_reduce_scatter_base", output, own, options)
                for output, own in zip(outputs, inputs, strict=True)
            ]
            for work in works[:-1]:
                work.wait()
            return works[-1]
        return self._submit(
            name, lambda operations, step: operations.reduce_scatter_from(step, outputs, inputs, reductions), outputs
        )

    def alltoall(self, output_tensors: Any, input_tensors: Any, opts: Any = None) -> Work:  # noqa: ARG002
        outputs, inputs = list(output_tensors), list(input_tensors)
        if not are_exchangeable(*outputs, *inputs):
            return self._reject_tensors("alltoall")
        return self._submit("alltoall", lambda operations, step: operations.all_to_all(step, outputs, inputs), outputs)

    def all_to_all_single(
        self,
        output: Tensor,
        own: Tensor,
        output_splits: Sequence[int] = (),
        input_splits: Sequence[int] = (),
        opts: Any = None,  # noqa: ARG002
        timeout: Any = None,  # noqa: ARG002
    ) -> Work:
        if not are_exchangeable(output, own):
            return self._reject_tensors("all_to_all_single")
        splits = list(output_splits), list(input_splits)
        return self._submit(
            "all_to_all_single",
            lambda operations, step: operations.all_to_all_single(step, output, own, *splits),
            [output],
        )

    def send(self, tensors: Any, target_rank: int, tag: int = 0) -> Work:
        (own,) = to_tensor_list(tensors)
        if not self._queues.has_tag(tag) or not are_exchangeable(own):
            return self._run_with_gloo("send", [own], target_rank, tag)
        return self._queues.submit_send(
            lambda operations, step: operations.send(step, own, target_rank), [own], target_rank, tag
        )

    def recv(self, tensors: Any, source_rank: int, tag: int = 0) -> Work:
        (own,) = to_tensor_list(tensors)
        if not self._queues.has_tag(tag) or not are_exchangeable(own):
            return self._run_with_gloo("recv", [own], source_rank, tag)
        return self._queues.submit_receive(
            lambda operations, step: operations.receive(step, own, source_rank), [own], source_rank, tag
        )

    # Names of the same operations in other versions of PyTorch.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def recv_anysource(self, tensors: Any, tag: int) -> NoReturn:
        raise NotImplementedError("process_group ensayo cannot receive from any rank; name the source, as in src=0")

    def reduce(self, *args: Any) -> Work:
        return self._run_with_gloo("reduce", *args)

    def gather(self, *args: Any) -> Work:
        return self._run_with_gloo("gather", *args)

    def scatter(self, *args: Any) -> Work:
        return self._run_with_gloo("scatter", *args)

    def monitored_barrier(self, *args: Any, **kwargs: Any) -> Any:
        return self._run_with_gloo("monitored_barrier", *args, **kwargs)

    def shutdown(self) -> None:
        """End the streams of this process if no other group uses them."""
        self._queues.close()

    def abort(self) -> None:
        self.shutdown()

    def _submit(self, name: str, run: RunOnTensors, result: Any) -> Work:
        return self._queues.submit(name, run, result)

    def _run_with_gloo(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Let gloo do an operation, and record its name."""
        self.gloo_fallback_operations |= {name}
        self.gloo_fallback_calls += 1
        return getattr(self._gloo, name)(*args, **kwargs)

    def _reject_tensors(self, name: str) -> NoReturn:
        raise TypeError(f"{name} of process_group ensayo takes dense tensors in host memory only")
