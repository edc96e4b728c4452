"""Every strategy through one battery: what it says before a run, and that 64 workers do it.

What few workers do, in every detail, stands in `tests/training`.
"""

import dataclasses
import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from strategy_contexts import context, fits

from services.cluster.addresses import InProcessAddresses
from services.learning.optimisers import Momentum
from services.node.simulate import simulate_trial
from services.parameter_server.placement import ColocatedPlacement, PromotedWorkerPlacement, SpareNodePlacement
from services.parameter_server.synchronisers import Asp, BackupWorkers, Bsp, Gba, Ssp
from services.parameter_server.update_rules import ElasticAveragingRule, WorkerContribution, elastic_averaging_move
from services.plan import COORDINATOR, Plan, make_plan
from services.runtime.run_log import LOG_LINE_PREFIX
from services.scenario.scenario import Scenario
from services.strategies import (
    AllReduce,
    AnyStrategy,
    Easgd,
    LocalSgd,
    ParameterServer,
    SingleWorker,
    Strategy,
    StrategySwitch,
    SyncSwitch,
)
from services.strategies.cost_model import CostModel
from services.strategies.switching.rules import AtStepRule

EXAMPLES: list[Strategy] = [
    SingleWorker(),
    AllReduce(),
    ParameterServer(),
    ParameterServer(servers=3, synchrony=Bsp()),
    ParameterServer(synchrony=Asp()),
    ParameterServer(servers=2, synchrony=Asp(), rate="as_given"),
    ParameterServer(servers=2, synchrony=Ssp(staleness=2)),
    ParameterServer(synchrony=BackupWorkers(backups=0)),
    ParameterServer(synchrony=Gba()),
    ParameterServer(placement=ColocatedPlacement()),
    ParameterServer(placement=ColocatedPlacement(), synchrony=Asp()),
    ParameterServer(servers=1, placement=SpareNodePlacement()),
    LocalSgd(period=1),
    Easgd(period=1),
    Easgd(period=1, synchrony=Asp(), servers=3),
    StrategySwitch(),
    StrategySwitch(before=ParameterServer(synchrony=Asp()), after=AllReduce(), when=AtStepRule(fraction=0.5)),
    StrategySwitch(after=ParameterServer(placement=ColocatedPlacement(), synchrony=Asp())),
    StrategySwitch(
        after=ParameterServer(placement=PromotedWorkerPlacement(workers=2), synchrony=Asp()),
        when=AtStepRule(fraction=0.5),
    ),
    SyncSwitch(servers=2),
    SyncSwitch(stragglers="elastic"),
    SyncSwitch(stragglers="greedy"),
]

MANY = 64  # workers
MEAN_GRADIENT = {  # kinds that update with the mean gradient of the batch: if synchronous, they equal serial training
    "all_reduce",
    "easgd",
    "local_sgd",
    "none",
    "parameter_server",
    "strategy_switch",
    "sync_switch",
}

every_strategy = pytest.mark.parametrize("strategy", EXAMPLES, ids=repr)
workers_and_entries = given(workers=st.integers(1, 17), entries=st.integers(1, 5000))


def some(strategy: Strategy, workers: int) -> int:
    """So many workers, or one if the strategy takes no more."""
    return workers if fits(strategy, workers) else 1


def resting(strategy: Strategy) -> bool:
    """Whether servers stand by until a switch."""
    phases = strategy.training_phases()
    return phases.first_phase_with_servers is not phases.first


def test_every_member_of_the_family_of_strategies_stands_in_the_table() -> None:
    """A strategy that is not in the table is not tested."""
    union, _ = get_args(AnyStrategy)

    assert {type(strategy) for strategy in EXAMPLES} == set(get_args(union))


@every_strategy
def test_a_strategy_is_read_from_what_it_writes(strategy: Strategy) -> None:
    """A run's record holds the resolved components; the run must be repeatable from it."""
    assert TypeAdapter(AnyStrategy).validate_json(strategy.model_dump_json()) == strategy


@every_strategy
def test_every_strategy_takes_one_worker(strategy: Strategy) -> None:
    """Speed-up begins there."""
    assert not list(strategy.conflicts(context(1)))


def test_training_alone_is_for_one() -> None:
    """Two workers that never exchange anything train two models."""
    (conflict,) = SingleWorker().conflicts(context(2))

    assert "one worker" in conflict.message


@every_strategy
@workers_and_entries
def test_what_is_sent_is_said_for_every_node_and_grows_with_the_number_format(
    strategy: Strategy, workers: int, entries: int
) -> None:
    """Counts are of payload: fp64 weighs twice as much as fp32, exactly."""
    workers = some(strategy, workers)

    narrow, wide = (
        strategy.training_phases().first.bytes_per_step(workers, entries, dtype) for dtype in ("float32", "float64")
    )

    assert (len(narrow.workers), len(narrow.servers)) == (
        workers,
        strategy.training_phases().server_count if not resting(strategy) else 0,
    )
    assert wide.workers == tuple(2 * count for count in narrow.workers)
    assert wide.servers == tuple(2 * count for count in narrow.servers)


@pytest.mark.parametrize("kind", [Easgd, LocalSgd])
@given(period=st.integers(1, 2000), workers=st.integers(1, 17), entries=st.integers(1, 5000))
def test_a_step_sends_its_part_of_an_exchange_to_the_byte(
    kind: type[Easgd | LocalSgd], period: int, workers: int, entries: int
) -> None:
    """Many steps would add up what is rounded, and the trial would be said to have sent too little."""
    seldom, often = (kind(period=steps).bytes_per_step(workers, entries, "float32") for steps in (period, 1))

    for name in ("workers", "servers", "replies"):
        in_a_round = [count * period for count in getattr(seldom, name)]
        assert in_a_round == pytest.approx(getattr(often, name), rel=1e-12)


@every_strategy
@workers_and_entries
def test_servers_answer_with_as_much_as_they_were_sent(strategy: Strategy, workers: int, entries: int) -> None:
    """Every gradient that is pushed is answered by parameters of the same size."""
    workers = some(strategy, workers)

    phase = strategy.training_phases().first
    sent, algorithm = phase.bytes_per_step(workers, entries, "float32"), phase.server_algorithm()

    if algorithm and algorithm.dedicated_server_count:
        pushed = sum(sent.workers) - sum(sent.replies)
        inside = 4 * entries * workers - pushed  # what workers that serve send to themselves
        assert sum(sent.servers) + sum(sent.replies) == pushed
        assert inside == 0 or isinstance(algorithm.placement, SpareNodePlacement)


@every_strategy
@given(workers=st.integers(1, 16), slower=st.floats(1, 10))
def test_a_slower_network_or_worker_never_makes_a_step_shorter(strategy: Strategy, workers: int, slower: float) -> None:
    """Whatever the formula."""
    workers = some(strategy, workers)
    names = tuple(f"worker-{rank}" for rank in range(workers))
    servers = tuple(f"server-{rank}" for rank in range(strategy.training_phases().server_count))
    links = dict.fromkeys((*names, *servers), 1e-7)
    base = CostModel(
        workers=names,
        servers=servers,
        entries=250_000,
        dtype="float32",
        alpha_s=1e-4,
        uplink_s_per_byte=links,
        downlink_s_per_byte=links,
        compute_s=0.1,
    )

    phase = strategy.training_phases().first
    before = phase.predict_step_time(base)

    assert before.exchange_s >= 0
    for field in ("alpha_s", "uplink_s_per_byte", "downlink_s_per_byte", "compute_s"):
        given = getattr(base, field)
        slow = given * slower if isinstance(given, float) else {name: each * slower for name, each in given.items()}
        changed = base.model_copy(update={field: slow})
        assert phase.predict_step_time(changed).step_s >= before.step_s * (1 - 1e-12)  # rounding apart


@every_strategy
@given(workers=st.integers(1, 16))
def test_an_optimiser_keeps_all_but_its_rate(strategy: Strategy, workers: int) -> None:
    """A strategy may scale the rate by how much goes into one update; momentum is the user's."""
    given_one = Momentum(rate=0.1, momentum=0.7, nesterov=True)

    used = strategy.training_phases().first.scale_learning_rate(given_one, workers)

    assert used.model_copy(update={"rate": 0.1}) == given_one
    assert used.rate == pytest.approx(0.1) or used.rate == pytest.approx(0.1 / workers)


@given(
    params=st.lists(st.floats(-100, 100), min_size=1, max_size=6),
    alpha=st.floats(0, 0.15),
    together=st.booleans(),
)
def test_elastic_averaging_keeps_the_sum_of_workers_and_centre(
    params: list[float], alpha: float, together: bool
) -> None:
    """Without gradients, what a worker gives the centre gets; and all come closer to it."""
    workers, centre = [np.array([value]) for value in params], np.array([1.0])
    rule = ElasticAveragingRule(centre, alpha)
    rounds = [range(len(workers))] if together else [[rank] for rank in range(len(workers))]

    for ranks in rounds:
        rule.update([WorkerContribution(rank, 1, 0, workers[rank]) for rank in ranks])
        for rank in ranks:
            workers[rank] = workers[rank] - elastic_averaging_move(alpha, workers[rank], rule.reply_vector(rank))

    assert sum(workers) + rule.params == pytest.approx(sum(params) + 1.0, abs=1e-9)


@every_strategy
def test_sixty_four_workers_use_the_budget_send_what_the_plan_says_and_train_one_model(strategy: Strategy) -> None:
    """Virtual time has no processes, so a scale that no laptop has takes seconds; in lockstep the loss is one's."""
    phases = strategy.training_phases()
    steps = (
        1 if phases.first.training_properties().is_synchronous and not phases.switch else 2
    )  # in lockstep all are alike
    done, one = Rehearsal.of(strategy, steps), Rehearsal.of(SingleWorker(), steps)

    plan, done_by = done.plan, {name: done.rows(name, "node_steps") for name in done.workers}
    lockstep = plan.is_synchronous and (plan.second_phase is None or plan.second_phase.is_synchronous)
    budget, used = plan.epochs * plan.train_samples, done.stop["samples_count"]
    assert len(done_by) == some(strategy, MANY)
    assert done.stop["reason"] == "budget used"
    assert budget <= used <= budget + (0 if lockstep else plan.batch)
    assert sum(row["samples"] for rows in done_by.values() for row in rows) == used
    assert len(done.events(COORDINATOR, "switch_committed")) == (phases.switch is not None)
    assert done.loss == pytest.approx(one.loss, rel=1e-9) or not lockstep or strategy.kind not in MEAN_GRADIENT
    if plan.second_phase is None:
        stops = [event["value"] for name in plan.bytes_per_step for event in done.events(name, "node_stop")]
        told = sum(stop["payload_bytes_sent"] for stop in stops)
        each = sum(map(len, done_by.values())) / len(done_by)  # a server answers everybody's
        assert told == pytest.approx(sum(plan.bytes_per_step.values()) * each)


@dataclass
class Rehearsal:
    """A trial of many workers in virtual time."""

    plan: Plan
    lines: dict[str, list[str]] = dataclasses.field(default_factory=lambda: defaultdict(list))  # by node

    @classmethod
    def of(cls, strategy: Strategy, steps: int) -> "Rehearsal":
        """A sample for each worker and step; half way it switches: a rule that looks at losses would need more."""
        half = {"when": AtStepRule(fraction=0.5)} if isinstance(strategy, StrategySwitch) else {"fraction": 0.5}
        chosen = strategy.model_copy(update=half if strategy.training_phases().switch else {})
        (trial,) = Scenario.decode(document(chosen, steps)).trials()
        done = cls(make_plan(trial, "many", "simulated", InProcessAddresses()))
        simulate_trial(done.plan, lambda node: done.lines[node].append)
        return done

    @property
    def workers(self) -> list[str]:
        """By rank."""
        return [node.name for node in self.plan.node_plans_of_role("worker")]

    @property
    def stop(self) -> dict[str, Any]:
        """How the run ended."""
        (event,) = self.events(COORDINATOR, "run_stop")
        return dict(event["metadata"])

    @property
    def loss(self) -> float:
        """Of the held-out samples, at the end."""
        return float(self.events(COORDINATOR, "eval_metrics")[-1]["value"]["loss"])

    def events(self, node: str, key: str) -> list[dict[str, Any]]:
        """A node's events of one key."""
        parsed = (json.loads(line.removeprefix(LOG_LINE_PREFIX)) for line in self.lines[node])
        return [event for event in parsed if event["key"] == key]

    def rows(self, node: str, key: str) -> list[dict[str, Any]]:
        """All rows of a batched event."""
        batches = (event["value"] for event in self.events(node, key))
        return [dict(zip(batch["columns"], row, strict=True)) for batch in batches for row in batch["rows"]]


def document(strategy: Strategy, steps: int) -> dict[str, Any]:
    """A model that has at least an entry for each worker, and a fifth of the samples held out."""
    return {
        "name": "many",
        "workload": {
            "dataset": {"kind": "synthetic_regression", "samples": steps * MANY * 5 // 4, "features": 4, "outputs": 2},
            "model": {"kind": "mlp", "hidden": [12], "activation": "tanh"},
            "optimiser": {"kind": "momentum", "rate": 0.05},
            "batch": MANY,
            "epochs": 1,
            "precision": "fp64",
        },
        "cluster": {"workers": some(strategy, MANY), "worker": {"throughput": "1000/s"}},
        "strategies": {"it": strategy.model_dump(mode="json")},
        "baseline": False,
    }
