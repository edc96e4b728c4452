"""Fault schedule: the strategy, the cluster size and the disturbances of one simulated trial."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Self

from pydantic import Field, JsonValue, PositiveInt, TypeAdapter

from ensayo.fault_search.event_kinds import EVENT_KINDS, EventDocument
from ensayo.fault_search.message_faults import MessageFaultSettings
from services.cluster.addresses import DummyAddresses
from services.cluster.events import AnyDeclaredEvent, plan_event_occurrences
from services.plan import TrainingPlan, make_plan
from services.scenario.scenario import Scenario
from services.schema.component import FrozenRecord
from services.schema.errors import UserError

STEP_TIMEOUT = "60s"  # of a message; the longest events last longer
RUN_TIMEOUT = "1h"
# So small that gradients of all steps equal those of the initial parameters, up to the square of the rate: the loss
# then changes by the sum of the applied gradients, whatever their order.
RATE = 1e-6
SAMPLES_PER_WORKER = 4  # in a step
TRIAL_SEED = 1
STRATEGY_ADAPTER: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])
EVENTS_ADAPTER: TypeAdapter[tuple[AnyDeclaredEvent, ...]] = TypeAdapter(tuple[AnyDeclaredEvent, ...])


class FaultSchedule(FrozenRecord):
    """One trial of the fault search, in the words of a scenario.

    The trial trains a linear model for two epochs. Its plan depends on `strategy`, `workers` and `steps` only.
    """

    seed: int = Field(description="seed from which the schedule was drawn")
    strategy: dict[str, JsonValue] = Field(description="strategy, as a scenario declares it")
    workers: PositiveInt = Field(description="number of workers")
    steps: int = Field(ge=2, multiple_of=2, description="training steps of two epochs")
    uneven: bool = Field(
        default=False, description="whether shares of a batch differ, and the last batch of an epoch is incomplete"
    )
    recovery: dict[str, JsonValue] = Field(
        default_factory=dict, description="policy for lost nodes, as a scenario declares it"
    )
    events: tuple[EventDocument, ...] = Field((), description="events, as a scenario declares them")
    messages: MessageFaultSettings | None = Field(None, description="disturbances of single messages and calls")

    def without_faults(self) -> Self:
        """Return the schedule of the same trial without any disturbance."""
        return self.model_copy(update={"events": (), "messages": None})

    def make_plan(self) -> TrainingPlan:
        """Return the plan of the trial.

        Raises:
            ValueError: the strategy does not allow this number of workers or steps.
        """
        plan = _plan_without_events(
            STRATEGY_ADAPTER.dump_json(self.strategy),
            STRATEGY_ADAPTER.dump_json(self.recovery),
            self.workers,
            self.steps,
            uneven=self.uneven,
        )
        events = EVENTS_ADAPTER.validate_python(self.events)
        return plan.model_copy(update={"events": plan_event_occurrences(events, plan.steps, 0.0, plan.seed)})

    @property
    def longest_wait_s(self) -> float:
        """Longest time for which nodes wait for each other because of events, in virtual seconds."""
        events = EVENTS_ADAPTER.validate_python(self.events)
        return sum(event.lasts or 0.0 for event in events if EVENT_KINDS[event.kind].blocks_messages)

    def to_scenario_document(self) -> dict[str, Any]:
        """Return the trial as a scenario without the disturbances of messages, which a scenario can't declare."""
        document = scenario_document(self.strategy, self.workers, self.steps, uneven=self.uneven)
        return document | {"events": list(self.events), "recovery": self.recovery}


def scenario_document(strategy: Mapping[str, JsonValue], workers: int, steps: int, *, uneven: bool) -> dict[str, Any]:
    """Return a scenario that trains a small linear model for two epochs under a strategy."""
    batch = SAMPLES_PER_WORKER * workers - uneven
    samples = batch * (steps // 2) * 5 // 4 - 2 * uneven
    return {
        "name": "fault-search",
        "engine": "simulated",
        "workload": {
            "dataset": {
                "kind": "synthetic_regression",
                "samples": samples,  # a fifth is held out
                "features": 6,
                "outputs": 2,
            },
            "model": {"kind": "linear"},
            "optimiser": {"kind": "sgd", "rate": RATE},
            "batch": batch,
            "epochs": 2,
            "precision": "fp64",
        },
        "cluster": {
            "workers": workers,
            "worker": {"throughput": "1000/s", "uplink": "10mbit", "downlink": "10mbit", "delay": "0.5ms"},
            "server": {"uplink": "10mbit", "downlink": "10mbit", "delay": "0.5ms"},
        },
        "transport": "tcp",  # events may drop connections
        "strategies": {"it": dict(strategy)},
        "timeouts": {"step": STEP_TIMEOUT, "run": RUN_TIMEOUT},
        "baseline": False,
        "seed": TRIAL_SEED,
    }


@lru_cache(maxsize=4096)
def _plan_without_events(
    strategy_json: bytes, recovery_json: bytes, workers: int, steps: int, *, uneven: bool
) -> TrainingPlan:
    strategy = STRATEGY_ADAPTER.validate_json(strategy_json)
    recovery = STRATEGY_ADAPTER.validate_json(recovery_json)
    document = scenario_document(strategy, workers, steps, uneven=uneven) | {"recovery": recovery}
    (trial,) = Scenario.decode(document).trials()
    plan = make_plan(trial, "fault-search", "simulated", DummyAddresses())
    if not isinstance(plan, TrainingPlan):
        raise UserError("the fault search simulates trainings, not commands of users")
    has_equal_replicas = all(
        phase.describe_worker_exchange().has_equal_replicas for phase in plan.strategy.training_phases()
    )
    return plan.model_copy(update={"hash_every_step": has_equal_replicas})
