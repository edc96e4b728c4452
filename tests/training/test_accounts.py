"""Reported bytes, messages, samples and seconds are consistent with each other and the plan, for every strategy."""

import asyncio
import random
from collections.abc import Callable
from statistics import mean
from typing import Any

import pytest

from services.cluster.links.fluid_link import MIN_FLUID_MESSAGE_BYTES, to_goodput_bytes_per_s
from services.runtime.transport import Message
from services.transport.mailbox import Mailbox

STRATEGIES: dict[str, tuple[dict[str, Any], int]] = {
    "none": ({"kind": "none"}, 1),
    "ring": ({"kind": "all_reduce"}, 3),
    "butterfly": ({"kind": "all_reduce", "collective": {"kind": "halving_doubling"}}, 3),
    "array by array": ({"kind": "all_reduce", "collective": {"kind": "reduce_to_one", "fused": False}}, 3),
    "bsp": ({"kind": "parameter_server", "servers": 2}, 3),
    "asp": ({"kind": "parameter_server", "servers": 2, "synchrony": {"kind": "asp"}}, 3),
    "ssp": ({"kind": "parameter_server", "servers": 2, "synchrony": {"kind": "ssp", "staleness": 2}}, 3),
    "dssp": ({"kind": "parameter_server", "servers": 2, "synchrony": {"kind": "dssp", "low": 1, "high": 4}}, 3),
    "backup": ({"kind": "parameter_server", "servers": 2, "synchrony": {"kind": "backup", "backups": 1}}, 4),
    "gba": ({"kind": "parameter_server", "servers": 2, "synchrony": {"kind": "gba", "oldest": 1}}, 3),
    "cut_off": (
        {
            "kind": "parameter_server",
            "servers": 2,
            "synchrony": {"kind": "asp"},
            "staleness": {"kind": "cut_off", "oldest": 3},
        },
        3,
    ),
    "colocated": ({"kind": "parameter_server", "placement": {"kind": "colocated"}}, 3),
    "colocated asp": (
        {"kind": "parameter_server", "placement": {"kind": "colocated"}, "synchrony": {"kind": "asp"}},
        3,
    ),
    "spare": ({"kind": "parameter_server", "servers": 2, "placement": {"kind": "spare"}}, 3),
    "local sgd": ({"kind": "local_sgd", "period": 1}, 3),
    "easgd": ({"kind": "easgd", "servers": 2, "period": 1}, 3),
    "dynamic shares": ({"kind": "all_reduce", "balance": {"kind": "dynamic", "period": 1}}, 3),
    "easgd asp": ({"kind": "easgd", "servers": 2, "period": 1, "synchrony": {"kind": "asp"}}, 3),
}
LINKS = {
    "worker": {"throughput": "1000/s", "uplink": "1mbit", "downlink": "1mbit"},
    "server": {"uplink": "1mbit", "downlink": "1mbit"},
    "groups": [{"name": "slow", "ranks": [0], "throughput": "250/s"}],
}

every_strategy = pytest.mark.parametrize(("strategy", "workers"), STRATEGIES.values(), ids=STRATEGIES)


@every_strategy
@pytest.mark.parametrize("precision", ["fp32", "fp64"])
def test_every_node_sends_the_bytes_of_the_plan(
    simulate: Callable[..., Any], strategy: dict[str, Any], workers: int, precision: str
) -> None:
    """Traffic is compared with interface counters: an inexact prediction would make differences meaningless."""
    trial = simulate(strategy, workers, precision=precision)

    steps = {f"worker-{rank}": len(trial.steps(rank)) for rank in range(workers)}
    for node, per_step in trial.plan.bytes_per_step.items():
        others = [count for name, count in steps.items() if name != node]
        reply_bytes = trial.plan.reply_bytes_per_step.get(node, 0) if node in steps else per_step
        sent = trial.value(node, "node_stop")["payload_bytes_sent"] - (per_step - reply_bytes) * steps.get(node, 0)
        assert sent * len(others) == reply_bytes * sum(others)
    assert trial.plan.bytes_per_step.keys() == {node.name for node in trial.plan.nodes} - {"coordinator"}


@every_strategy
def test_bytes_of_all_steps_add_up_to_the_worker_total(
    simulate: Callable[..., Any], strategy: dict[str, Any], workers: int
) -> None:
    """Bytes per step and bytes per run are two independent records of the same messages."""
    trial = simulate(strategy, workers)

    for rank in range(workers):
        stop, steps = trial.value(f"worker-{rank}", "node_stop"), trial.steps(rank)
        assert len(steps) == stop["steps"]
        worker, owners = f"worker-{rank}", trial.plan.shard_owners
        replies = sum(len(trial.steps(other)) for other in range(workers) if other != rank) * (worker in owners)
        reply_bytes = trial.plan.reply_bytes_per_step.get(worker, 0) // max(1, workers - 1)
        leave_messages = len(set(owners) - {worker})  # one to every server, outside of any step
        assert sum(row["bytes_sent"] for row in steps) == stop["payload_bytes_sent"] - replies * reply_bytes
        assert sum(row["messages_sent"] for row in steps) == stop["messages_sent"] - leave_messages - replies
        assert sum(stop["peers"].values()) == stop["payload_bytes_sent"]


@every_strategy
@pytest.mark.parametrize("batch", [12, 13])
def test_samples_processed_equal_the_budget(
    simulate: Callable[..., Any], strategy: dict[str, Any], workers: int, batch: int
) -> None:
    """Strategies are compared by samples: every epoch has each training sample once, including a small last batch."""
    trial = simulate(strategy, workers, batch=batch, cluster=LINKS)

    (stop,) = trial.events("coordinator", "run_stop")
    budget = trial.plan.epochs * trial.plan.train_samples
    excess = 0 if trial.plan.is_synchronous else batch  # a step in progress is finished
    assert budget <= stop["metadata"]["samples_count"] <= budget + excess
    computed = sum(row["samples"] for rank in range(workers) for row in trial.steps(rank))
    dropped = sum(row["samples"] for owner in trial.plan.shard_owners[:1] for row in trial.rows(owner, "shard_drops"))
    assert computed - dropped == stop["metadata"]["samples_count"]
    losses = trial.events("coordinator", "train_loss")
    epochs = [event["metadata"]["epoch_num"] for event in losses]
    assert epochs == [1, 2, 3][: len(epochs)]
    assert len(epochs) >= (3 if trial.plan.is_synchronous else 2)  # the last asynchronous epoch may be cut short


@every_strategy
def test_step_time_is_the_sum_of_its_phases(
    simulate: Callable[..., Any], strategy: dict[str, Any], workers: int
) -> None:
    """A report of where the time went must account for all of it."""
    trial = simulate(strategy, workers, cluster=LINKS)

    for rank in range(workers):
        for row in trial.steps(rank):
            parts = sum(row[f"{phase}_s"] for phase in ("data", "compute", "exchange", "wait", "update"))
            assert parts == pytest.approx(row["step_s"], abs=1e-5)


DIGITS = {"dataset": {"kind": "digits"}, "model": {"kind": "mlp", "hidden": [32]}, "batch": 240, "epochs": 1}
EQUAL = {key: value for key, value in LINKS.items() if key != "groups"}


@pytest.mark.parametrize(("label", "workers"), [("none", 1), ("ring", 1), ("ring", 2), ("ring", 5), ("bsp", 1)])
def test_step_time_equals_the_closed_form_on_equal_links(
    simulate: Callable[..., Any], label: str, workers: int
) -> None:
    """With equal workers and equal links, the simulated network has no effect that the formula lacks."""
    strategy, _ = STRATEGIES[label]
    trial = simulate(strategy | ({"servers": 1} if label == "bsp" else {}), workers, cluster=EQUAL, **DIGITS)

    full_steps = trial.steps(0)[:-1]  # the last batch is smaller

    for row in full_steps:
        assert row["step_s"] == pytest.approx(trial.plan.predicted.step_s, rel=0.02)


@pytest.mark.parametrize("workers", [2, 4])
def test_bsp_step_time_is_at_most_one_message_per_other_worker_below_the_formula(
    simulate: Callable[..., Any], workers: int
) -> None:
    """A port passes whole messages, so the worker with the first reply computes while another still receives its reply.

    The formula lets all replies end together, as flows that share a link fairly would. The difference is at most one
    message (`MIN_FLUID_MESSAGE_BYTES`, or the vector if that is smaller) per other worker.
    """
    trial = simulate({"kind": "parameter_server"}, workers, cluster=EQUAL, **DIGITS)
    message_s = min(MIN_FLUID_MESSAGE_BYTES, trial.plan.vector_bytes) / to_goodput_bytes_per_s(1e6)

    _, *steady_steps = trial.steps(0)[:-1]

    predicted_s = trial.plan.predicted.step_s
    for row in steady_steps:
        assert predicted_s - (workers - 1) * message_s - 1e-5 <= row["step_s"] <= predicted_s + 1e-5


UNEQUAL = {  # Mbit/s: workers up, workers down, servers up, servers down
    "slow workers": (20, 20, 1000, 1000),
    "slow servers": (1000, 1000, 20, 20),
    "slow upwards": (10, 100, 20, 100),
    "slow downwards": (100, 10, 100, 20),
}


@pytest.mark.parametrize(
    ("label", "links"), [*((label, links) for label in ("ring", "bsp") for links in UNEQUAL), ("asp", "slow workers")]
)
def test_step_time_equals_the_closed_form_on_unequal_links(
    simulate: Callable[..., Any], label: str, links: str
) -> None:
    """The uplinks and downlinks of workers and servers differ: which is the slowest depends on how many share it."""
    worker_up, worker_down, server_up, server_down = (f"{rate}mbit" for rate in UNEQUAL[links])
    cluster = {
        "worker": {"throughput": "1000/s", "uplink": worker_up, "downlink": worker_down},
        "server": {"uplink": server_up, "downlink": server_down},
    }
    many_messages = {"model": {"kind": "mlp", "hidden": [4096]}, "batch": 240}
    trial = simulate(STRATEGIES[label][0], 4, cluster=cluster, **(DIGITS | many_messages))

    steps = [row for rank in range(4) for row in trial.steps(rank)[1:-1]]

    assert mean(row["step_s"] for row in steps) == pytest.approx(trial.plan.predicted.step_s, rel=0.05)


@every_strategy
@pytest.mark.parametrize("late_s", [0.0, 0.02], ids=["copies", "copies and reordering"])
def test_duplicate_and_reordered_messages_do_not_change_the_result(
    simulate: Callable[..., Any],
    strategy: dict[str, Any],
    workers: int,
    late_s: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A network may duplicate and reorder messages; applying a gradient twice would give a wrong model silently."""
    reliable = simulate(strategy, workers, cluster=LINKS)
    monkeypatch.setattr("services.transport.virtual.Mailbox", make_unreliable_mailbox(late_s))

    trial = simulate(strategy, workers, cluster=LINKS)

    for owner in trial.plan.shard_owners:
        used = [(row["worker"], row["push_step"]) for row in trial.rows(owner, "shard_updates")]
        dropped = [(row["worker"], row["push_step"]) for row in trial.rows(owner, "shard_drops")]
        assert len({*used, *dropped}) == len(used) + len(dropped), "a push was applied twice"
        if trial.plan.strategy.kind == "parameter_server":
            assert len(used) + len(dropped) == sum(len(trial.steps(rank)) for rank in range(workers))
    if late_s == 0.0 or trial.plan.is_synchronous:  # asynchronous results depend on the order of arrival
        versions = [
            [row["version"] for owner in trial.plan.shard_owners for row in run.rows(owner, "shard_updates")]
            for run in (trial, reliable)
        ]
        assert versions[0] == versions[1]
        assert trial.value("coordinator", "params_sha256") == reliable.value("coordinator", "params_sha256")


def make_unreliable_mailbox(late_s: float) -> type[Mailbox]:
    """Return a mailbox class whose messages arrive up to `late_s` late, and three times."""

    class UnreliableMailbox(Mailbox):
        def deliver(self, source: str, message: Message) -> None:
            later = asyncio.get_running_loop().call_later
            chance = random.Random(repr((source, message.tag)))
            delay = late_s * chance.random()
            if delay:
                later(delay, super().deliver, source, message)
            else:
                super().deliver(source, message)
            for _ in range(2):
                later(delay + chance.random(), super().deliver, source, message)

    return UnreliableMailbox
