"""What a run says that it did adds up, under every strategy."""

import asyncio
import random
from collections.abc import Callable
from statistics import mean
from typing import Any

import pytest

from services.cluster.links.fluid_link import MIN_FLUID_MESSAGE_BYTES, goodput_bytes_per_s
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
def test_every_node_sends_the_bytes_that_the_plan_promised(
    rehearse: Callable[..., Any], strategy: dict[str, Any], workers: int, precision: str
) -> None:
    """Traffic is compared with interface counters: the promise must be exact, or the difference means nothing."""
    done = rehearse(strategy, workers, precision=precision)

    steps = {f"worker-{rank}": len(done.steps(rank)) for rank in range(workers)}
    for node, per_step in done.plan.bytes_per_step.items():
        others = [count for name, count in steps.items() if name != node]
        answers = done.plan.reply_bytes_per_step.get(node, 0) if node in steps else per_step
        sent = done.value(node, "node_stop")["payload_bytes_sent"] - (per_step - answers) * steps.get(node, 0)
        assert sent * len(others) == answers * sum(others)
    assert done.plan.bytes_per_step.keys() == {node.name for node in done.plan.nodes} - {"coordinator"}


@every_strategy
def test_steps_add_up_to_what_a_worker_says_at_its_end(
    rehearse: Callable[..., Any], strategy: dict[str, Any], workers: int
) -> None:
    """Bytes per step and bytes per run are two records of the same messages."""
    done = rehearse(strategy, workers)

    for rank in range(workers):
        stop, steps = done.value(f"worker-{rank}", "node_stop"), done.steps(rank)
        assert len(steps) == stop["steps"]
        me, holders = f"worker-{rank}", done.plan.shard_owners
        answered = sum(len(done.steps(other)) for other in range(workers) if other != rank) * (me in holders)
        per_answer = done.plan.reply_bytes_per_step.get(me, 0) // max(1, workers - 1)
        leaving = len(set(holders) - {me})  # a word of goodbye to every server, outside of any step
        assert sum(row["bytes_sent"] for row in steps) == stop["payload_bytes_sent"] - answered * per_answer
        assert sum(row["messages_sent"] for row in steps) == stop["messages_sent"] - leaving - answered
        assert sum(stop["peers"].values()) == stop["payload_bytes_sent"]


@every_strategy
@pytest.mark.parametrize("batch", [12, 13])
def test_samples_processed_equal_the_budget(
    rehearse: Callable[..., Any], strategy: dict[str, Any], workers: int, batch: int
) -> None:
    """Strategies are compared by samples: each epoch is every training sample once, also in a small last batch."""
    done = rehearse(strategy, workers, batch=batch, cluster=LINKS)

    (stop,) = done.events("coordinator", "run_stop")
    budget = done.plan.epochs * done.plan.train_samples
    over = 0 if done.plan.is_synchronous else batch  # who computes when the rest is given out finishes its step
    assert budget <= stop["metadata"]["samples_count"] <= budget + over
    computed = sum(row["samples"] for rank in range(workers) for row in done.steps(rank))
    dropped = sum(row["samples"] for holder in done.plan.shard_owners[:1] for row in done.rows(holder, "shard_drops"))
    assert computed - dropped == stop["metadata"]["samples_count"]
    losses = done.events("coordinator", "train_loss")
    passes = [event["metadata"]["epoch_num"] for event in losses]
    assert passes == [1, 2, 3][: len(passes)]
    assert len(passes) >= (3 if done.plan.is_synchronous else 2)  # out of lockstep the last one may be cut short


@every_strategy
def test_the_phases_of_a_step_fill_it(rehearse: Callable[..., Any], strategy: dict[str, Any], workers: int) -> None:
    """A report that says where the time went must not lose any of it."""
    done = rehearse(strategy, workers, cluster=LINKS)

    for rank in range(workers):
        for row in done.steps(rank):
            parts = sum(row[f"{phase}_s"] for phase in ("data", "compute", "exchange", "wait", "update"))
            assert parts == pytest.approx(row["step_s"], abs=1e-5)


DIGITS = {"dataset": {"kind": "digits"}, "model": {"kind": "mlp", "hidden": [32]}, "batch": 240, "epochs": 1}
EQUAL = {key: value for key, value in LINKS.items() if key != "groups"}


@pytest.mark.parametrize(("label", "workers"), [("none", 1), ("ring", 1), ("ring", 2), ("ring", 5), ("bsp", 1)])
def test_a_step_takes_the_seconds_that_the_closed_form_says(
    rehearse: Callable[..., Any], label: str, workers: int
) -> None:
    """Equal workers behind equal links: the simulated network has nothing that the formula leaves out."""
    strategy, _ = STRATEGIES[label]
    done = rehearse(strategy | ({"servers": 1} if label == "bsp" else {}), workers, cluster=EQUAL, **DIGITS)

    whole = done.steps(0)[:-1]  # the last batch is smaller

    for row in whole:
        assert row["step_s"] == pytest.approx(done.plan.predicted.step_s, rel=0.02)


@pytest.mark.parametrize("workers", [2, 4])
def test_a_server_in_lockstep_takes_the_formulas_seconds_less_one_message_per_other_worker(
    rehearse: Callable[..., Any], workers: int
) -> None:
    """A port passes whole messages, so the worker that is answered first computes while the last one still receives.

    The formula lets all answers end together, as flows that share a link fairly would. The difference is at most one
    message (`MIN_FLUID_MESSAGE_BYTES`, or the vector if that is smaller) per other worker.
    """
    done = rehearse({"kind": "parameter_server"}, workers, cluster=EQUAL, **DIGITS)
    message_s = min(MIN_FLUID_MESSAGE_BYTES, done.plan.vector_bytes) / goodput_bytes_per_s(1e6)

    _, *settled = done.steps(0)[:-1]

    predicted_s = done.plan.predicted.step_s
    for row in settled:
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
def test_a_step_between_unequal_links_takes_the_closed_forms_seconds(
    rehearse: Callable[..., Any], label: str, links: str
) -> None:
    """Workers' and servers' links, up and down: which is slowest depends on how many share it."""
    worker_up, worker_down, server_up, server_down = (f"{rate}mbit" for rate in UNEQUAL[links])
    cluster = {
        "worker": {"throughput": "1000/s", "uplink": worker_up, "downlink": worker_down},
        "server": {"uplink": server_up, "downlink": server_down},
    }
    many_messages = {"model": {"kind": "mlp", "hidden": [4096]}, "batch": 240}
    done = rehearse(STRATEGIES[label][0], 4, cluster=cluster, **(DIGITS | many_messages))

    steps = [row for rank in range(4) for row in done.steps(rank)[1:-1]]

    assert mean(row["step_s"] for row in steps) == pytest.approx(done.plan.predicted.step_s, rel=0.05)


@every_strategy
@pytest.mark.parametrize("late_s", [0.0, 0.02], ids=["copies", "copies and reordering"])
def test_messages_that_come_twice_or_out_of_order_change_nothing(
    rehearse: Callable[..., Any],
    strategy: dict[str, Any],
    workers: int,
    late_s: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A network may repeat and overtake; a gradient that was applied twice would be a wrong model without an error."""
    calm = rehearse(strategy, workers, cluster=LINKS)
    monkeypatch.setattr("services.transport.virtual.Mailbox", unruly(late_s))

    done = rehearse(strategy, workers, cluster=LINKS)

    for holder in done.plan.shard_owners:
        used = [(row["worker"], row["push_step"]) for row in done.rows(holder, "shard_updates")]
        dropped = [(row["worker"], row["push_step"]) for row in done.rows(holder, "shard_drops")]
        assert len({*used, *dropped}) == len(used) + len(dropped), "a push was applied twice"
        if done.plan.strategy.kind == "parameter_server":
            assert len(used) + len(dropped) == sum(len(done.steps(rank)) for rank in range(workers))
    if late_s == 0.0 or done.plan.is_synchronous:  # who comes first decides an asynchronous result
        versions = [
            [row["version"] for holder in done.plan.shard_owners for row in each.rows(holder, "shard_updates")]
            for each in (done, calm)
        ]
        assert versions[0] == versions[1]
        assert done.value("coordinator", "params_sha256") == calm.value("coordinator", "params_sha256")


def unruly(late_s: float) -> type[Mailbox]:
    """A mailbox to which the network delivers every message up to `late_s` late, and three times."""

    class Unruly(Mailbox):
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

    return Unruly
