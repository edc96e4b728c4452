"""State of a server after a change of the number of workers."""

from collections.abc import Sequence

from services.checkpoints.other_worker_count import UnsupportedWorkerChange
from services.parameter_server.server_state import ServerState


def change_workers_of_server(state: ServerState, step: int, push_samples: Sequence[int]) -> ServerState:
    """Return the state of a synchronous server that continues with other workers.

    Its parameters and its optimiser do not depend on the workers. After a step, all workers have the same parameters,
    so a new worker has those of any other.

    Args:
        state: state of the server after a step.
        step: next step of all workers.
        push_samples: samples in the last push of each worker, by new rank.

    Raises:
        UnsupportedWorkerChange: the update rule keeps a memory of single workers.
    """
    if state.update_rule_state.memory is not None:
        raise UnsupportedWorkerChange(
            "the update rule of the server keeps a state of each worker, which is not defined for other workers"
        )
    ranks = range(len(push_samples))
    replicas = dict.fromkeys(ranks, next(iter(state.replicas.values()))) if state.replicas else {}
    return state._replace(
        push_samples=dict(enumerate(push_samples)), next_steps=dict.fromkeys(ranks, step), replicas=replicas
    )
