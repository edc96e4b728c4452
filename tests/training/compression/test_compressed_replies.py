"""Trials in which servers compress their replies: differences to the parameters that each worker has."""

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
from whole_vector_compressors import GatheredIdentity, LargestEntries

from services.compressors import Compressor, CompressorSeed, CompressorState, Fp16, IdentityCompressor
from services.ps_shard.replies import ReplyEncoder
from services.ps_shard.runtime import ServerRuntime
from services.strategies.server_based.parameter_server import ParameterServerWorker

# plan.json of these trials has compressors that no scenario can name.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")

Simulate = Callable[..., Any]
LINKS = {
    "worker": {"throughput": "1000/s", "uplink": "1mbit", "downlink": "1mbit"},
    "server": {"uplink": "1mbit", "downlink": "1mbit"},
}
SLOW_RANK = {"groups": [{"name": "slow", "ranks": [0], "throughput": "300/s"}]}
POLICIES = [
    {"kind": "bsp"},
    {"kind": "asp"},
    {"kind": "ssp", "staleness": 2},
    {"kind": "backup", "backups": 1},
]
every_policy = pytest.mark.parametrize("synchrony", POLICIES, ids=lambda policy: policy["kind"])


class MemorylessLargestEntries(LargestEntries):
    """The largest entries, without a residual: differences to a worker's parameters need none."""

    kind: Any = "memoryless"

    def init_state(self, entry_count: int, seed: CompressorSeed) -> None:
        return None

    def compress(self, vector: Any, state: CompressorState) -> Any:
        payload, _ = super().compress(vector, np.zeros(vector.size))
        return payload, None


def server(synchrony: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"kind": "parameter_server", "servers": 2, "synchrony": synchrony} | keys


def replies(compressor: Compressor) -> dict[str, Compressor]:
    return {"compress_replies": compressor}


@every_policy
def test_uncompressed_differences_train_as_parameters(simulate: Simulate, synchrony: dict[str, Any]) -> None:
    """Adding the difference to the worker's parameters gives those of the server, up to rounding."""
    work = {"cluster": LINKS | SLOW_RANK, "precision": "fp64"}

    trial = simulate(server(synchrony), 4, parts=replies(GatheredIdentity()), **work)

    np.testing.assert_allclose(trial.params, simulate(server(synchrony), 4, **work).params, rtol=1e-9, atol=1e-12)


@every_policy
def test_every_node_sends_the_bytes_of_the_plan(simulate: Simulate, synchrony: dict[str, Any]) -> None:
    """Replies are a part of the bytes that are compared with the counters of interfaces."""
    trial = simulate(server(synchrony), 4, parts=replies(MemorylessLargestEntries()), cluster=LINKS | SLOW_RANK)

    plain = simulate(server(synchrony), 4, cluster=LINKS | SLOW_RANK)
    for name in ("server-0", "server-1"):
        pushes = sum(len(trial.steps(rank)) for rank in range(4))
        per_reply = trial.plan.bytes_per_step[name] / 4
        assert trial.value(name, "node_stop")["payload_bytes_sent"] == pytest.approx(per_reply * pushes)
        assert trial.plan.bytes_per_step[name] < plain.plan.bytes_per_step[name]


@pytest.mark.parametrize("compressor", [Fp16(), MemorylessLargestEntries()], ids=attrgetter("kind"))
@pytest.mark.parametrize("workers", range(1, 9))
def test_replicas_of_synchronous_workers_are_bitwise_equal(
    simulate: Simulate, compressor: Compressor, workers: int
) -> None:
    """Every worker has received the same replies, so the server sends each one the same difference."""
    trial = simulate(server({"kind": "bsp"}), workers, parts=replies(compressor), hash_every_step=True, epochs=1)

    digests: dict[int, set[str]] = {}
    for rank in range(workers):
        for event in trial.events(f"worker-{rank}", "node_hash"):
            digests.setdefault(event["metadata"]["step"], set()).add(event["value"])
    assert len(digests) == 7
    assert {len(each) for each in digests.values()} == {1}


@every_policy
@pytest.mark.parametrize("compensation", [{"kind": "none"}, {"kind": "dc_asgd"}], ids=lambda each: each["kind"])
@pytest.mark.parametrize(
    "compressor", [Fp16(), MemorylessLargestEntries(), IdentityCompressor()], ids=attrgetter("kind")
)
def test_server_knows_the_parameters_of_each_worker_bitwise(
    simulate: Simulate,
    synchrony: dict[str, Any],
    compensation: dict[str, Any],
    compressor: Compressor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the difference would be added to other parameters than those from which it was computed."""
    known: dict[tuple[str, int], list[bytes]] = {}
    received: dict[tuple[str, int], list[bytes]] = {}
    encode, receive = ReplyEncoder.encode_reply, ParameterServerWorker._receive_reply

    def record_encoded(self: ReplyEncoder, rank: int, vector: Any) -> Any:
        encoded = encode(self, rank, vector)
        has_params = compressor != IdentityCompressor() or self.keeps_sent_params
        known.setdefault((self.initial_params.tobytes()[:8], rank), []).append(
            (self.worker_params(rank) if has_params else vector).tobytes()
        )
        return encoded

    async def record_received(self: ParameterServerWorker, owner: str, piece: Any, owned: Any, vector: Any) -> None:
        await receive(self, owner, piece, owned, vector)
        initial = initial_shards[owner][:8]
        received.setdefault((initial, self.context.rank), []).append(owned.view(vector).tobytes())

    initial_shards: dict[str, bytes] = {}
    initialise = ServerRuntime.__post_init__

    def record_initial(self: ServerRuntime) -> None:
        initialise(self)
        initial_shards[f"server-{self.shard_number}"] = self.update_rule.params.tobytes()

    monkeypatch.setattr(ServerRuntime, "__post_init__", record_initial)
    monkeypatch.setattr(ReplyEncoder, "encode_reply", record_encoded)
    monkeypatch.setattr(ParameterServerWorker, "_receive_reply", record_received)

    simulate(server(synchrony, compensation=compensation), 4, parts=replies(compressor), cluster=LINKS | SLOW_RANK)

    assert len(received) == 8
    assert received == known


def test_sparse_replies_converge_to_the_parameters_of_the_server() -> None:
    """What a reply leaves out is part of the next difference, so that it arrives later."""
    target = np.random.default_rng(0).standard_normal(100).astype("float32")
    encoder = ReplyEncoder(MemorylessLargestEntries(), CompressorSeed(), np.zeros(100, "float32"))

    errors = []
    for _ in range(5):
        encoder.encode_reply(3, target)
        errors.append(abs(encoder.worker_params(3) - target).max())

    assert errors[0] > errors[1] > errors[2] > 0
    assert errors[3] < 1e-6
    assert (encoder.worker_params(2) == 0).all()


def test_lossy_replies_train_nearly_as_well(simulate: Simulate) -> None:
    """A difference to other parameters, or one that loses entries for good, would stop the loss from falling."""
    strategy, work = server({"kind": "asp"}), {"epochs": 12, "cluster": LINKS}

    trial, plain = (
        simulate(strategy, 3, parts=replies(MemorylessLargestEntries()), **work),
        simulate(strategy, 3, **work),
    )

    (last, exact) = (run.events("coordinator", "eval_metrics")[-1]["value"]["loss"] for run in (trial, plain))
    first = plain.events("coordinator", "eval_metrics")[0]["value"]["loss"]
    assert last - exact < 0.1 * (first - exact)


@pytest.mark.parametrize(("synchrony", "workers"), [("bsp", 2), ("bsp", 4), ("asp", 1)])
def test_step_time_counts_the_bytes_of_replies(simulate: Simulate, synchrony: str, workers: int) -> None:
    """Pushes and replies take turns, so half of the reply is a quarter of the exchange."""
    work = {"batch": 8, "epochs": 3, "model": {"kind": "mlp", "hidden": [4000], "activation": "tanh"}}
    strategy = server({"kind": synchrony}, servers=1)

    trial = simulate(strategy, workers, parts=replies(Fp16()), cluster=LINKS, **work)

    assert trial.plan.predicted.inapplicable_reason == ""
    rows = [row["step_s"] for rank in range(workers) for row in trial.steps(rank)[2:-2]]
    assert np.mean(rows) == pytest.approx(trial.plan.predicted.step_s, rel=0.05)
    uncompressed = simulate(strategy, workers, cluster=LINKS, **work).plan.predicted
    assert trial.plan.predicted.exchange_s / uncompressed.exchange_s == pytest.approx(0.75, abs=0.03)
