"""Every member in a table of `tests/every` gives the same results in processes and containers as in virtual time.

A trial of containers takes some seconds, so one trial covers several members: a server has one member of each family,
and two collectives share a run by a switch from one to the other. A test checks that no member is left out.
"""

import hashlib
import runpy
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import Any, TypeAlias, get_args

import pytest
import yaml
from replay.any_order import AverageOrders, GroupOrders, PairOrders
from replay.trial import replay_trial
from strategy_contexts import fits

from analysis.reading.run_folder import TrialFolder
from services.compressors import Compressor, ErrorFeedback, Int8, RandomK, TopK
from services.compressors.base import Aggregation
from services.plan import COORDINATOR
from services.schema.component import ScenarioComponent
from services.strategies import (
    AdPsgd,
    AllReduce,
    DiLoCo,
    DPsgd,
    Easgd,
    LocalSgd,
    ParameterServer,
    PartialAllReduce,
    Strategy,
    StrategySwitch,
)
from services.strategies.base import ExchangePattern
from services.strategies.gossip.topologies import GraphGossip
from services.strategies.switching.rules import AtStepRule, PlateauRule
from services.strategies.vector_sums import PowerSgd

RunTrial: TypeAlias = Callable[..., Any]

TABLES_FOLDER = Path(__file__).parents[1] / "every"
WORKERS = 4  # even, so that groups of two are complete, and no default of a kind
TRAIN_SAMPLES = 1438  # of the dataset digits
GRAPH_EDGES = ((0, 1), (1, 2), (2, 3), (1, 3))  # degrees of 1, 2, 3 and 2
FRACTIONAL_OVERLAP = DiLoCo(period=5, fragments=2, overlap_steps=0.667)  # fragments that do not divide the period
FAMILIES = ["strategy", "collective", "all_gather", "gossip_topology"]
SERVER_FAMILIES = {  # families of a parameter server, by key
    "synchrony": "synchroniser",
    "placement": "placement",
    "staleness": "staleness",
    "compensation": "compensation",
    "compress": "compressor",
}


def examples(family: str) -> list[Any]:
    """Return the examples in a family's table, which every new member has to join."""
    (table_file,) = TABLES_FOLDER.rglob(f"test_every_{family}.py")
    table = runpy.run_path(str(table_file))["EXAMPLES"]
    return [row[0] if isinstance(row, tuple) else getattr(row, family, row) for row in table]


def last_example_of_each_kind(family: str) -> list[Any]:
    """Return the last example of each kind in a family's table: the first often has no effect."""
    return list({example.kind: example for example in examples(family)}.values())


def collective_pairs() -> Iterator[Strategy]:
    """Return one trial for two collectives: one is used until half of the budget is spent, the other one after that."""
    strategies = [
        AllReduce.model_validate({"collective": with_rendezvous(collective)})
        for collective in last_example_of_each_kind("collective")
    ]
    for first, second in zip(strategies[::2], [*strategies[1::2], strategies[0]], strict=False):
        yield StrategySwitch(before=first, after=second, when=AtStepRule(fraction=0.5))


def sums_of_whole_vectors() -> Iterator[Strategy]:
    """Return an all-reduce with each all-gather and with payloads that are added; their compressors keep residuals.

    Sums that need two collectives per step share a trial.
    """
    sparse, drawn = ErrorFeedback(inner=TopK(ratio=0.1)), ErrorFeedback(inner=RandomK(ratio=0.1))
    whole_numbers, factors = AllReduce(compress=Int8(scale="shared")), AllReduce(compress=PowerSgd(min_ratio=0))
    yield StrategySwitch(before=whole_numbers, after=factors, when=AtStepRule(fraction=0.5))
    yield AllReduce(compress=drawn)
    for gather in last_example_of_each_kind("all_gather"):
        yield AllReduce(compress=sparse, gather=gather)


def compressed_replies() -> Iterator[Strategy]:
    """Return servers whose replies are sparse differences."""
    yield ParameterServer(servers=2, compress_replies=TopK(ratio=0.1))


def with_rendezvous(collective: ScenarioComponent) -> ScenarioComponent:
    """Return the collective with the tokens that it would only send for long vectors, if it has any."""
    return collective.model_copy(update={"rendezvous": True}) if hasattr(collective, "rendezvous") else collective


def server_settings() -> Iterator[dict[str, ScenarioComponent]]:
    """Return one member of each family per trial; shorter families start again.

    Staleness weights advance by two: otherwise those with an effect would meet synchronisers without stale gradients.
    """
    members_by_key = {key: last_example_of_each_kind(family) for key, family in SERVER_FAMILIES.items()}
    members_by_key["compress"] = [each for each in members_by_key["compress"] if not has_state(each)]
    for trial_index in range(max(map(len, members_by_key.values()))):
        member_indices = {key: 2 * (trial_index + 1) if key == "staleness" else trial_index for key in members_by_key}
        yield {key: members[member_indices[key] % len(members)] for key, members in members_by_key.items()}


def has_state(compressor: Compressor) -> bool:
    """Return whether a compressor keeps a state, so that a replay cannot follow it."""
    return ExchangePattern(compressor=compressor).has_compressor_state


def compressors_with_a_state() -> Iterator[Strategy]:
    """Return synchronous servers, which need no replay, with each compressor that keeps a state."""
    for compressor in filter(has_state, last_example_of_each_kind("compressor")):
        yield ParameterServer(servers=2, compress=compressor)


def parameter_server_strategy(settings: dict[str, Any]) -> Strategy:
    """Return the server alone, or after a ring if its placement needs workers that had another task before."""
    rate = "as_given" if settings["staleness"].divides_lr_by_worker_count else "per_sample"
    server = ParameterServer.model_validate({**settings, "rate": rate})
    if not server.placement.node_count_conflict(WORKERS, server.servers):
        return server
    rate = "keep" if server.staleness.divides_lr_by_worker_count else "keep_per_sample"
    server_after_switch = server.model_copy(update={"rate": "per_sample"})
    return StrategySwitch(after=server_after_switch, when=AtStepRule(fraction=0.5), rate=rate)


def other_strategies() -> Iterator[Strategy]:
    """Return every example of the other strategies, without those whose workers choose their partners in the run.

    The fast trials have the last one of each kind.
    """
    graph = DPsgd(topology=GraphGossip(edges=GRAPH_EDGES))
    for strategy in [*examples("strategy"), graph, FRACTIONAL_OVERLAP]:
        if not isinstance(strategy, AllReduce | ParameterServer | AdPsgd):
            yield (
                with_immediate_switch(strategy)
                if isinstance(strategy, StrategySwitch)
                else with_longer_period(strategy)
            )


def with_immediate_switch(strategy: StrategySwitch) -> StrategySwitch:
    """Return the switch with a rule on losses set to fire at the first loss, and phases that can be compared."""
    rule = strategy.when
    changes: dict[str, Any] = {"when": PlateauRule(force_at=1) if isinstance(rule, PlateauRule) else rule}
    if isinstance(strategy.after, DiLoCo):  # replays follow servers only before another server or an all-reduce
        changes["before"] = AllReduce()
    return strategy.model_copy(update=changes)


def with_longer_period(strategy: Strategy) -> Strategy:
    """Return the strategy with an exchange in every second step, or with groups of all workers."""
    if isinstance(strategy, PartialAllReduce):
        return strategy.model_copy(update={"group_size": WORKERS})
    return strategy.model_copy(update={"period": 2}) if isinstance(strategy, LocalSgd | Easgd) else strategy


ALL_STRATEGIES = [
    *collective_pairs(),
    *sums_of_whole_vectors(),
    *compressed_replies(),
    *compressors_with_a_state(),
    *map(parameter_server_strategy, server_settings()),
    *other_strategies(),
]
STRATEGIES_WITH_PARTNERS: list[Strategy] = [AdPsgd(), PartialAllReduce(group_size=2, connect_within=3)]
FAST_STRATEGIES = [
    *list(sums_of_whole_vectors())[:3],
    parameter_server_strategy(next(server_settings())),
    *{each.kind: each for each in other_strategies() if not isinstance(each, PartialAllReduce)}.values(),
]
KINDS_IN_CONTAINERS = {"all_reduce", "parameter_server", "easgd", "diloco", "d_psgd", "strategy_switch"}
CONTAINER_STRATEGIES = {each.kind: each for each in FAST_STRATEGIES if each.kind in KINDS_IN_CONTAINERS}.values()
pytestmark = pytest.mark.side_by_side


def component_kinds(component: ScenarioComponent) -> Iterator[str]:
    """Return the kinds of a component and of all its parts."""
    yield component.kind
    for _, part in component:
        if isinstance(part, ScenarioComponent):
            yield from component_kinds(part)


@pytest.mark.parametrize(
    "family", ["strategy", "collective", "all_gather", "gossip_topology", *SERVER_FAMILIES.values()]
)
def test_the_trials_include_every_member(family: str) -> None:
    """A member that joins its family's table joins these trials automatically."""
    included_kinds, fast_kinds = (
        {kind for strategy in [*strategies, *STRATEGIES_WITH_PARTNERS] for kind in component_kinds(strategy)}
        for strategies in (ALL_STRATEGIES, FAST_STRATEGIES)
    )

    assert {example.kind for example in examples(family)} <= included_kinds
    assert {example.kind for example in examples("strategy")} <= fast_kinds
    assert all(fits(strategy, worker_count(strategy)) for strategy in ALL_STRATEGIES)


def test_the_trials_include_every_way_to_sum_vectors() -> None:
    """The ways send different messages: partial sums, payloads, whole numbers and their scales, or factors."""
    switches = [strategy for strategy in ALL_STRATEGIES if isinstance(strategy, StrategySwitch)]
    strategies = [*ALL_STRATEGIES, *(part for switch in switches for part in (switch.before, switch.after))]
    ways = {strategy.compress.aggregation for strategy in strategies if isinstance(strategy, AllReduce)}

    assert ways == set(get_args(Aggregation))


@pytest.mark.slow
@pytest.mark.parametrize("key", [key for key in SERVER_FAMILIES if key != "placement"])
def test_every_part_of_a_server_changes_the_result_of_a_trial(run_trial: RunTrial, tmp_path: Path, key: str) -> None:
    """Otherwise a trial would prove nothing: with ages of zero, without a straggler, or with exact numbers."""
    default_part = examples(SERVER_FAMILIES[key])[0]
    kinds_without_effect = {settings[key].kind for settings in server_settings()} - {default_part.kind}
    for trial_index, settings in enumerate(server_settings()):
        if settings[key].kind in kinds_without_effect:
            digests = [
                simulated_digest(
                    run_trial,
                    tmp_path / f"{trial_index}-{part.kind}" / "members.yaml",
                    parameter_server_strategy({**settings, key: part}),
                )
                for part in (settings[key], default_part)
            ]
            kinds_without_effect -= {settings[key].kind} if digests[0] != digests[1] else set()

    assert not kinds_without_effect


def simulated_digest(run_trial: RunTrial, scenario: Path, strategy: Strategy) -> str:
    """Return the digest of the final parameters in virtual time."""
    scenario.parent.mkdir()
    scenario.write_text(yaml.safe_dump(scenario_document(strategy)))
    return str(run_trial("simulated", scenario, "it").params_sha256)


@pytest.mark.parametrize(
    ("engine", "strategy"),
    [("local", strategy) for strategy in ALL_STRATEGIES]
    + [pytest.param("docker", strategy, marks=pytest.mark.docker) for strategy in CONTAINER_STRATEGIES],
    indirect=["engine"],
    ids=lambda value: value if isinstance(value, str) else " ".join(component_kinds(value)),
)
@pytest.mark.slow_where(strategy=[strategy for strategy in ALL_STRATEGIES if strategy not in FAST_STRATEGIES])
def test_every_member_gives_the_bits_of_virtual_time_and_sends_the_planned_bytes(
    run_trial: RunTrial, tmp_path: Path, engine: str, strategy: Strategy
) -> None:
    """Its messages can be sent between processes, and the recorded order of arrival explains the result.

    Containers run the same program on other links, so one trial of each kind of exchange suffices there.
    """
    scenario = tmp_path / "members.yaml"
    scenario.write_text(yaml.safe_dump(scenario_document(strategy)))

    trial = run_trial(engine, scenario, "it")

    assert trial.events(COORDINATOR, "run_stop")[0]["metadata"]["reason"] == "budget used"
    assert bool(trial.events(COORDINATOR, "switch_committed")) == bool(trial.plan.second_phase)
    assert parameter_digests(trial) == expected_digests(trial, run_trial, scenario)
    check_sent_bytes(trial)


@pytest.mark.parametrize("strategy", STRATEGIES_WITH_PARTNERS, ids=lambda strategy: strategy.kind)
def test_some_order_of_averages_explains_the_result_of_workers_that_choose_partners(
    run_trial: RunTrial, tmp_path: Path, engine: str, strategy: Strategy
) -> None:
    """The order is not logged, so the run is short: its result has the bits of one of all orders that are possible."""
    scenario = tmp_path / "members.yaml"
    scenario.write_text(yaml.safe_dump(scenario_document(strategy, batch=TRAIN_SAMPLES, epochs=3)))

    trial = run_trial(engine, scenario, "it")

    workers = [worker.name for worker in trial.plan.node_plans_of_role("worker")]
    (stop,) = trial.events(COORDINATOR, "run_stop")
    assert stop["metadata"]["reason"] == "budget used"
    used = sum(row["samples"] for name in workers for row in trial.rows(name, "node_steps"))
    assert trial.plan.sample_budget <= used == stop["metadata"]["samples_count"]
    assert trial.params_sha256 in possible_orders(trial).result_digests()
    check_sent_bytes(trial)


def possible_orders(trial: Any) -> AverageOrders:
    """Return the orders of averages that agree with the numbers of steps, and with the staleness of each gradient."""
    rows = [trial.rows(worker.name, "node_steps") for worker in trial.plan.node_plans_of_role("worker")]
    steps = [len(worker_rows) for worker_rows in rows]
    if isinstance(trial.plan.strategy, PartialAllReduce):
        return GroupOrders(trial.plan, steps)
    return PairOrders(trial.plan, steps, [[row["staleness"] for row in worker_rows] for worker_rows in rows])


def check_sent_bytes(trial: Any) -> None:
    """Check that every node sent the bytes of the plan, and that its network interface sent no less."""
    for node in trial.plan.bytes_per_step:
        stop = trial.value(node, "node_stop")
        least, most = bytes_bounds(trial, node)
        assert least * (1 - 1e-6) <= stop["payload_bytes_sent"] <= most * (1 + 1e-6)
        assert stop["payload_bytes_sent"] <= (stop["interface_bytes_sent"] or stop["payload_bytes_sent"])


def parameter_digests(trial: Any) -> Sequence[str]:
    """Return digests of the final parameters and, by range, at a switch from a synchronous phase."""
    at_switch = [event["value"]["params_sha256"] for event in trial.events(COORDINATOR, "switch_committed")]
    return [*(at_switch if trial.plan.is_synchronous else []), trial.params_sha256]


def expected_digests(trial: Any, run_trial: RunTrial, scenario: Path) -> Sequence[str]:
    """Return digests of virtual time for synchronous phases and for groups of all workers.

    Other trials are replayed in the recorded order of arrival.
    """
    is_order_known = trial.plan.is_synchronous or trial.plan.is_result_on_workers
    simulated = parameter_digests(run_trial("simulated", scenario, "it")) if is_order_known else []
    if trial.plan.is_result_on_workers:
        return simulated
    if trial.plan.is_synchronous and (trial.plan.second_phase is None or trial.plan.second_phase.is_synchronous):
        return simulated
    replayed = replay_trial(TrialFolder(trial.folder)).tobytes()
    return [*simulated[:-1], hashlib.sha256(replayed).hexdigest()]


def bytes_bounds(trial: Any, node: str) -> tuple[float, float]:
    """Return the bounds of a node's payload bytes: equal ones, unless workers choose their partners during the run."""
    choice = trial.plan.strategy.training_phases().first.describe_worker_exchange().partner_byte_bounds
    if choice is None:
        expected = expected_bytes(trial, node)
        return expected, expected
    workers = [worker.name for worker in trial.plan.node_plans_of_role("worker")]
    steps = [len(trial.rows(name, "node_steps")) for name in workers]
    return tuple(choice.bound_sent_bytes(steps, trial.plan.seed, trial.plan.parameters, 4)[workers.index(node)])


def expected_bytes(trial: Any, node: str) -> float:
    """Return the planned bytes before, in and after a switch; a worker that leaves takes part in one more exchange."""
    steps = {
        node_plan.name: [row["step"] for row in trial.rows(node_plan.name, "node_steps")]
        for node_plan in trial.plan.node_plans_of_role("worker")
    }
    if trial.plan.second_phase is None:
        counts = in_whole_periods({name: len(rows) for name, rows in steps.items()}, trial.plan.exchange_period)
        evaluation_bytes = trial.plan.evaluation_bytes.get(node, 0) * len(trial.events(COORDINATOR, "eval_metrics"))
        return payload_bytes_in_steps(trial.plan, node, counts) + evaluation_bytes
    switch = trial.value(COORDINATOR, "switch_committed")
    before = {name: sum(step < switch["step"] for step in worker_steps) for name, worker_steps in steps.items()}
    computing = [name for name, share in zip(steps, trial.plan.second_phase.worker_weights, strict=True) if share]
    after = {name: len(steps[name]) - before[name] for name in computing}
    model_transfer_bytes = trial.plan.second_phase.model_transfer_bytes[node] if switch["loaded"] else 0
    return (
        payload_bytes_in_steps(trial.plan, node, before)
        + model_transfer_bytes
        + payload_bytes_in_steps(
            trial.plan.second_phase, node, in_whole_periods(after, trial.plan.second_phase.exchange_period)
        )
    )


def in_whole_periods(steps: dict[str, int], period: int) -> dict[str, int]:
    """Return the steps of each worker, rounded up to whole periods: the last step ends with an exchange."""
    return {name: ceil(count / period) * period for name, count in steps.items()}


def payload_bytes_in_steps(phase: Any, node: str, steps: dict[str, int]) -> float:
    """Return a node's payload bytes under one strategy: for its own steps, and for those of workers that it serves."""
    reply_bytes = phase.reply_bytes_per_step.get(node, 0 if node in steps else phase.bytes_per_step[node])
    other_steps = [count for name, count in steps.items() if name != node]
    own_bytes = (phase.bytes_per_step[node] - reply_bytes) * steps.get(node, 0)
    return float(own_bytes + (reply_bytes * sum(other_steps) / len(other_steps) if other_steps else 0))


def worker_count(strategy: Strategy) -> int:
    """Return the number of workers, or one where the strategy allows no more."""
    return WORKERS if fits(strategy, WORKERS) else 1


def scenario_document(strategy: Strategy, **workload: Any) -> dict[str, Any]:
    """Return a small scenario in which a loss is computed before the end; one worker has a slow device."""
    links = {"uplink": "100mbit", "downlink": "100mbit"}
    return {
        "name": "members",
        "workload": {
            "dataset": {"kind": "digits"},
            "model": {"kind": "linear"},
            "optimiser": {"kind": "momentum", "rate": 0.05},
            "batch": 128,
            "epochs": 2,
            "stop": "budget",
            **workload,
        },
        "cluster": {
            "workers": worker_count(strategy),
            "worker": {"throughput": "20000/s", **links},
            "server": links,
            "groups": [{"name": "slow", "ranks": [0], "speed": 0.25}],
        },
        "strategies": {"it": strategy.model_dump(mode="json")},
        "baseline": False,
    }
