"""Every strategy through one battery: what it says before a run. What it does stands in `tests/training`."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from services.optimisers import Momentum
from services.placement import Colocated, Spare
from services.strategies import (
    AllReduce,
    Alone,
    AnyStrategy,
    Easgd,
    ParameterServer,
    Strategy,
    StrategySwitch,
    Switching,
    SyncSwitch,
)
from services.strategies.base import Cost
from services.strategies.update_rules import Contribution, ElasticRule, pull
from services.switch_rules import At
from services.synchronisers import Asp, Backup, Bsp, Gba, Ssp

EXAMPLES: list[Strategy] = [
    Alone(),
    AllReduce(),
    ParameterServer(),
    ParameterServer(servers=3, synchrony=Bsp()),
    ParameterServer(synchrony=Asp()),
    ParameterServer(servers=2, synchrony=Asp(), rate="as_given"),
    ParameterServer(servers=2, synchrony=Ssp(staleness=2)),
    ParameterServer(synchrony=Backup(backups=0)),
    ParameterServer(synchrony=Gba()),
    ParameterServer(placement=Colocated()),
    ParameterServer(placement=Colocated(), synchrony=Asp()),
    ParameterServer(servers=1, placement=Spare()),
    Easgd(period=1),
    Easgd(period=1, synchrony=Asp(), servers=3),
    StrategySwitch(),
    StrategySwitch(before=ParameterServer(synchrony=Asp()), after=AllReduce(), when=At(fraction=0.5)),
    StrategySwitch(after=ParameterServer(placement=Colocated(), synchrony=Asp())),
    SyncSwitch(servers=2),
]

every_strategy = pytest.mark.parametrize("strategy", EXAMPLES, ids=repr)
workers_and_entries = given(workers=st.integers(1, 17), entries=st.integers(1, 5000))


def some(strategy: Strategy, workers: int) -> int:
    """So many workers, or one if the strategy takes no more."""
    return 1 if strategy.refusal(workers) else workers


def resting(strategy: Strategy) -> bool:
    """Whether servers stand by until a switch."""
    return isinstance(strategy, Switching) and not strategy.first.server_count


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
    assert strategy.refusal(1) is None


def test_training_alone_is_for_one() -> None:
    """Two workers that never exchange anything train two models."""
    assert "one worker" in (Alone().refusal(2) or "")


@every_strategy
@workers_and_entries
def test_what_is_sent_is_said_for_every_node_and_grows_with_the_number_format(
    strategy: Strategy, workers: int, entries: int
) -> None:
    """Counts are of payload: fp64 weighs twice as much as fp32, exactly."""
    workers = some(strategy, workers)

    narrow, wide = (strategy.bytes_per_step(workers, entries, dtype) for dtype in ("float32", "float64"))

    assert (len(narrow.workers), len(narrow.servers)) == (workers, strategy.server_count)
    assert wide.workers == tuple(2 * count for count in narrow.workers)
    assert wide.servers == tuple(2 * count for count in narrow.servers)


@every_strategy
@workers_and_entries
def test_servers_answer_with_as_much_as_they_were_sent(strategy: Strategy, workers: int, entries: int) -> None:
    """Every gradient that is pushed is answered by parameters of the same size."""
    workers = some(strategy, workers)

    sent = strategy.bytes_per_step(workers, entries, "float32")

    if strategy.server_count and not resting(strategy):
        pushed = sum(sent.workers) - sum(sent.answers)
        inside = 4 * entries * workers - pushed  # what workers that serve send to themselves
        assert sum(sent.servers) + sum(sent.answers) == pushed
        assert inside == 0 or isinstance(strategy.placement, Spare)


@every_strategy
@given(workers=st.integers(1, 16), slower=st.floats(1, 10))
def test_a_slower_network_or_worker_never_makes_a_step_shorter(strategy: Strategy, workers: int, slower: float) -> None:
    """Whatever the formula."""
    workers = some(strategy, workers)
    names = tuple(f"worker-{rank}" for rank in range(workers))
    servers = tuple(f"server-{rank}" for rank in range(strategy.server_count))
    links = dict.fromkeys((*names, *servers), 1e-7)
    base = Cost(
        workers=names,
        servers=servers,
        entries=250_000,
        dtype="float32",
        alpha_s=1e-4,
        uplinks_s=links,
        downlinks_s=links,
        compute_s=0.1,
    )

    before = strategy.predict(base)

    assert before.exchange_s >= 0
    for field in ("alpha_s", "uplinks_s", "downlinks_s", "compute_s"):
        given = getattr(base, field)
        slow = given * slower if isinstance(given, float) else {name: each * slower for name, each in given.items()}
        changed = base.model_copy(update={field: slow})
        assert strategy.predict(changed).step_s >= before.step_s * (1 - 1e-12)  # rounding apart


@every_strategy
@given(workers=st.integers(1, 16))
def test_an_optimiser_keeps_all_but_its_rate(strategy: Strategy, workers: int) -> None:
    """A strategy may scale the rate by how much goes into one update; momentum is the user's."""
    given_one = Momentum(rate=0.1, momentum=0.7, nesterov=True)

    used = strategy.optimiser(given_one, workers)

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
    rule = ElasticRule(centre, alpha)
    rounds = [range(len(workers))] if together else [[rank] for rank in range(len(workers))]

    for ranks in rounds:
        rule.update([Contribution(rank, 1, 0, workers[rank]) for rank in ranks])
        for rank in ranks:
            workers[rank] = workers[rank] - pull(alpha, workers[rank], rule.answer(rank))

    assert sum(workers) + rule.params == pytest.approx(sum(params) + 1.0, abs=1e-9)
