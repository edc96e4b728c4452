"""Tests of the search for fault schedules: fixed seeds, planted bugs, and the smaller schedules of failures."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any, get_args

import pytest
from planted_bugs import PLANTED_BUGS, apply_duplicates, planted

from ensayo.fault_search import simulation
from ensayo.fault_search.event_kinds import EVENT_KINDS
from ensayo.fault_search.fault_schedule import FaultSchedule
from ensayo.fault_search.invariants import Violation, find_violation
from ensayo.fault_search.invariants.ends import find_missing_end
from ensayo.fault_search.invariants.pushes import find_repeated_or_lost_pushes
from ensayo.fault_search.message_faults import MessageFaultSettings
from ensayo.fault_search.schedule_draw import draw_schedule
from ensayo.fault_search.search import search_seeds
from ensayo.fault_search.shrinking import shrink_schedule
from ensayo.fault_search.strategy_table import STRATEGY_TABLE
from services.plan import COORDINATOR
from services.runtime.transport import Message
from services.schema.units import Duration
from services.strategies import TrainingStrategy
from services.transport.mailbox import Mailbox

pytestmark = pytest.mark.without_nodes

FIXED_SEEDS = [range(start, start + 20) for start in range(0, 200, 20)]


@pytest.mark.parametrize("seeds", FIXED_SEEDS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_fixed_seeds_violate_no_invariant(seeds: range) -> None:
    """Training is correct under these faults; `make fuzz` searches among many more."""
    assert search_seeds(seeds, STRATEGY_TABLE, single_process=True).failures == ()


@pytest.mark.parametrize("plant_bug", PLANTED_BUGS, ids=lambda plant_bug: plant_bug.__name__)
def test_search_finds_planted_bug(plant_bug: Callable[[pytest.MonkeyPatch], None]) -> None:
    """A search that finds no planted bug would find no other bug of its kind; 1,000 seeds take a minute."""
    with planted(plant_bug):
        seed, violation = _first_violation(1000)
        shrunk = shrink_schedule(draw_schedule(seed, STRATEGY_TABLE), violation)
        found_again = find_violation(shrunk)

    assert found_again is not None
    assert found_again.invariant == violation.invariant
    with planted(lambda patch: None):
        assert find_violation(shrunk) is None  # the bug is the cause, not the size of the smaller schedule


def _first_violation(seed_count: int) -> tuple[int, Violation]:
    violations = ((seed, find_violation(draw_schedule(seed, STRATEGY_TABLE))) for seed in range(seed_count))
    return next((seed, violation) for seed, violation in violations if violation is not None)


def test_shrunk_schedule_has_only_the_faults_that_the_violation_needs() -> None:
    """A reader of a failure must not study events that do not matter."""
    schedule = FaultSchedule(
        seed=1,
        strategy=STRATEGY_TABLE["server_bsp"],
        workers=4,
        steps=12,
        events=(
            {"kind": "pause", "of": ["worker-1"], "at": {"time": "10ms"}, "lasts": "5ms"},
            {"kind": "slowdown", "of": ["worker-3"], "at": {"step": 3}, "factor": 2},
        ),
        messages=MessageFaultSettings(seed=1, delayed=0.4, duplicated=0.5, keeps_order=False),
    )
    with planted(apply_duplicates):
        violation = find_violation(schedule)
        assert violation is not None
        shrunk = shrink_schedule(schedule, violation)

    assert shrunk.events == ()
    assert (shrunk.workers, shrunk.steps) < (4, 12)
    assert shrunk.messages is not None
    assert (shrunk.messages.delayed, shrunk.messages.duplicated, shrunk.messages.keeps_order) == (0.0, 0.5, True)


def test_seed_gives_the_same_schedule_and_the_same_logs() -> None:
    """A failing seed would otherwise be of no use."""
    for seed in range(5):
        schedule = draw_schedule(seed, STRATEGY_TABLE)
        simulation._simulate_by_json.cache_clear()
        assert draw_schedule(seed, STRATEGY_TABLE) == schedule
        assert simulation.simulate_schedule(schedule).digest == simulation.simulate_schedule(schedule).digest


def test_different_faults_give_different_logs() -> None:
    """If faults did not change the logs, the invariants would hold for lack of faults."""
    plain = FaultSchedule(seed=0, strategy=STRATEGY_TABLE["server_asp"], workers=3, steps=6)
    delayed = plain.model_copy(
        update={"messages": MessageFaultSettings(seed=0, delayed=0.5, longest_delay=Duration("20ms"))}
    )
    paused = plain.model_copy(
        update={"events": ({"kind": "pause", "of": ["worker-1"], "at": {"step": 2}, "lasts": "80ms"},)}
    )

    assert len({simulation.simulate_schedule(schedule).digest for schedule in (plain, delayed, paused)}) == 3


def test_two_servers_that_see_pushes_at_different_times_do_not_block_each_others_workers() -> None:
    """In this schedule, each of two `dssp` servers made one worker wait for a push of the other one."""
    schedule = FaultSchedule(
        seed=211,
        strategy={**STRATEGY_TABLE["server_dssp"], "servers": 2},
        workers=4,
        steps=12,
        uneven=True,
        recovery={"on_failure": "continue", "heartbeat_timeout": "100ms"},
        messages=MessageFaultSettings(seed=211, delayed=0.4, longest_delay=Duration("10ms")),
    )

    assert simulation.simulate_schedule(schedule).error is None


@pytest.mark.parametrize(
    ("strategy", "recovery", "lost"),
    [
        ("all_reduce_ring", {"on_failure": "continue", "checkpoint": {"steps": 2}}, "worker-0"),
        ("all_reduce_ring", {"on_failure": "rejoin", "restart_delay": "1ms"}, "worker-1"),
        ("server_bsp", {"on_failure": "rejoin", "restart_delay": "5ms", "checkpoint": {"steps": 2}}, "worker-2"),
        ("server_bsp", {"on_failure": "restore", "restart_delay": "5ms", "checkpoint": {"steps": 2}}, "worker-1"),
        ("server_bsp", {"on_failure": "restore", "restart_delay": "1ms", "checkpoint": {"steps": 2}}, "server-0"),
    ],
)
def test_node_lost_during_the_start_does_not_fail_the_trial(strategy: str, recovery: dict[str, Any], lost: str) -> None:
    """Where calls take time, the membership may change before all nodes know the first one, or where to begin.

    Workers then kept the connections and ranks of the first membership, or had no state to continue from.
    """
    evidence = []
    for number in range(20):
        schedule = FaultSchedule(
            seed=number,
            strategy=STRATEGY_TABLE[strategy],
            workers=3,
            steps=4,
            recovery={"heartbeat_timeout": "20ms", **recovery},
            events=({"kind": "kill", "of": [lost], "at": {"time": f"{0.1 + number * 0.2:.1f}ms"}},),
            messages=MessageFaultSettings(seed=number, delayed_calls=0.9),
        )

        assert find_violation(schedule) is None
        evidence.append(simulation.simulate_schedule(schedule))
    assert [each.error for each in evidence] == [None] * 20
    assert any(each.has_changed_workers for each in evidence)


def test_worker_that_begins_after_the_loss_of_the_first_one_evaluates() -> None:
    """Without an evaluation worker, all evaluations but the last were missing, and nothing said so."""
    schedule = FaultSchedule(
        seed=23,
        strategy=STRATEGY_TABLE["server_asp"],
        workers=3,
        steps=8,
        recovery={"on_failure": "continue", "heartbeat_timeout": "20ms"},
        events=(
            {"kind": "kill", "of": ["worker-0"], "at": {"time": "0.005ms"}},
            {"kind": "stop", "of": ["worker-1"], "at": {"time": "0.001ms"}, "lasts": "23.5ms"},
        ),
    )
    counts = set()
    for seed in range(23, 43):
        faults = MessageFaultSettings(seed=seed, delayed_calls=0.7)
        evidence = simulation.simulate_schedule(schedule.model_copy(update={"messages": faults}))
        counts.add(len(evidence.events[COORDINATOR]["eval_metrics"]))

    assert min(counts) > 1


def test_worker_that_goes_back_to_the_beginning_forgets_its_losses_and_steps() -> None:
    """The logged training loss was a mean over discarded steps, too, when a trial was restored to its first step."""
    schedule = FaultSchedule(
        seed=1,
        strategy=STRATEGY_TABLE["all_reduce_ring"],
        workers=3,
        steps=8,
        recovery={"on_failure": "restore", "heartbeat_timeout": "20ms", "checkpoint": {"steps": 4}},
    )
    kill: dict[str, Any] = {"kind": "kill", "of": ["worker-1"], "at": {"step": 3}}

    def training_losses(faulty: FaultSchedule) -> list[float]:
        return [event["value"] for event in simulation.simulate_schedule(faulty).events[COORDINATOR]["train_loss"]]

    assert training_losses(schedule.model_copy(update={"events": (kill,)})) == training_losses(schedule)


def test_report_of_an_evicted_worker_does_not_fail_the_trial() -> None:
    """Its report reached the coordinator before the heartbeat by which it learns that training goes on without it."""
    schedule = FaultSchedule(
        seed=7965,
        strategy={"kind": "easgd", "period": 2},
        workers=3,
        steps=8,
        recovery={"on_failure": "continue", "heartbeat_timeout": "20ms"},
        events=({"kind": "stop", "of": ["worker-2"], "at": {"time": "35.47ms"}, "lasts": "362.96ms"},),
        messages=MessageFaultSettings(
            seed=7965,
            delayed=0.45,
            longest_delay=Duration("10ms"),
            delayed_calls=0.5,
            longest_call_delay=Duration("3ms"),
        ),
    )

    assert find_violation(schedule) is None


def test_steps_that_a_straggler_skips_at_a_switch_are_no_lost_pushes() -> None:
    """The straggler computes nothing for these steps, because the synchroniser `elastic` does not wait for it."""
    schedule = FaultSchedule(
        seed=7726,
        strategy={"kind": "sync_switch", "fraction": 0.5, "stragglers": "elastic"},
        workers=3,
        steps=16,
        events=({"kind": "slowdown", "of": ["worker-0"], "at": {"time": "12.17ms"}, "factor": 6.39},),
        messages=MessageFaultSettings(
            seed=7726,
            delayed=0.41,
            longest_delay=Duration("100ms"),
            duplicated=0.1,
            delayed_calls=0.5,
            longest_call_delay=Duration("3ms"),
        ),
    )

    assert find_violation(schedule) is None
    evidence = simulation.simulate_schedule(schedule)
    for event in evidence.events["server-0"]["shard_updates"]:
        worker, step = (event["value"]["columns"].index(name) for name in ("worker", "push_step"))
        event["value"]["rows"] = [row for row in event["value"]["rows"] if (row[worker], row[step]) != (1, 5)]
    assert "server-0 lacks pushes of worker-1 for steps [5]" in list(find_repeated_or_lost_pushes(evidence))


def test_partition_longer_than_the_step_timeout_may_end_a_trial() -> None:
    """This is the policy today: nodes give up after the step timeout."""
    schedule = FaultSchedule(
        seed=1,
        strategy=STRATEGY_TABLE["all_reduce_ring"],
        workers=3,
        steps=6,
        events=({"kind": "partition", "apart": ["worker-1"], "at": {"step": 2}, "lasts": "10min"},),
    )

    assert simulation.simulate_schedule(schedule).error is not None
    assert find_violation(schedule) is None


@pytest.mark.parametrize("step", [1, 3, 5])
def test_trial_that_gives_up_prints_no_error_twice(step: int, caplog: pytest.LogCaptureFixture) -> None:
    """The error of the trial is that of its first node; a second traceback of the same cause only confuses."""
    event: dict[str, Any] = {"kind": "pause", "of": ["worker-1"], "at": {"step": step}, "lasts": "10min"}
    schedule = FaultSchedule(seed=1, strategy=STRATEGY_TABLE["ad_psgd"], workers=2, steps=8, events=(event,))
    simulation.simulate_schedule(schedule)
    gc.collect()  # Python reports an exception that was never retrieved when its task is collected

    assert [record.getMessage() for record in caplog.records if "never retrieved" in record.getMessage()] == []


def test_lost_message_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """No event of the schedule explains why the trial gives up."""
    deliver = Mailbox.deliver

    def lose_third_step(mailbox: Mailbox, source: str, message: Message) -> None:
        if message.tag.step != 3:
            deliver(mailbox, source, message)

    monkeypatch.setattr(Mailbox, "deliver", lose_third_step)
    schedule = FaultSchedule(seed=1, strategy=STRATEGY_TABLE["all_reduce_ring"], workers=2, steps=6)

    violation = find_violation(schedule)
    assert violation is not None
    assert violation.invariant == "trial_ends"
    assert "events do not last for the step timeout" in violation.explanation


def test_trial_that_never_ends_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that takes no virtual time is no deadlock, so only the host's clock shows it."""

    async def run_for_ever() -> None:
        while True:  # noqa: ASYNC110 - an event would wait
            await asyncio.sleep(0)

    monkeypatch.setattr(simulation, "simulate_trial", lambda *_, **__: asyncio.run(run_for_ever()))
    monkeypatch.setattr(simulation, "WALL_LIMIT_S", 0.2)
    evidence = simulation.simulate_schedule(FaultSchedule(seed=1, strategy=STRATEGY_TABLE["none"], workers=1, steps=2))

    (explanation,) = find_missing_end(evidence)
    assert explanation.startswith("the trial hangs")


def test_table_has_every_kind_of_strategy() -> None:
    """A strategy that is not in the table is not searched."""
    kinds = {strategy.model_fields["kind"].default for strategy in get_args(TrainingStrategy)}
    assert {document["kind"] for document in STRATEGY_TABLE.values()} == kinds


def test_search_draws_every_kind_of_event() -> None:
    """A kind that is never drawn finds nothing."""
    schedules = [draw_schedule(seed, {"ring": STRATEGY_TABLE["all_reduce_ring"]}) for seed in range(50)]

    assert {event["kind"] for schedule in schedules for event in schedule.events} == set(EVENT_KINDS)


def test_an_error_beside_a_running_exchange_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """The exchange of DiLoCo fails too; asyncio would print its error a second time."""
    pause = {"kind": "pause", "of": ["worker-0", "worker-1", "worker-2"], "at": {"step": 4}, "lasts": "10min"}
    strategy = {"kind": "diloco", "period": 4, "fragments": 2, "overlap_steps": 1}
    document = {"seed": 19, "strategy": strategy, "workers": 3, "steps": 16, "uneven": False, "events": [pause]}
    schedule = FaultSchedule.model_validate(document)

    error = repr(simulation.simulate_schedule(schedule).error)
    gc.collect()

    assert "DeadlineExceeded" in error
    assert not [record.getMessage() for record in caplog.records if record.name == "asyncio"]
