"""The scenario: a whole scenario file as one frozen record, and the trials that it declares."""

import json
import re
from collections.abc import Iterator
from itertools import count
from math import prod
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Discriminator, Field, NonNegativeInt, PositiveInt, Tag, model_validator

from services.cluster.cluster import Cluster, WorkerSpec, cluster_node_names
from services.cluster.compute_speed import ComputeSpeed
from services.cluster.events import AnyDeclaredEvent, LinkChange, event_conflicts, restrict_events_to_nodes
from services.scenario.learning_task import learning_task_of
from services.scenario.published_curves import PublishedCurve, unknown_label_conflicts
from services.scenario.sweep import (
    WORKERS_KEY_PATH,
    ScenarioDocument,
    Sweep,
    SweepAxis,
    SweepPoint,
    apply_sweep_point,
    is_positive_int,
    sweep_points,
    unsweepable_key_reason,
)
from services.scenario.workload import Workload
from services.schema.component import FrozenRecord
from services.schema.conflicts import KeyConflict, prepend_parent_key, raise_conflicts
from services.schema.limits import (
    MAX_ATTEMPTS,
    MAX_DILATION,
    MAX_PARAMETERS,
    MAX_SERVERS,
    MAX_STEPS,
    MAX_TRIALS,
    MAX_WORKERS,
)
from services.schema.units import Duration, Operations
from services.strategies import AnyStrategy, ScenarioSizes

Share: TypeAlias = Annotated[float, Field(ge=0, le=1)]
LABEL_PATTERN = r"^[a-z0-9][a-z0-9_-]*$"
Label: TypeAlias = Annotated[str, Field(pattern=LABEL_PATTERN)]
AUTO: Literal["auto"] = "auto"
Dilation: TypeAlias = Annotated[  # discriminated by type, so that the error of a wrong number does not mention "auto"
    Annotated[float, Field(ge=1, le=MAX_DILATION), Tag("number")] | Annotated[Literal["auto"], Tag("word")],
    Discriminator(lambda value: "word" if isinstance(value, str) else "number"),
]
EngineName: TypeAlias = Literal["docker", "local", "simulated"]
TransportName: TypeAlias = Literal["grpc", "tcp"]

BASELINE_STRATEGIES = {"none": {"kind": "none"}}  # label -> strategy


class SecuritySettings(FrozenRecord):
    """Protection of the messages between nodes."""

    data: Literal["signed", "tls"] = Field(
        "signed",
        description="protection of messages on the data network; signed: streams prove the identity of their sender; "
        "tls: streams are encrypted too",
    )


class Timeouts(FrozenRecord):
    """Time limits, in virtual time, after which a node that waits for other nodes gives up."""

    start: Duration = Field(Duration("60s"), description="time for all nodes to join the trial")
    step: Duration = Field(
        Duration("60s"),
        description="time for one message to arrive; multiplied by the number of steps from one exchange to the next",
    )
    run: Duration = Field(Duration("1h"), description="time for the whole trial")


class FidelityLimits(FrozenRecord):
    """Limits on how far an emulated cluster may deviate from the declared cluster.

    Beyond these limits, a trial counts as degraded or invalid.
    """

    missed_deadlines: Share = Field(
        0.01,
        description="share of compute phases, of workers with a throughput, that miss their deadline by more than 1 ms "
        "of wall time, 5 % of the phase and 1 % of the step",
    )
    rate_error: Share = Field(0.05, description="relative error of the achieved rate of a link")
    host_cpu: Share = Field(0.90, description="share of the host's cores that are busy")
    host_share: Share = Field(
        0.10, description="share by which the median step is longer than the closed form, because of this host"
    )
    canary: Duration = Field(
        Duration("5ms"),
        description="wall time by which a thread that only sleeps (the canary) wakes late, at the 99th percentile",
    )
    throttled: Share = Field(
        0.01,
        description="share of the run during which a CPU quota held a node back; workers whose speed is declared as a "
        "quota are exempt",
    )
    event_lateness: Duration = Field(Duration("50ms"), description="wall time by which an event takes effect late")
    drops: Share = Field(0.001, description="share of packets that queues drop where no buffer and no loss is declared")
    round_trip: Duration = Field(
        Duration("1ms"),
        description="wall time by which a measured round trip differs from the declared one; 5 % of the round trip if "
        "that is more",
    )

    def message_time_tolerance_s(self, declared_message_s: float, time_dilation: float) -> float:
        """Return the allowed error of the time of one message, in virtual seconds.

        The error is the difference between the measured and the declared time. The tolerance is the rate error of the
        link plus that of a round trip, for the timers of this host.
        """
        return self.rate_error * declared_message_s + self.round_trip / time_dilation


class Scenario(FrozenRecord):
    """One experiment: a workload on an emulated cluster, trained under several strategies."""

    name: Label = Field(description="name of the scenario; equal to that of its file")
    workload: Workload
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
    strict: bool = Field(default=False, description="whether to reject a trial with a property that cannot be enforced")
    security: SecuritySettings = SecuritySettings()
    timeouts: Timeouts = Timeouts()
    fidelity: FidelityLimits = FidelityLimits()
    published: tuple[PublishedCurve, ...] = Field(
        (), description="published results of the same experiment; reports show them beside the measured ones"
    )

    @classmethod
    def decode(cls, document: ScenarioDocument) -> Self:
        """Return the scenario that a document of nested dicts and lists describes.

        The document is as parsed from YAML or JSON.

        Raises:
            pydantic.ValidationError: the document is not a valid scenario; values are not converted to other types.
        """
        return cls.model_validate_json(json.dumps(document), strict=True)

    def encode(self) -> ScenarioDocument:
        """Return this scenario as nested dicts and lists, with all defaults.

        Quantities are strings with units.
        """
        return self.model_dump(mode="json")

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

    def all_trial_identities(self) -> Iterator["TrialIdentity"]:
        """Yield the identity of every trial, in the order in which trials run.

        An identity consists of strategy label, swept values and repeat. The baseline comes first, then the strategies
        in their order. For each of them all combinations of swept values follow, the number of workers changing
        fastest; and for each combination its repeats.
        """
        index = count()
        for label in ((None,) if self.baseline else ()) + tuple(self.strategies):
            for sweep_point in sweep_points(self._sweep_axes_of_strategy(label)):
                for repeat in range(self.repeats):
                    yield TrialIdentity(index=next(index), label=label, sweep_point=sweep_point, repeat=repeat)

    def trial(self, identity: "TrialIdentity") -> "TrialSpec":
        """Return the trial with the given strategy, swept values and repeat.

        Raises:
            pydantic.ValidationError: the combination of swept values has conflicts.
        """
        return self.with_swept_values(identity).reduce_to_trial(identity)

    def with_swept_values(self, identity: "TrialIdentity") -> "Scenario":
        """Return this scenario with the swept values of one trial, and with the nodes and events of all trials.

        Raises:
            pydantic.ValidationError: a swept value is not valid.
        """
        return Scenario.decode(self.document_with_swept_values(identity)) if identity.sweep_point else self

    def reduce_to_trial(self, identity: "TrialIdentity") -> "TrialSpec":
        """Return the trial with the given strategy and repeat; this scenario already has its swept values.

        Raises:
            pydantic.ValidationError: keys of the trial conflict with each other.
        """
        return TrialSpec.from_single_trial_scenario(identity, Scenario.decode(self._single_trial_document(identity)))

    def document_with_swept_values(self, trial_identity: "TrialIdentity") -> ScenarioDocument:
        """Return this scenario as nested dicts and lists, with the swept values of one trial.

        Each swept key is set to its value in the given trial.
        """
        return apply_sweep_point(self.sweep, trial_identity.sweep_point, self.encode())

    def _single_trial_document(self, identity: "TrialIdentity") -> ScenarioDocument:
        """Return this scenario, reduced to a single trial, as nested dicts and lists.

        The trial has one strategy and one seed, and the scenario has no sweep. Nodes that the strategy does not use are
        left out, and so are published curves.
        """
        document = self.encode()
        if identity.label is None:
            strategies, workers, servers = BASELINE_STRATEGIES, 1, 0
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
        }

    def _sweep_axes_of_strategy(self, strategy_label: str | None) -> Sweep:
        """Return the sweep axes of a strategy.

        A strategy of None stands for the baseline with one worker. The axis of worker counts comes last.
        """
        axes = {name: axis for name, axis in self.sweep.items() if axis.affects_strategy(name, strategy_label)}
        return dict(sorted(axes.items(), key=lambda item: WORKERS_KEY_PATH in item[1].swept_key_paths(item[0])))

    @model_validator(mode="after")
    def _reject_field_conflicts(self) -> Self:
        raise_conflicts(self._find_too_many_trials())  # before the trials are enumerated
        raise_conflicts((*self._find_invalid_sweep_items(), *self._unknown_nodes_or_strategies()))
        if not self.sweep:
            raise_conflicts(self._find_too_large_training())  # before strategies compute anything for each step
            raise_conflicts(
                prepend_parent_key("workload", self.workload.find_partition_conflicts(self.cluster.workers))
            )
            raise_conflicts(self._find_unswept_conflicts())
        return self

    def _find_too_many_trials(self) -> Iterator[KeyConflict]:
        """Yield a conflict if the scenario has more trials than allowed; the trials are counted, not enumerated."""
        labels = ((None,) if self.baseline else ()) + tuple(self.strategies)
        combinations = sum(
            prod(len(axis.swept_values_or_names) for axis in self._sweep_axes_of_strategy(label).values())
            for label in labels
        )
        if combinations * self.repeats > MAX_TRIALS:
            message = (
                f"the scenario has {combinations * self.repeats:,} trials: {combinations:,} combinations of strategy "
                f"and swept values, times {self.repeats:,} repeats; at most {MAX_TRIALS:,} trials are allowed; "
                "reduce repeats, swept values or strategies"
            )
            yield KeyConflict(("sweep" if combinations > self.repeats else "repeats",), message)

    def _find_invalid_sweep_items(self) -> Iterator[KeyConflict]:
        document = self.encode()
        for name, axis in self.sweep.items():
            for path in axis.swept_key_paths(name):
                if message := unsweepable_key_reason(path, document):
                    yield KeyConflict(("sweep", name), message)
            counts = axis.list_swept_values(name, WORKERS_KEY_PATH)
            if invalid_counts := [v for v in counts if not (is_positive_int(v) and v <= MAX_WORKERS)]:
                message = (
                    f"the number of workers should be a whole number from 1 to {MAX_WORKERS:,}, "
                    f"not {invalid_counts[0]!r}"
                )
                yield KeyConflict(("sweep", name), message)

    def _unknown_nodes_or_strategies(self) -> Iterator[KeyConflict]:
        """Yield a conflict for every name of a node or strategy that exists in no trial of the sweep."""
        workers = max(self._swept_node_counts(WORKERS_KEY_PATH), default=self.cluster.workers)
        server_counts = (strategy.training_phases().server_count for strategy in self.strategies.values())
        servers = max((*self._swept_server_counts(), *server_counts))
        yield from prepend_parent_key("cluster", self.cluster.find_unknown_node_refs(workers, servers))
        yield from prepend_parent_key("events", event_conflicts(self.events, cluster_node_names(workers, servers)))
        yield from unknown_label_conflicts(self.published, list(self.strategies))

    def _swept_node_counts(self, count_key_path: str) -> Iterator[int]:
        """Yield the values of a swept key that counts nodes, such as the number of workers or of servers."""
        values = (value for name, axis in self.sweep.items() for value in axis.list_swept_values(name, count_key_path))
        return (value for value in values if is_positive_int(value) and value <= max(MAX_WORKERS, MAX_SERVERS))

    def _swept_server_counts(self) -> Iterator[int]:
        for label in self.strategies:
            for phase in ("", ".before", ".after"):  # keys of a strategy with two phases
                yield from self._swept_node_counts(f"strategies.{label}{phase}.servers")

    def _find_too_large_training(self) -> Iterator[KeyConflict]:
        """Yield a conflict if a trial has more training steps, or the model more parameters, than allowed."""
        layout = self.workload.model.parameter_layout(learning_task_of(self.workload.dataset).task)
        if (parameters := layout.parameter_count) > MAX_PARAMETERS:
            message = f"the model has {parameters:,} parameters; at most {MAX_PARAMETERS:,} are allowed"
            yield KeyConflict(("workload", "model"), message)
        steps_per_epoch = self.workload.steps_per_epoch(self.cluster.workers)
        if self.workload.epochs * steps_per_epoch > MAX_STEPS:
            message = (
                f"{self.workload.epochs:,} epochs of {steps_per_epoch:,} steps are more than {MAX_STEPS:,} steps; "
                f"at most {MAX_STEPS // steps_per_epoch:,} epochs are allowed with this batch"
            )
            yield KeyConflict(("workload", "epochs"), message)

    def _find_unswept_conflicts(self) -> Iterator[KeyConflict]:
        """Yield the conflicts between keys of a scenario without a sweep.

        These conflicts can be checked only if each key has a single value.
        """
        workers = self.cluster.workers
        for label, strategy in self.strategies.items():
            conflicts = strategy.find_scenario_conflicts(self._collect_scenario_sizes())
            yield from prepend_parent_key("strategies", prepend_parent_key(label, conflicts))
        schedule_conflicts = self.workload.schedule.find_budget_conflicts(self.workload.training_budget(workers))
        yield from prepend_parent_key("workload", prepend_parent_key("schedule", schedule_conflicts))
        if self.workload.global_batch_size(workers) < workers:
            message = (
                f"batch ({self.workload.batch}) is smaller than the number of workers ({workers}); use a batch of at "
                f"least {workers}, or fewer workers"
            )
            yield KeyConflict(("workload", "batch"), message)
        yield from self._find_too_frequent_evaluations()
        yield from self._find_samples_of_promoted_workers()
        yield from self._find_rate_changes_of_unshaped_links()
        yield from self._missing_throughput_conflicts()
        yield from self._find_operations_conflicts()
        yield from self._find_gpus_without_use()
        yield from self._find_too_little_memory()
        yield from self._find_too_slow_workers()
        yield from self._find_events_after_end()

    def _find_too_frequent_evaluations(self) -> Iterator[KeyConflict]:
        """Yield a conflict if a step would complete several evaluation points; the schedule has one per step."""
        every, batch = self.workload.evaluate_every, self.workload.global_batch_size(self.cluster.workers)
        if every is not None and every < batch:
            message = (
                f"evaluate_every ({every} samples) is smaller than the global batch ({batch} samples), but an "
                f"evaluation follows a whole step; use at least {batch}"
            )
            yield KeyConflict(("workload", "evaluate_every"), message)

    def _collect_scenario_sizes(self) -> ScenarioSizes:
        workers, workload = self.cluster.workers, self.workload
        layout = workload.model.parameter_layout(learning_task_of(workload.dataset).task)
        schedule = workload.evaluation_schedule(workers)
        return ScenarioSizes(
            workers=workers,
            steps=workload.total_steps(workers),
            steps_per_epoch=workload.steps_per_epoch(workers),
            evaluations=schedule.point_count,
            steps_between_evaluations=schedule.steps_between,
            array_sizes=tuple(prod(shape) for _, shape in layout.arrays),
            has_link_rates=self.cluster.has_link_rate_limits,
            whole_vector_need=workload.whole_vector_need,
        )

    def _find_samples_of_promoted_workers(self) -> Iterator[KeyConflict]:
        """Yield a conflict if workers own samples that are not used after a switch, because the workers then serve."""
        if not self.workload.summarise_parts(self.cluster.workers).sizes:
            return
        for label, strategy in self.strategies.items():
            switch = strategy.training_phases().switch
            if switch and 0 in (shares := switch.batch_shares_after_switch(self.cluster.workers)):
                message = (
                    f"strategy {label} turns worker-{shares.index(0)} into a server, so that the samples which it owns "
                    f"would not be used after the switch; use partition iid, or another placement in strategies.{label}"
                )
                yield KeyConflict(("workload", "partition"), message)

    def _find_rate_changes_of_unshaped_links(self) -> Iterator[KeyConflict]:
        """Yield a conflict for every event that changes the rate of a link without a declared rate."""
        for k, event in enumerate(self.events):
            for key in ("uplink", "downlink"):
                if not isinstance(event, LinkChange) or getattr(event, key) is None:
                    continue
                unshaped = [name for name in event.of if getattr(self.cluster.access_link(name), key) is None]
                if unshaped:
                    message = f"{unshaped[0]} has no declared {key} that the event could change; declare one in cluster"
                    yield KeyConflict(("events", k, key), message)

    def _missing_throughput_conflicts(self) -> Iterator[KeyConflict]:
        """Yield a conflict for every random event if a worker has no declared throughput.

        Random events need a predicted duration of the trial, which needs the throughput of every worker.
        """
        unpaced = self.workers_without_throughput
        for k, event in enumerate(self.events):
            if unpaced and event.at.random is not None:
                message = (
                    f"random events need a predicted duration, and {unpaced[0]} has no throughput to predict it from; "
                    "declare a throughput or utilisation for every worker, or use time, step or share instead of random"
                )
                yield KeyConflict(("events", k, "at", "random"), message)

    def _find_operations_conflicts(self) -> Iterator[KeyConflict]:
        """Yield a conflict if operations per sample are missing for a utilisation, or have no effect."""
        ranks = [rank for rank in range(self.cluster.workers) if self.worker_spec(rank).utilisation is not None]
        if ranks and self.workload.sample_operations is None:
            subject = (
                f"payload {self.workload.payload}" if self.workload.payload else f"model {self.workload.model.kind}"
            )
            message = (
                f"worker-{ranks[0]} declares a utilisation, but the operations per sample of {subject} are not known; "
                f"add for example flops_per_sample: {Operations.example}, or "
                "declare a throughput instead of the utilisation"
            )
            yield KeyConflict(("workload", "flops_per_sample"), message)
        if self.workload.flops_per_sample is not None and not ranks:
            message = (
                "flops_per_sample has no effect, since no worker declares a utilisation; remove it, or add for example "
                "utilisation: 0.4 and profile: h100 to cluster.worker"
            )
            yield KeyConflict(("workload", "flops_per_sample"), message)

    def _find_gpus_without_use(self) -> Iterator[KeyConflict]:
        """Yield a conflict if a worker must compute on a GPU, and the model does not accept its arrays."""
        ranks = [rank for rank in range(self.cluster.workers) if self.worker_spec(rank).device == "cuda"]
        if ranks and not self.workload.model.computes_on_gpu:
            message = (
                f"worker-{ranks[0]} declares device: cuda, but models of kind {self.workload.model.kind} compute on "
                "the CPU; write device: cpu"
            )
            yield KeyConflict(("cluster", "worker", "device"), message)

    def _find_too_little_memory(self) -> Iterator[KeyConflict]:
        """Yield a conflict if the container of a node has less memory than the packages of the model take."""
        model = self.workload.model
        worker_memory = min(self.worker_spec(rank).memory for rank in range(self.cluster.workers))
        for role, memory in (("worker", worker_memory), ("server", self.cluster.server.memory)):
            if memory < model.min_node_memory_bytes:
                message = (
                    f"a node that computes with a model of kind {model.kind} needs at least "
                    f"{model.min_node_memory_bytes >> 20}MiB, more than {memory}; write for example memory: 512MiB"
                )
                yield KeyConflict(("cluster", role, "memory"), message)

    def _find_too_slow_workers(self) -> Iterator[KeyConflict]:
        """Yield a conflict if a step of a worker takes longer than the longest duration allowed in a scenario.

        A clock that counts such times in seconds cannot represent the milliseconds of a message.
        """
        workers = self.cluster.workers
        order = self.workload.data_order(workers, self.seed)
        for rank, samples in enumerate(order.share_sizes(0, (1,) * workers)):
            speed = self.worker_compute_speed(rank)
            if speed and samples > Duration(Duration.largest) * speed.samples_per_s:
                key = "throughput" if self.worker_spec(rank).throughput else "utilisation"
                message = (
                    f"worker-{rank} computes {speed.samples_per_s:.3g} samples/s, so that its {samples:g} samples of a "
                    f"step take more than {Duration.largest}; declare a higher {key} or speed"
                )
                yield KeyConflict(("cluster", "worker", key), message)
                return

    def _find_events_after_end(self) -> Iterator[KeyConflict]:
        """Yield a conflict for every event that is declared at a step after the last training step."""
        steps = self.workload.total_steps(self.cluster.workers)
        for k, event in enumerate(self.events):
            if event.at.step is not None and event.at.step >= steps:
                message = f"step {event.at.step} is after the end of training; the budget has steps 0 to {steps - 1}"
                yield KeyConflict(("events", k, "at", "step"), message)


class TrialIdentity(FrozenRecord):
    """Strategy label, swept values and repeat, which identify one trial of a scenario."""

    index: int  # position in the list of trials
    label: str | None  # of the strategy; None is the baseline
    sweep_point: SweepPoint  # name of an axis -> value or name of a case
    repeat: int


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

    @classmethod
    def from_single_trial_scenario(cls, trial_identity: TrialIdentity, single_trial_scenario: Scenario) -> Self:
        """Return the trial that a scenario with a single trial describes.

        The trial has the identity `trial_identity`. The scenario has only the trial's strategy, swept values and seed.
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
        )


def swept_value_label(swept_value: Any) -> str | int | float:
    """Return a swept value as a label of a trial.

    A text or a number is unchanged; other values are returned as JSON.
    """
    return swept_value if isinstance(swept_value, str | int | float) else json.dumps(swept_value)


def folder_name_part(swept_value: str | float) -> str:
    """Return a swept value in a form that can be part of a folder name.

    The result has at most 24 characters of a-z, 0-9, dot and hyphen.
    """
    return re.sub(r"[^a-z0-9.]+", "-", str(swept_value).lower()).strip("-")[:24]
