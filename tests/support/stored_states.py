"""Trials whose workers encode and decode their whole state before every step, as if they read it from a checkpoint."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from services.checkpoints.state_tree import EncodedState, UnstorableState, decode_state, encode_state
from services.ps_shard.runtime import ServerRuntime
from services.schema.errors import ProtocolError
from services.strategies import StepResult
from services.worker.runtime import WorkerRuntime


@dataclass
class StoredStates:
    """What has been stored so far."""

    count: int = 0
    class_names: set[str] = field(default_factory=set)  # of the records in the states
    unstorable: list[str] = field(default_factory=list)  # messages for states that can't be stored


def store_state_before_each_step(monkeypatch: pytest.MonkeyPatch) -> StoredStates:
    """From now on, let every worker continue each step from a decoded copy of its parameters and its state."""
    stored, run_step = StoredStates(), WorkerRuntime._run_training_step

    async def run_from_stored_state(self: WorkerRuntime, step: int, previous: StepResult, *args: Any) -> StepResult:
        device = self.algorithm_context.device
        try:
            encoded = encode_state((previous.params, previous.state), device.to_host)
        except UnstorableState as error:
            stored.unstorable.append(str(error))
            return await run_step(self, step, previous, *args)
        structure = json.loads(json.dumps(encoded.structure))
        arrays = tuple(array.copy() for array in encoded.arrays)
        params, state = decode_state(EncodedState(structure, arrays), device.to_device)
        again = encode_state((params, state), device.to_host)
        assert again.structure == encoded.structure
        assert [array.tobytes() for array in again.arrays] == [array.tobytes() for array in encoded.arrays]
        stored.count += 1
        stored.class_names |= _find_class_names(structure)
        return await run_step(self, step, replace(previous, params=params, state=state), *args)

    monkeypatch.setattr(WorkerRuntime, "_run_training_step", run_from_stored_state)
    return stored


def store_servers_between_updates(monkeypatch: pytest.MonkeyPatch) -> StoredStates:
    """From now on, let every server continue from a decoded copy of its state whenever no push is waiting."""
    stored, run_actions = StoredStates(), ServerRuntime._run_shard_actions

    async def run_and_store(self: ServerRuntime, *args: Any) -> None:
        await run_actions(self, *args)
        if self.machine.has_waiting_pushes:
            with pytest.raises(ProtocolError, match="can't be stored while a push waits"):
                self.copy_state()
            return
        encoded = encode_state(self.copy_state())
        structure = json.loads(json.dumps(encoded.structure))
        state = decode_state(EncodedState(structure, tuple(array.copy() for array in encoded.arrays)))
        lost = {"params": np.full_like(self.update_rule.params, np.nan), "_compensation_state": np.nan}
        vars(self.update_rule).update(lost | {"state": None, "_previous_centre": {}})
        self._replies.restore_replicas({})
        self.machine.version = self.machine.samples = -1
        self.restore_state(state)
        stored.count += 1

    monkeypatch.setattr(ServerRuntime, "_run_shard_actions", run_and_store)
    return stored


def _find_class_names(structure: Any) -> set[str]:
    """Return the names of the classes of all records in a structure."""
    if isinstance(structure, list):
        return set().union(*map(_find_class_names, structure))
    if not isinstance(structure, dict):
        return set()
    own = {structure["record"][0]} if "record" in structure else set()
    return own.union(*map(_find_class_names, structure.values()))
