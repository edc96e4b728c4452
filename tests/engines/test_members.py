"""Every member that stands in a table of `tests/every` does in processes and containers what it does in virtual time.

A trial of containers takes some seconds, so one trial shows several members: a server has one of each of its axes, and
two collectives share a run by a switch from one to the other. A law holds that nobody is left out.
"""

import hashlib
import runpy
from collections.abc import Callable, Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import yaml
from replay.trial import replay_trial
from strategy_contexts import fits

from analysis.reading.run_folder import TrialFolder
from services.plan import COORDINATOR
from services.schema.component import ScenarioComponent
from services.strategies import AllReduce, Easgd, LocalSgd, ParameterServer, Strategy, StrategySwitch
from services.strategies.switching.rules import AtStepRule, PlateauRule

RunTrial: TypeAlias = Callable[..., Any]

EVERY = Path(__file__).parents[1] / "every"
WORKERS = 4  # even, so that groups of two are whole, and not a kind's own number
FAMILIES = {  # of a server, by key
    "synchrony": "synchroniser",
    "placement": "placement",
    "staleness": "staleness",
    "compensation": "compensation",
    "compress": "compressor",
}


def examples(family: str) -> list[Any]:
    """A family's table, which a new member has to join."""
    table = runpy.run_path(str(EVERY / f"test_every_{family}.py"))["EXAMPLES"]
    return [row[0] if isinstance(row, tuple) else row for row in table]


def of_each_kind(family: str) -> list[Any]:
    """The last of each kind in a family's table: the first is often the one that changes nothing."""
    return list({each.kind: each for each in examples(family)}.values())


def collectives() -> Iterator[Strategy]:
    """Two to a trial: one trains until half of the budget is used, the other one from there on."""
    found = [AllReduce.model_validate({"collective": met(each)}) for each in of_each_kind("collective")]
    for one, other in zip(found[::2], [*found[1::2], found[0]], strict=False):
        yield StrategySwitch(before=one, after=other, when=AtStepRule(fraction=0.5))


def met(collective: ScenarioComponent) -> ScenarioComponent:
    """With the tokens that it sends for long vectors alone, if it sends any."""
    return collective.model_copy(update={"rendezvous": True}) if hasattr(collective, "rendezvous") else collective


def servers() -> Iterator[dict[str, ScenarioComponent]]:
    """One member of each axis to a trial; shorter axes begin again.

    That of weights goes by twos, or those that matter would stand beside those who leave nothing stale.
    """
    axes = {key: of_each_kind(family) for key, family in FAMILIES.items()}
    for number in range(max(map(len, axes.values()))):
        turns = {key: 2 * (number + 1) if key == "staleness" else number for key in axes}
        yield {key: members[turns[key] % len(members)] for key, members in axes.items()}


def served(parts: dict[str, Any]) -> Strategy:
    """By itself, or after a ring where it takes workers that have been something else before."""
    rate = "as_given" if parts["staleness"].divides_learning_rate else "per_sample"
    served = ParameterServer.model_validate({**parts, "rate": rate})
    if not served.placement.node_count_conflict(WORKERS, served.servers):
        return served
    rate = "keep" if served.staleness.divides_learning_rate else "keep_per_sample"
    after = served.model_copy(update={"rate": "per_sample"})
    return StrategySwitch(after=after, when=AtStepRule(fraction=0.5), rate=rate)


def others() -> Iterator[Strategy]:
    """Every example of a strategy that is neither of these alone."""
    for each in examples("strategy"):
        if not isinstance(each, AllReduce | ParameterServer):
            yield at_once(each) if isinstance(each, StrategySwitch) else seldom(each)


def at_once(strategy: StrategySwitch) -> StrategySwitch:
    """A rule that looks at losses is told to fire at the first."""
    rule = strategy.when
    return strategy.model_copy(update={"when": PlateauRule(force_at=1) if isinstance(rule, PlateauRule) else rule})


def seldom(strategy: Strategy) -> Strategy:
    """Whoever may exchange now and then does."""
    return strategy.model_copy(update={"period": 2}) if isinstance(strategy, LocalSgd | Easgd) else strategy


MEMBERS = [*collectives(), *map(served, servers()), *others()]
FEW = [next(collectives()), *map(served, list(servers())[:2]), *{each.kind: each for each in others()}.values()]


def inside(component: ScenarioComponent) -> Iterator[str]:
    """The kinds of a component and of everything that it is made of."""
    yield component.kind
    for _, part in component:
        if isinstance(part, ScenarioComponent):
            yield from inside(part)


@pytest.mark.parametrize("family", ["strategy", "collective", *FAMILIES.values()])
def test_nobody_is_left_out_of_the_trials(family: str) -> None:
    """A member that joins its family's table joins these trials without a word."""
    shown = {kind for strategy in MEMBERS for kind in inside(strategy)}

    assert {each.kind for each in examples(family)} <= shown
    assert {each.kind for each in examples("strategy")} <= {kind for strategy in FEW for kind in inside(strategy)}
    assert all(fits(strategy, workers(strategy)) for strategy in MEMBERS)


@pytest.mark.slow
@pytest.mark.parametrize("key", [key for key in FAMILIES if key != "placement"])
def test_every_part_of_a_server_makes_a_difference_in_its_trials(run_trial: RunTrial, tmp_path: Path, key: str) -> None:
    """One that has nothing to do in any would show nothing: ages of zero, no straggler, numbers that are exact."""
    plain = examples(FAMILIES[key])[0]
    idle = {each.kind for each in examples(FAMILIES[key])} - {plain.kind}
    for number, parts in enumerate(servers()):
        if parts[key].kind in idle:
            ends = [
                trained(run_trial, tmp_path / f"{number}-{part.kind}.yaml", served({**parts, key: part}))
                for part in (parts[key], plain)
            ]
            idle -= {parts[key].kind} if ends[0] != ends[1] else set()

    assert not idle


def trained(run_trial: RunTrial, scenario: Path, strategy: Strategy) -> str:
    """Digest of the parameters at the end, in virtual time."""
    scenario.write_text(yaml.safe_dump(document(strategy)))
    return str(run_trial("simulated", scenario, "it").params_sha256)


@pytest.mark.parametrize("strategy", MEMBERS, ids=lambda each: " ".join(inside(each)))
@pytest.mark.slow_where(strategy=[each for each in MEMBERS if each not in FEW])
@pytest.mark.exact
def test_every_member_gives_the_bits_of_virtual_time_and_sends_the_bytes_of_its_routes(
    run_trial: RunTrial, tmp_path: Path, engine: str, strategy: Strategy
) -> None:
    """Its messages survive being sent for once, and whatever the order in which they came, it explains the result."""
    scenario = tmp_path / "members.yaml"
    scenario.write_text(yaml.safe_dump(document(strategy)))

    done = run_trial(engine, scenario, "it")

    assert done.events(COORDINATOR, "run_stop")[0]["metadata"]["reason"] == "budget used"
    assert bool(done.events(COORDINATOR, "switch_committed")) == bool(done.plan.second_phase)
    assert bits(done) == expected_bits(done, run_trial, scenario)
    for node in done.plan.bytes_per_step:
        stop = done.value(node, "node_stop")
        assert stop["payload_bytes_sent"] == pytest.approx(expected_bytes(done, node))
        assert stop["payload_bytes_sent"] <= (stop["interface_bytes_sent"] or stop["payload_bytes_sent"])


def bits(done: Any) -> Sequence[str]:
    """Digests of the parameters at the end, and at a switch: by range, where lockstep came before."""
    at_switch = [event["value"]["params_sha256"] for event in done.events(COORDINATOR, "switch_committed")]
    return [*(at_switch if done.plan.is_synchronous else []), done.params_sha256]


def expected_bits(done: Any, run_trial: RunTrial, scenario: Path) -> Sequence[str]:
    """Lockstep has the bits of virtual time; what comes without it is computed again from the order of arrival."""
    simulated = bits(run_trial("simulated", scenario, "it")) if done.plan.is_synchronous else []
    if done.plan.is_synchronous and (done.plan.second_phase is None or done.plan.second_phase.is_synchronous):
        return simulated
    replayed = replay_trial(TrialFolder(done.folder)).tobytes()
    return [*simulated[:-1], hashlib.sha256(replayed).hexdigest()]


def expected_bytes(done: Any, node: str) -> float:
    """By the plan's routes: before the switch if there is one, in it, and after it; who leaves exchanges once more."""
    steps = {
        each.name: [row["step"] for row in done.rows(each.name, "node_steps")]
        for each in done.plan.node_plans_of_role("worker")
    }
    every = done.plan.exchange_period
    if done.plan.second_phase is None:
        return in_steps(done.plan, node, {name: ceil(len(own) / every) * every for name, own in steps.items()})
    switch = done.value(COORDINATOR, "switch_committed")
    before = {name: sum(step < switch["step"] for step in own) for name, own in steps.items()}
    computing = [name for name, share in zip(steps, done.plan.second_phase.worker_weights, strict=True) if share]
    after = {name: len(steps[name]) - before[name] for name in computing}
    moved = done.plan.second_phase.hand_over_bytes[node] if switch["loaded"] else 0
    return in_steps(done.plan, node, before) + moved + in_steps(done.plan.second_phase, node, after)


def in_steps(part: Any, node: str, steps: dict[str, int]) -> float:
    """Payload bytes of a node under one strategy: for its own steps, and for those of others whom it serves."""
    served = part.reply_bytes_per_step.get(node, 0 if node in steps else part.bytes_per_step[node])
    others = [count for name, count in steps.items() if name != node]
    own = (part.bytes_per_step[node] - served) * steps.get(node, 0)
    return float(own + (served * sum(others) / len(others) if others else 0))


def workers(strategy: Strategy) -> int:
    """One where there may be no more."""
    return WORKERS if fits(strategy, WORKERS) else 1


def document(strategy: Strategy) -> dict[str, Any]:
    """A small scenario, long enough for a loss to be looked at before its end; a slow device is late."""
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
        },
        "cluster": {
            "workers": workers(strategy),
            "worker": {"throughput": "20000/s", **links},
            "server": links,
            "groups": [{"name": "slow", "ranks": [0], "speed": 0.25}],
        },
        "strategies": {"it": strategy.model_dump(mode="json")},
        "baseline": False,
    }
