"""Planning of a trial whose workers run a training command of the user."""

from collections.abc import Sequence
from math import inf

import numpy as np

from services.cluster.addresses import AddressAllocator
from services.cluster.events import plan_event_occurrences
from services.plan.commands.command_plan import CommandPlan
from services.plan.commands.command_prediction import payload_bytes_sent, predict_collectives_s, predict_command_step
from services.plan.cost import DTYPE_BY_PRECISION, ModelVector, build_cost_model, choose_message_size_limits
from services.plan.node_plan import NodePlan
from services.plan.nodes import get_auto_collective_sizes, plan_network, plan_nodes
from services.plan.prediction import explain_inapplicable_forms_of_cluster
from services.scenario.commands.command_workload import CommandWorkload
from services.scenario.commands.step_profile import StepProfile, measure_step_profile
from services.scenario.run_settings import EngineName
from services.scenario.scenario import AUTO, TrialSpec
from services.strategies import CommandStrategy
from services.strategies.cost_model import CostModel, StepTimePrediction

DRAWN_STEPS = 500  # for the mean compute time of the slowest worker, if speeds vary
NO_STEP = StepTimePrediction(compute_s=0.0, exchange_s=0.0, formula="")


def make_command_plan(
    trial: TrialSpec,
    run_id: str,
    engine: EngineName,
    address_allocator: AddressAllocator,
    question: str = "",
    *,
    dilation: float = 1.0,
    alpha_s: float = 0.0,
) -> CommandPlan:
    """Return the plan of one trial that runs a command; arguments as for `make_training_plan`."""
    scenario, workload, strategy = trial.scenario, trial.scenario.workload, trial.strategy
    if not isinstance(workload, CommandWorkload) or not isinstance(strategy, CommandStrategy):
        raise TypeError(f"trial {trial.id} runs no command")
    workers, (profile, reason) = (
        scenario.cluster.workers,
        measure_step_profile(workload, scenario.cluster.workers, trial.seed),
    )
    nodes = plan_nodes(scenario, 0, address_allocator, engine)
    network, vector = plan_network(scenario, nodes), _exchanged_vector(profile)
    trial_dilation = dilation if scenario.dilation == AUTO else scenario.dilation
    limits = choose_message_size_limits(engine, scenario.transport, vector.size_bytes, is_declared_size=False)
    cost = build_cost_model(nodes, network, vector, alpha_s / trial_dilation, limits)
    sizes = get_auto_collective_sizes(scenario, nodes, ((vector.entries,),), (), vector.entry_bytes, cost)
    strategy, exchange_s_by_choice = strategy.resolve_auto_collective(sizes, cost)
    cluster_reason = explain_inapplicable_forms_of_cluster(scenario, nodes, network)
    compute_s = _mean_slowest_compute_s(nodes, workload.batch_per_worker, trial.seed)
    predicted = _predict_step(profile, strategy, cost, compute_s, cluster_reason or reason)
    return CommandPlan(
        run=run_id,
        trial=trial.id,
        label=trial.label,
        engine=engine,
        baseline=trial.baseline,
        repeat=trial.repeat,
        seed=trial.seed,
        labels=trial.labels,
        question=question,
        strategy=strategy,
        precision="fp32",
        batch=workload.batch_per_worker * workers,
        target=workload.target,
        stop_at_target=False,
        steps=0,
        parameters=vector.entries,
        vector_bytes=vector.size_bytes,
        workers=workers,
        servers=0,
        nodes=nodes,
        shards=(),
        schedule=strategy.training_phases().first.collective_schedule(workers),
        network=network,
        events=plan_event_occurrences(scenario.events, 1, 0.0, trial.seed, trial.event_positions),
        dilation=trial_dilation,
        transport=scenario.transport,
        security=scenario.security,
        timeouts=scenario.timeouts,
        fidelity=scenario.fidelity,
        strict=scenario.strict,
        bytes_per_step=_bytes_per_step(profile, strategy, nodes),
        reply_bytes_per_step={},
        predicted=predicted,
        training_inapplicable_reason="the number of steps of a command is not known before it ends",
        exchange_s_by_choice=exchange_s_by_choice,
        alpha_s=cost.alpha_s,
        command=workload.command_words(workers, trial.seed),
        workload=workload,
        step_profile=profile,
        no_step_profile_reason=reason,
        collective_s=predict_collectives_s(profile, strategy, cost) if profile else (),
        racks=sizes.racks,
    )


def _exchanged_vector(profile: StepProfile | None) -> ModelVector:
    """Return a vector as large as all tensors that a step exchanges; one entry if they are not known."""
    size_bytes = sum(call.bytes for call in profile.collectives) if profile else 0
    return ModelVector(max(1, round(size_bytes / 4)), DTYPE_BY_PRECISION["fp32"])


def _bytes_per_step(
    profile: StepProfile | None, strategy: CommandStrategy, nodes: Sequence[NodePlan]
) -> dict[str, int | float]:
    """Return the payload bytes that each worker sends per step; empty if those of a collective are not known."""
    workers = [node for node in nodes if node.role == "worker"]
    runs_on_gloo = strategy.process_group == "gloo"
    sent = {
        node.name: [
            payload_bytes_sent(call, strategy, len(workers), node.rank, runs_on_gloo=runs_on_gloo)
            for call in (profile.collectives if profile else ())
        ]
        for node in workers
    }
    if profile is None or any(size is None for sizes in sent.values() for size in sizes):
        return {}
    return {name: sum(size or 0.0 for size in sizes) for name, sizes in sent.items()}


def _predict_step(
    profile: StepProfile | None,
    strategy: CommandStrategy,
    cost_model: CostModel,
    compute_s: float,
    inapplicable_reason: str,
) -> StepTimePrediction:
    """Return the predicted step time of a command; without a profile, only the reason why there is none."""
    if profile is None:
        return NO_STEP.model_copy(update={"inapplicable_reason": inapplicable_reason})
    predicted = predict_command_step(profile, strategy, cost_model, compute_s)
    return predicted.model_copy(update={"inapplicable_reason": inapplicable_reason or predicted.inapplicable_reason})


def _mean_slowest_compute_s(nodes: Sequence[NodePlan], batch_per_worker: int, seed: int) -> float:
    """Return the mean over steps of the compute time of the slowest worker, in virtual seconds."""
    workers = [node for node in nodes if node.role == "worker" and node.throughput]
    if not workers:
        return 0.0
    seconds = np.array([[batch_per_worker / (node.throughput or inf) for node in workers]])
    if not any(node.variation for node in workers):
        return float(seconds.max())
    factors = [
        [node.variation.duration_factor(seed, node.rank, step) if node.variation else 1.0 for node in workers]
        for step in range(DRAWN_STEPS)
    ]
    return float((seconds * np.array(factors)).max(axis=1).mean())
