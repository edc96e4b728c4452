"""What did the user ask for? The whole scenario file as one frozen record, and the trials that follow from it."""

import json
import re
from collections.abc import Iterator
from itertools import count
from math import prod
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Discriminator, Field, NonNegativeInt, PositiveInt, Tag, model_validator

from services.cluster.cluster import Cluster, Worker, names
from services.cluster.events import AnyHappening, LinkChange, conflicts, present
from services.scenario.published import Published
from services.scenario.published import strangers as published_strangers
from services.scenario.sweep import WORKERS, Axis, Document, Setting, Sweep, apply, combinations, is_count, missing
from services.scenario.workload import Workload, posed
from services.schema.component import Record
from services.schema.conflicts import Conflict, refuse
from services.schema.units import Duration
from services.strategies import AnyStrategy, StrategyContext

Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Label: TypeAlias = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
AUTO: Literal["auto"] = "auto"
Dilation: TypeAlias = Annotated[  # told apart by type, so that a wrong number is not told that it is no word
    Annotated[float, Field(ge=1), Tag("number")] | Annotated[Literal["auto"], Tag("word")],
    Discriminator(lambda given: "word" if isinstance(given, str) else "number"),
]
EngineName: TypeAlias = Literal["docker", "local", "simulated"]
TransportName: TypeAlias = Literal["grpc", "tcp"]

BASELINE = {"none": {"kind": "none"}}  # label -> strategy


class Security(Record):
    """How nodes protect what they send."""

    data: Literal["signed", "tls"] = Field(
        "signed", description="signed: streams prove who opened them; tls: encrypted too"
    )


class Timeouts(Record):
    """How long a node waits, in virtual time."""

    start: Duration = Field(Duration("60s"), description="for all others to join")
    step: Duration = Field(
        Duration("60s"), description="for any one message; as often as long where an exchange comes every so many steps"
    )
    run: Duration = Field(Duration("1h"), description="for a whole trial")


class Fidelity(Record):
    """How far the emulation may be from what was declared before its numbers are not believed."""

    missed_deadlines: Share = Field(
        0.01,
        description="share of paced phases that end late: by 1 ms of wall time, 5 % of the phase and 1 % of the step",
    )
    rate_error: Share = Field(0.05, description="relative error of a link's achieved rate")
    host_cpu: Share = Field(0.90, description="share of the host's cores that is busy")
    host_share: Share = Field(0.10, description="share by which steps are longer than links and devices make them")
    canary: Duration = Field(
        Duration("5ms"), description="wall time by which a thread that only sleeps wakes late, at its 99th percentile"
    )
    throttled: Share = Field(0.01, description="share of the run for which its quota held a node back that has a speed")
    event_lateness: Duration = Field(Duration("50ms"), description="wall time between an event's moment and its effect")
    drops: Share = Field(0.001, description="share of packets dropped by queues where no buffer or loss is declared")
    round_trip: Duration = Field(
        Duration("1ms"),
        description="wall time by which a round trip may be off, or 5 % of it where that is more",
    )

    def message_tolerance_s(self, declared_s: float, dilation: float) -> float:
        """How far off one message may be, virtual: by its link's rate, and by this host's timers as a round trip."""
        return self.rate_error * declared_s + self.round_trip / dilation


class Scenario(Record):
    """One experiment: a workload on a cluster under several strategies."""

    name: Label = Field(description="the same as the file's")
    workload: Workload
    cluster: Cluster = Cluster()
    strategies: dict[Label, AnyStrategy] = Field(min_length=1, description="what is compared: label -> strategy")
    sweep: dict[str, Axis] = Field(
        {}, description="dotted paths into this file -> values to try; workers is short for cluster.workers"
    )
    baseline: bool = Field(default=True, description="also train on one worker without any exchange, to compare with")
    repeats: PositiveInt = Field(
        1, description="times each trial runs; repeat r has seed + r, the same for every strategy"
    )
    seed: NonNegativeInt = Field(1, description="of parameters, data order and jitter")
    dilation: Dilation = Field(
        1.0,
        description="how many times slower than declared everything happens; reports are unaffected. auto: the least "
        "that this host's measured capacity admits",
    )
    engine: EngineName | None = Field(None, description="what runs the nodes when the command line names nothing")
    transport: TransportName = Field(
        "grpc", description="what carries bulk messages between nodes, behind the same links: gRPC streams, or bare TCP"
    )
    events: tuple[AnyHappening, ...] = Field((), description="what changes while a trial runs")
    strict: bool = Field(default=False, description="refuse a host that can't enforce every property in its kernel")
    security: Security = Security()
    timeouts: Timeouts = Timeouts()
    fidelity: Fidelity = Fidelity()
    published: tuple[Published, ...] = Field((), description="what others found of the same; reports show it beside")

    @classmethod
    def decode(cls, document: Document) -> Self:
        """The scenario that a document in YAML's or JSON's types describes; no type is bent to fit."""
        return cls.model_validate_json(json.dumps(document), strict=True)

    def encode(self) -> Document:
        """The document of this scenario with every default filled in and every quantity in its written form."""
        return self.model_dump(mode="json")

    def worker(self, rank: int) -> Worker:
        """What the worker of this rank is like."""
        return self.cluster.rank(rank)

    @property
    def unpaced(self) -> tuple[str, ...]:
        """Names of the workers that are as fast as the host."""
        return tuple(f"worker-{rank}" for rank in range(self.cluster.workers) if not self.worker(rank).samples_per_s)

    def trials(self) -> tuple["Trial", ...]:
        """Everything that runs: baselines, then strategies in their order; inner loops are workers, then repeats.

        Raises pydantic's ValidationError for the first combination that contradicts itself.
        """
        return tuple(self.trial(choice) for choice in self.choices())

    def choices(self) -> Iterator["Choice"]:
        """What distinguishes each trial from the others, in the order in which they run."""
        index = count()
        for label in ((None,) if self.baseline else ()) + tuple(self.strategies):
            for setting in combinations(self._sweep_of(label)):
                for repeat in range(self.repeats):
                    yield Choice(index=next(index), label=label, setting=setting, repeat=repeat)

    def trial(self, choice: "Choice") -> "Trial":
        """The trial of one choice; raises pydantic's ValidationError when it contradicts itself."""
        valid = Scenario.decode(self.document(choice))  # swept values may be anything; what follows relies on them
        return Trial.of(choice, Scenario.decode(valid.narrowed(choice)))

    def document(self, choice: "Choice") -> Document:
        """This scenario with the swept values of one choice."""
        return apply(self.sweep, choice.setting, self.encode())

    def narrowed(self, choice: "Choice") -> Document:
        """This scenario with nothing but one choice's strategy and seed: nothing is left to sweep or to repeat."""
        document = self.encode()
        chosen = BASELINE if choice.label is None else {choice.label: document["strategies"].get(choice.label)}
        workers = 1 if choice.label is None else self.cluster.workers
        servers = 0 if choice.label is None else self.strategies[choice.label].phases().server_count
        cluster = self.cluster.among(workers, servers)
        events = present(self.events, names(workers, servers))
        return document | {
            "strategies": chosen,
            "sweep": {},
            "baseline": False,
            "repeats": 1,
            "seed": self.seed + choice.repeat,
            "cluster": cluster.model_dump(mode="json"),
            "events": [what.model_dump(mode="json") for what in events],
            "published": [],
        }

    def _sweep_of(self, label: str | None) -> Sweep:
        """The axes that matter to one strategy, workers last; None is the baseline, which has one worker."""
        own = {name: axis for name, axis in self.sweep.items() if axis.concerns(name, label)}
        return dict(sorted(own.items(), key=lambda item: WORKERS in item[1].sets(item[0])))

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        refuse((*self._sweep_conflicts(), *self._strangers()))
        refuse(() if self.sweep else self._final_conflicts())
        return self

    def _sweep_conflicts(self) -> Iterator[Conflict]:
        document = self.encode()
        for name, axis in self.sweep.items():
            yield from (Conflict(("sweep", name), why) for path in axis.sets(name) if (why := missing(path, document)))
            if odd := [value for value in axis.tries(name, WORKERS) if not is_count(value)]:
                yield Conflict(("sweep", name), f"workers are whole numbers from 1, not {odd[0]!r}")

    def _strangers(self) -> Iterator[Conflict]:
        """Nodes that are named and are not there, however many the sweep makes of them."""
        workers = max(self._swept(WORKERS), default=self.cluster.workers)
        servers = max(
            (*self._swept_servers(), *(strategy.phases().server_count for strategy in self.strategies.values()))
        )
        yield from (Conflict(("cluster", *path), why) for path, why in self.cluster.strangers(workers, servers))
        found = conflicts(self.events, names(workers, servers))
        yield from (Conflict(("events", *path), why) for path, why in found)
        yield from published_strangers(self.published, list(self.strategies))

    def _swept(self, path: str) -> Iterator[int]:
        """The counts that the sweep tries for `path`."""
        values = (value for name, axis in self.sweep.items() for value in axis.tries(name, path))
        return (value for value in values if is_count(value))

    def _swept_servers(self) -> Iterator[int]:
        for label in self.strategies:
            for part in ("", ".before", ".after"):  # of a switch
                yield from self._swept(f"strategies.{label}{part}.servers")

    def _final_conflicts(self) -> Iterator[Conflict]:
        """What can be judged only when nothing is left to sweep."""
        workers = self.cluster.workers
        for label, strategy in self.strategies.items():
            for path, why in strategy.conflicts(self._strategy_context()):
                yield Conflict(("strategies", label, *path), why)
        if self.workload.global_batch(workers) < workers:
            why = f"batch ({self.workload.batch}) is smaller than the number of workers ({workers})"
            yield Conflict(("workload", "batch"), why)
        yield from self._unshaped()
        yield from self._endless()
        yield from self._never()

    def _strategy_context(self) -> StrategyContext:
        workers, layout = self.cluster.workers, self.workload.model.layout(posed(self.workload.dataset).task)
        return StrategyContext(
            workers=workers,
            steps=self.workload.steps(workers),
            steps_per_epoch=self.workload.steps_per_epoch(workers),
            array_sizes=tuple(prod(shape) for _, shape in layout.arrays),
            has_link_rates=self.cluster.has_rates,
        )

    def _unshaped(self) -> Iterator[Conflict]:
        """Events that change a rate where there is none."""
        for k, what in enumerate(self.events):
            for key in ("uplink", "downlink"):
                if not isinstance(what, LinkChange) or getattr(what, key) is None:
                    continue
                if free := [name for name in what.of if getattr(self.cluster.port(name), key) is None]:
                    why = f"{free[0]} has no {key} that could change; declare one in cluster"
                    yield Conflict(("events", k, key), why)

    def _endless(self) -> Iterator[Conflict]:
        """Events at random moments, where nobody can say before the trial how long moments are wanted."""
        free = self.unpaced
        for k, what in enumerate(self.events):
            if free and what.at.random is not None:
                why = (
                    f"{free[0]} is not paced, so nobody knows how long moments have to be drawn for; "
                    "declare a throughput for every worker, or write one of time, step and share"
                )
                yield Conflict(("events", k, "at", "random"), why)

    def _never(self) -> Iterator[Conflict]:
        """Events at steps that the budget does not have."""
        steps = self.workload.steps(self.cluster.workers)
        for k, what in enumerate(self.events):
            if what.at.step is not None and what.at.step >= steps:
                why = f"never begins; the budget's steps are 0 to {steps - 1}"
                yield Conflict(("events", k, "at", "step"), why)


class Choice(Record):
    """What distinguishes one trial of a scenario from the others."""

    index: int
    label: str | None  # of the strategy; None is the baseline
    setting: Setting  # name of an axis -> value
    repeat: int


class Trial(Record):
    """One thing to run: one strategy, one value of everything swept, one seed."""

    index: int
    id: str  # folder name, such as "003-ring-w4-r0"
    label: str  # of the strategy
    strategy: AnyStrategy
    scenario: Scenario  # narrowed down to this trial
    repeat: int
    seed: int
    labels: dict[str, str | int | float]  # name of an axis -> value, and always "workers"
    baseline: bool

    @classmethod
    def of(cls, choice: Choice, scenario: Scenario) -> Self:
        """The trial that runs `scenario`, the result of `choice`."""
        ((label, strategy),) = scenario.strategies.items()
        workers = scenario.cluster.workers
        others = {name: scalar(value) for name, value in choice.setting.items() if name not in {"workers", WORKERS}}
        parts = (f"{choice.index:03}", label, f"w{workers}", *map(slug, others.values()), f"r{choice.repeat}")
        return cls(
            index=choice.index,
            id="-".join(parts),
            label=label,
            strategy=strategy,
            scenario=scenario,
            repeat=choice.repeat,
            seed=scenario.seed,
            labels={"workers": workers, **others},
            baseline=choice.label is None,
        )


def scalar(value: Any) -> str | int | float:
    """A swept value as a label: itself, or in JSON when it is a whole section."""
    return value if isinstance(value, str | int | float) else json.dumps(value)


def slug(value: str | float) -> str:
    """A swept value as a part of a folder's name."""
    return re.sub(r"[^a-z0-9.]+", "-", str(value).lower()).strip("-")[:24]
