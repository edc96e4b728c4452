"""Drawing of a fault schedule from one integer seed."""

from collections.abc import Mapping
from random import Random

from pydantic import JsonValue, ValidationError

from ensayo.fault_search.event_kinds import EventContext, draw_event
from ensayo.fault_search.fault_schedule import FaultSchedule
from ensayo.fault_search.message_faults import MessageFaultSettings
from ensayo.fault_search.simulation import simulate_without_faults
from ensayo.fault_search.strategy_table import StrategyDocument
from services.schema.errors import UserError
from services.schema.units import Duration

WORKER_COUNTS = (2, 3, 4, 5)
STEP_COUNTS = (6, 8, 12, 16)
CHECKPOINTS: list[JsonValue] = [  # a step takes about 6 ms
    {"steps": 2},
    {"steps": 4},
    {"steps": 6},
    {"interval": "2ms"},
    {"interval": "10ms"},
    {"interval": "25ms"},
]
MAX_EVENTS = 5
MAX_SIZE_DRAWS = 100
UNEVEN_SHARE = 0.25  # share of schedules with unequal shares of a batch
RECOVERY_SHARE = 0.5  # share of schedules for which a policy for lost nodes is drawn
UNDISTURBED_SHARE = 0.2  # share of schedules that disturb no single messages and calls


def draw_schedule(seed: int, strategies: Mapping[str, StrategyDocument]) -> FaultSchedule:
    """Return the fault schedule of a seed; a pure function of the arguments.

    Args:
        seed: any integer.
        strategies: label -> strategy, as a scenario declares it.

    Raises:
        UserError: a drawn strategy allows none of the drawn cluster sizes.
    """
    rng = Random(f"fault schedule {seed}")
    label = rng.choice(sorted(strategies))
    calm = _draw_recovery(_draw_trial(seed, label, strategies[label], rng), rng)
    result = simulate_without_faults(calm)
    context = EventContext(result.worker_names, result.server_names, calm.steps, result.end_s)
    may_lose_nodes = bool(calm.recovery)
    writes_checkpoints = "checkpoint" in calm.recovery
    events = tuple(
        draw_event(rng, context, may_lose_nodes=may_lose_nodes, writes_checkpoints=writes_checkpoints)
        for _ in range(rng.randint(0, MAX_EVENTS))
    )
    return calm.model_copy(update={"events": events, "messages": _draw_message_faults(seed, rng)})


def _draw_trial(seed: int, label: str, strategy: StrategyDocument, rng: Random) -> FaultSchedule:
    """Return a trial without faults, of a size that the strategy allows."""
    cause = ""
    for _ in range(MAX_SIZE_DRAWS):
        workers = 1 if strategy["kind"] == "none" else rng.choice(WORKER_COUNTS)
        steps, uneven = rng.choice(STEP_COUNTS), rng.random() < UNEVEN_SHARE
        schedule = FaultSchedule(seed=seed, strategy=strategy, workers=workers, steps=steps, uneven=uneven)
        try:
            schedule.make_plan()
        except (ValueError, ValidationError) as error:
            cause = str(error)
            continue
        return schedule
    raise UserError(f"strategy {label} allows none of {WORKER_COUNTS} workers with {STEP_COUNTS} steps: {cause}")


def _draw_recovery(schedule: FaultSchedule, rng: Random) -> FaultSchedule:
    """Return the schedule with a policy for lost nodes, if one is drawn that its strategy allows."""
    if rng.random() >= RECOVERY_SHARE:
        return schedule
    policy = rng.choice(["continue", "rejoin", "restore"])
    times = {"heartbeat_timeout": rng.choice(["20ms", "100ms"]), "restart_delay": rng.choice(["5ms", "50ms"])}
    checkpoint = {"checkpoint": rng.choice(CHECKPOINTS)} if policy == "restore" else {}
    recovering = schedule.model_copy(update={"recovery": {"on_failure": policy, **times, **checkpoint}})
    try:
        recovering.make_plan()
    except (ValueError, ValidationError):
        return schedule
    return recovering


def _draw_message_faults(seed: int, rng: Random) -> MessageFaultSettings | None:
    if rng.random() < UNDISTURBED_SHARE:
        return None
    return MessageFaultSettings(
        seed=seed,
        delayed=round(rng.uniform(0, 0.5), 2),
        longest_delay=Duration(rng.choice(["1ms", "10ms", "100ms"])),
        duplicated=rng.choice([0.0, 0.1, 0.5]),
        keeps_order=rng.choice([True, False]),
        delayed_calls=rng.choice([0.0, 0.1, 0.5]),
    )
