"""The scenario: a whole scenario file as one frozen record, and the trials that it declares."""

import json
from collections.abc import Iterator
from itertools import count
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Discriminator, Field, NonNegativeInt, PositiveInt, Tag, model_validator

from services.cluster.cluster import Cluster, WorkerSpec, cluster_node_names
from services.cluster.compute_speed import ComputeSpeed
from services.cluster.events import AnyDeclaredEvent, find_positions_of_events, restrict_events_to_nodes
from services.scenario.checked_study import CheckedStudy
from services.scenario.commands.command_workload import CommandWorkload
from services.scenario.conflicts.scenario_conflicts import raise_scenario_conflicts
from services.scenario.published_curves import PublishedCurve
from services.scenario.recovery import RecoverySettings
from services.scenario.run_settings import EngineName, FidelityLimits, SecuritySettings, Timeouts, TransportName
from services.scenario.sweep import (
    WORKERS_KEY_PATH,
    ScenarioDocument,
    Sweep,
    SweepAxis,
    apply_sweep_point,
    sweep_points,
)
from services.scenario.trial_identity import TrialIdentity, folder_name_part, swept_value_label
from services.scenario.workload import Workload
from services.schema.component import FrozenRecord
from services.schema.limits import MAX_ATTEMPTS, MAX_DILATION
from services.strategies import AnyStrategy, Strategy

LABEL_PATTERN = r"^[a-z0-9][a-z0-9_-]*$"
Label: TypeAlias = Annotated[str, Field(pattern=LABEL_PATTERN)]
AUTO: Literal["auto"] = "auto"
Dilation: TypeAlias = Annotated[  # discriminated by type, so that the error of a wrong number does not mention "auto"
    Annotated[float, Field(ge=1, le=MAX_DILATION), Tag("number")] | Annotated[Literal["auto"], Tag("word")],
    Discriminator(lambda value: "word" if isinstance(value, str) else "number"),
]
# Kind of the workload -> label -> strategy of the baseline.
BASELINE_STRATEGIES = {"training": {"none": {"kind": "none"}}, "command": {"none": {"kind": "command"}}}
AnyWorkload: TypeAlias = Annotated[Workload | CommandWorkload, Field(discriminator="kind")]


class Scenario(FrozenRecord):
    """One experiment: a workload on an emulated cluster, trained under several strategies."""

    name: Label = Field(description="name of the scenario; equal to that of its file")
    workload: AnyWorkload
    cluster: Cluster = Cluster()
    strategies: dict[Label, AnyStrategy] = Field(
        min_length=1,
        description="strategies to compare: label -> strategy, such as ring: {kind: all_reduce}",
    )
    sweep: dict[str, SweepAxis] = Field(
        {}, description="dotted paths of keys in this file -> values to try; workers is short for cluster.workers"
    )
    baseline: bool = Field(default=True, description="whether to train one worker without any exchange, for comparison")
    repeats: PositiveInt = Field(1, description="runs of each trial; repeat r has seed + r under every strategy")
    attempts: int = Field(
        3,
        ge=1,
        le=MAX_ATTEMPTS,
        description="largest number of attempts at each trial. A trial is repeated after a pause if a check of "
        "deadlines, links, events or host load fails because of other load on the host. Training results and step "
        "times are not used. 1: never repeat",
    )
    seed: NonNegativeInt = Field(1, description="seed of parameters, data order and jitter")
    dilation: Dilation = Field(
        1.0,
        description="factor by which the trial runs slower than declared; reported times are not affected. auto: the "
        "smallest factor that the measured capacity of this host admits",
    )
    engine: EngineName | None = Field(None, description="engine that runs the nodes, unless the command line names one")
    transport: TransportName = Field(
        "grpc", description="protocol of bulk messages between nodes: gRPC streams or bare TCP, over the same links"
    )
    events: tuple[AnyDeclaredEvent, ...] = Field((), description="changes of links and workers while a trial runs")
    missing_gpu: Literal["fail", "skip"] = Field(
        "fail",
        description="what happens on a host without a usable GPU to trials with workers of device: cuda. fail: these "
        "trials fail; skip: they do not run, and the report says so",
    )
    missing_packages: Literal["fail", "skip"] = Field(
        "fail",
        description="what happens on a host without the packages that workload.requires names. fail: the run is "
        "rejected before anything starts; skip: trials that need them do not run, and the report says so",
    )
    strict: bool = Field(default=False, description="whether to reject a trial with a property that cannot be enforced")
    recovery: RecoverySettings = RecoverySettings()
    security: SecuritySettings = SecuritySettings()
    timeouts: Timeouts = Timeouts()
    fidelity: FidelityLimits = FidelityLimits()
    published: tuple[PublishedCurve, ...] = Field(
        (), description="published results of the same experiment; reports show them beside the measured ones"
    )
    claims: CheckedStudy | None = Field(
        None,
        description="published study whose claims on scaling the report checks with the measured speedup curves: "
        "confirmed, contradicted, too close to call, or not testable here",
    )

    @classmethod
    def decode(cls, document: ScenarioDocument) -> Self:
        """Return the scenario that a document of nested dicts and lists describes.

        The document is as parsed from YAML or JSON.

        Raises:
            pydantic.ValidationError: the document is not a valid scenario; values are not converted to other types.
        """
        return cls.model_validate_json(json.dumps(add_default_kinds(document)), strict=True)

    def encode(self) -> ScenarioDocument:
        """Return this scenario as nested dicts and lists, with all defaults.

        Quantities are strings with units.
        """
        return self.model_dump(mode="json")

    @property
    def training_workload(self) -> Workload:
        """Workload of a scenario that trains a model.

        Raises:
            TypeError: the scenario runs a command; callers check this before.
        """
        if isinstance(self.workload, CommandWorkload):
            raise TypeError(f"scenario {self.name} runs a command and has no model")
        return self.workload

    def worker_spec(self, rank: int) -> WorkerSpec:
        """Return the properties of the worker with this rank."""
        return self.cluster.worker_spec(rank)

    @property
    def workers_without_throughput(self) -> tuple[str, ...]:
        """Names of the workers without a declared compute speed; they compute as fast as this host can."""
        return tuple(f"worker-{k}" for k in range(self.cluster.workers) if not self.worker_spec(k).is_paced)

    def worker_compute_speed(self, rank: int) -> ComputeSpeed | None:
        """Return the declared compute speed of the worker with this rank; None if it is as fast as this host."""
        return self.worker_spec(rank).compute_speed(self.workload.sample_operations)

    def trials(self) -> tuple["TrialSpec", ...]:
        """Return all trials of this scenario, in the order in which they run.

        Raises:
            pydantic.ValidationError: a combination of swept values has conflicts; only the first one is reported.
        """
        return tuple(self.trial(choice) for choice in self.all_trial_identities())

    def all_trial_identities(self) -> Iterator[TrialIdentity]:
        """Yield the identity of every trial, in the order in which trials run.

        An identity consists of strategy label, swept values and repeat. The baseline comes first, then the strategies
        in their order. For each of them all combinations of swept values follow, the number of workers changing
        fastest; and for each combination its repeats.
        """
        index = count()
        for label in ((None,) if self.baseline else ()) + tuple(self.strategies):
            for sweep_point in sweep_points(self.sweep_axes_of_strategy(label)):
                for repeat in range(self.repeats):
                    yield TrialIdentity(index=next(index), label=label, sweep_point=sweep_point, repeat=repeat)

    def trial(self, identity: TrialIdentity) -> "TrialSpec":
        """Return the trial with the given strategy, swept values and repeat.

        Raises:
            pydantic.ValidationError: the combination of swept values has conflicts.
        """
        return self.with_swept_values(identity).reduce_to_trial(identity)

    def with_swept_values(self, identity: TrialIdentity) -> "Scenario":
        """Return this scenario with the swept values of one trial, and with the nodes and events of all trials.

        Raises:
            pydantic.ValidationError: a swept value is not valid.
        """
        return Scenario.decode(self.document_with_swept_values(identity)) if identity.sweep_point else self

    def reduce_to_trial(self, identity: TrialIdentity) -> "TrialSpec":
        """Return the trial with the given strategy and repeat; this scenario already has its swept values.

        Raises:
            pydantic.ValidationError: keys of the trial conflict with each other.
        """
        single_trial = Scenario.decode(self._single_trial_document(identity))
        servers = sum(strategy.training_phases().server_count for strategy in single_trial.strategies.values())
        names = cluster_node_names(single_trial.cluster.workers, servers)
        positions = find_positions_of_events(self.events, names)
        return TrialSpec.from_single_trial_scenario(identity, single_trial, positions)

    def document_with_swept_values(self, trial_identity: TrialIdentity) -> ScenarioDocument:
        """Return this scenario as nested dicts and lists, with the swept values of one trial.

        Each swept key is set to its value in the given trial.
        """
        return apply_sweep_point(self.sweep, trial_identity.sweep_point, self.encode())

    def _single_trial_document(self, identity: TrialIdentity) -> ScenarioDocument:
        """Return this scenario, reduced to a single trial, as nested dicts and lists.

        The trial has one strategy and one seed, and the scenario has no sweep. Nodes that the strategy does not use are
        left out, and so are published curves and claims.
        """
        document = self.encode()
        if identity.label is None:
            strategies, workers, servers = BASELINE_STRATEGIES[self.workload.kind], 1, 0
        else:
            strategies = {identity.label: document["strategies"].get(identity.label)}
            workers, servers = self.cluster.workers, self.strategies[identity.label].training_phases().server_count
        cluster = self.cluster.restrict_to_cluster_size(workers, servers)
        if all(cluster.worker_spec(rank).utilisation is None for rank in range(workers)):
            document["workload"]["flops_per_sample"] = None  # only left out workers need them
        events = restrict_events_to_nodes(self.events, cluster_node_names(workers, servers))
        return document | {
            "strategies": strategies,
            "sweep": {},
            "baseline": False,
            "repeats": 1,
            "seed": self.seed + identity.repeat,
            "cluster": cluster.model_dump(mode="json"),
            "events": [event.model_dump(mode="json") for event in events],
            "published": [],
            "claims": None,
        }

    def sweep_axes_of_strategy(self, strategy_label: str | None) -> Sweep:
        """Return the sweep axes of a strategy.

        A strategy of None stands for the baseline with one worker. The axis of worker counts comes last.
        """
        axes = {name: axis for name, axis in self.sweep.items() if axis.affects_strategy(name, strategy_label)}
        return dict(sorted(axes.items(), key=lambda item: WORKERS_KEY_PATH in item[1].swept_key_paths(item[0])))

    @model_validator(mode="after")
    def _reject_field_conflicts(self) -> Self:
        raise_scenario_conflicts(self)
        return self


def add_default_kinds(document: ScenarioDocument) -> ScenarioDocument:
    """Return a document with the kind of the workload, `training` if it leaves it out."""
    workload = document.get("workload") if isinstance(document, dict) else None
    if not isinstance(workload, dict):
        return document
    return document | {"workload": {"kind": "training"} | workload}


class TrialSpec(FrozenRecord):
    """One trial to run: one strategy, one combination of swept values, one seed."""

    index: int  # position in the list of trials
    id: str  # name of the trial's folder, such as "003-ring-w4-r0"
    label: str  # of the strategy
    strategy: AnyStrategy
    scenario: Scenario  # narrowed down to this trial
    repeat: int
    seed: int
    labels: dict[str, str | int | float]  # name of an axis -> value, and always "workers"
    baseline: bool
    event_positions: tuple[int, ...] = ()  # of the trial's events in the list of the scenario file

    def with_strategy(self, strategy: Strategy) -> "TrialSpec":
        """Return this trial under another strategy, without the nodes and events that the strategy does not use.

        The strategy must be possible in the scenario of the trial.
        """
        workers, servers = self.scenario.cluster.workers, strategy.training_phases().server_count
        names = cluster_node_names(workers, servers)
        events = restrict_events_to_nodes(self.scenario.events, names)
        kept_events = find_positions_of_events(self.scenario.events, names)
        scenario = self.scenario.model_copy(
            update={
                "strategies": {self.label: strategy},
                "cluster": self.scenario.cluster.restrict_to_cluster_size(workers, servers),
                "events": events,
            }
        )
        positions = tuple(self.event_positions[k] for k in kept_events)
        return self.model_copy(update={"strategy": strategy, "scenario": scenario, "event_positions": positions})

    @classmethod
    def from_single_trial_scenario(
        cls, trial_identity: TrialIdentity, single_trial_scenario: Scenario, event_positions: tuple[int, ...]
    ) -> Self:
        """Return the trial that a scenario with a single trial describes.

        The trial has the identity `trial_identity`. The scenario has only the trial's strategy, swept values and seed,
        and its events are those at `event_positions` in the scenario file.
        """
        ((label, strategy),) = single_trial_scenario.strategies.items()
        workers = single_trial_scenario.cluster.workers
        other_labels = {
            name: swept_value_label(value)
            for name, value in trial_identity.sweep_point.items()
            if name not in {"workers", WORKERS_KEY_PATH}
        }
        other_parts = map(folder_name_part, other_labels.values())
        id_parts = (f"{trial_identity.index:03}", label, f"w{workers}", *other_parts, f"r{trial_identity.repeat}")
        return cls(
            index=trial_identity.index,
            id="-".join(id_parts),
            label=label,
            strategy=strategy,
            scenario=single_trial_scenario,
            repeat=trial_identity.repeat,
            seed=single_trial_scenario.seed,
            labels={"workers": workers, **other_labels},
            baseline=trial_identity.label is None,
            event_positions=event_positions,
        )
