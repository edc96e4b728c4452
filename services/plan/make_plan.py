"""Planning of a trial: everything that can be decided before it starts."""

from math import isfinite

import numpy as np

from services.cluster.addresses import Addressing, Nowhere
from services.cluster.events import decide
from services.learning.data_order import apportion
from services.plan.cost import DTYPES, cost_model, message_lengths
from services.plan.nodes import plan_network, plan_nodes, plan_site
from services.plan.plan import AfterSwitch, Plan
from services.scenario.scenario import AUTO, EngineName, Trial
from services.scenario.workload import posed
from services.strategies import Phases, PhaseStrategy
from services.strategies.base import BytesPerStep
from services.strategies.cost_model import CostModel, StepPrediction
from services.strategies.served_prediction import ServerBasedPrediction

HORIZON = 3.0  # random events are drawn for so many times the predicted duration


def make_plan(
    trial: Trial,
    run: str,
    engine: EngineName,
    addressing: Addressing,
    question: str = "",
    *,
    dilation: float = 1.0,
    alpha_s: float = 0.0,
) -> Plan:
    """Decide everything about one trial; the same arguments give the same plan.

    It is long because a plan has many fields, and each is decided here, once.

    Args:
        trial: one combination of a scenario.
        run: identifier of the run.
        engine: what will start the nodes.
        addressing: addresses that are free for them.
        question: the scenario's, for the report.
        dilation: where the scenario leaves it to this host.
        alpha_s: wall seconds that this host adds to a message, as calibrated; 0 when it is not known.
    """
    scenario = trial.scenario
    work, workers = scenario.workload, scenario.cluster.workers
    task, samples = posed(work.dataset)
    batch = work.global_batch(workers)
    layout = work.model.layout(task)
    itemsize = int(DTYPES[work.precision].removeprefix("float")) // 8
    steps = work.steps(workers)
    nodes = plan_nodes(scenario, trial.strategy.phases().server_count, addressing)
    network = plan_network(scenario, nodes)
    slower = dilation if scenario.dilation == AUTO else scenario.dilation
    cut = message_lengths(engine, scenario.transport, layout.size * itemsize)
    cost = cost_model(nodes, network, layout.size, DTYPES[work.precision], batch, alpha_s / slower, cut)
    site = plan_site(scenario, nodes, layout, itemsize, cost)
    strategy, choices = trial.strategy.resolve(site, cost)
    phases = strategy.phases()
    first, algorithm, traits = phases.first, phases.server_algorithm, phases.first.phase_traits()
    predicted = first.predict(cost)
    sent = first.bytes_per_step(workers, layout.size, DTYPES[work.precision])
    after = _after(phases, trial, cost, steps)
    predicted_s = _budget_s(predicted, steps, after, batch, workers)
    drawn_s = predicted_s * HORIZON
    return Plan(
        run=run,
        trial=trial.id,
        label=trial.label,
        engine=engine,
        baseline=trial.baseline,
        repeat=trial.repeat,
        seed=trial.seed,
        labels=trial.labels,
        question=question,
        dataset=work.dataset,
        model=work.model,
        optimiser=first.optimiser(work.optimiser, workers),
        strategy=strategy,
        precision=work.precision,
        batch=batch,
        epochs=work.epochs,
        target=work.target,
        stop_at_target=work.stop == "target",
        train_samples=samples,
        eval_samples=len(work.dataset.load(DTYPES[work.precision]).test_x),
        steps_per_epoch=work.steps_per_epoch(workers),
        steps=steps,
        parameters=layout.size,
        vector_bytes=layout.size * itemsize,
        workers=workers,
        servers=phases.server_count,
        nodes=nodes,
        shards=algorithm.shard_ranges(workers, layout.size) if algorithm else (),
        holders=algorithm.shard_owners(cost.workers, cost.servers) if algorithm else (),
        schedule=first.schedule(workers),
        dilation=slower,
        alpha_s=alpha_s / slower,
        transport=scenario.transport,
        security=scenario.security,
        timeouts=scenario.timeouts,
        fidelity=scenario.fidelity,
        synchronous=traits.is_synchronous,
        exchanges_every=traits.exchange_period,
        bytes_per_step=_bytes_per_step(sent, phases.server_count),
        answered_per_step=_answered_per_step(sent),
        predicted=predicted,
        predicted_s=predicted_s,
        saturates_at=_saturates_at(phases, cost),
        choices=choices,
        after=after,
        network=network,
        events=decide(scenario.events, steps, drawn_s, trial.seed),
        horizon_s=drawn_s if any(what.at.random for what in scenario.events) else None,
        strict=scenario.strict,
    )


def horizon_s(trial: Trial) -> float:
    """Virtual seconds for which random events are drawn, whatever they are."""
    quiet = trial.model_copy(update={"scenario": trial.scenario.model_copy(update={"events": ()})})
    plan = make_plan(quiet, "", "simulated", Nowhere())
    return plan.predicted_s * HORIZON


def _after(phases: Phases, trial: Trial, cost: CostModel, steps: int) -> AfterSwitch | None:
    """Return what holds after a switch; None without one."""
    switch = phases.switch
    if switch is None:
        return None
    work, workers, servers = trial.scenario.workload, len(cost.workers), phases.server_count
    optimiser = switch.optimiser(work.optimiser, workers)
    sent = switch.second.bytes_per_step(workers, cost.entries, cost.dtype)
    slots = len(optimiser.init(np.zeros(1)).slots)
    return AfterSwitch(
        step=switch.rule.planned_step(steps, work.steps_per_epoch(workers)),
        optimiser=optimiser,
        schedule=switch.second.schedule(workers),
        bytes_per_step=_bytes_per_step(sent, servers),
        answered_per_step=_answered_per_step(sent),
        predicted=switch.second.predict(cost),
        synchronous=switch.second.phase_traits().is_synchronous,
        shares=switch.worker_weights(workers),
        latencies_s=(_latency_s(switch.first, cost), _latency_s(switch.second, cost)),
        hand_over_bytes=_bytes_per_step(switch.hand_over_bytes(workers, cost.entries, cost.dtype, slots), servers),
    )


def _saturates_at(phases: Phases, cost: CostModel) -> float | None:
    """Return the number of workers that saturate the servers' links in the asynchronous phase; None without a limit.

    Where workers own shards, more workers are more servers, and no number of them saturates all links.
    """
    for phase in phases:
        algorithm = phase.server_algorithm()
        if algorithm and not algorithm.synchroniser.runs_in_rounds:
            if set(cost.workers) & set(algorithm.shard_owners(cost.workers, cost.servers)):
                return None
            workers = ServerBasedPrediction(algorithm, phase.phase_traits().exchange_period, cost).saturation_workers()
            return workers if isfinite(workers) else None
    return None


def _latency_s(phase: PhaseStrategy, cost: CostModel) -> float:
    """What the closed form leaves of an exchange when bytes take no time."""
    free = dict.fromkeys(cost.uplink_s_per_byte, 0.0)
    network = cost.network.model_copy(update={"pipes": ()})
    return phase.predict(
        cost.model_copy(update={"uplink_s_per_byte": free, "downlink_s_per_byte": free, "network": network})
    ).exchange_s


def _budget_s(predicted: StepPrediction, steps: int, after: AfterSwitch | None, batch: int, workers: int) -> float:
    """Virtual seconds of a budget of `steps`; with the slower strategy where only losses tell when it switches."""
    shares = apportion(batch, (1,) * workers)
    if after is None:
        return predicted.budget_s(steps, shares)
    left = [share for share in apportion(batch, after.shares) if share]
    if after.step is None:
        return max(predicted.budget_s(steps, shares), after.predicted.budget_s(steps, left))
    return predicted.budget_s(after.step, shares) + after.predicted.budget_s(steps - after.step, left)


def _answered_per_step(sent: BytesPerStep) -> dict[str, float]:
    """Return the payload bytes per worker and step that reply to other workers' pushes."""
    return {f"worker-{rank}": count for rank, count in enumerate(sent.replies)}


def _bytes_per_step(sent: BytesPerStep, servers: int) -> dict[str, float]:
    """Return the payload bytes per node and step; servers of another phase send none."""
    by_worker = {f"worker-{rank}": count for rank, count in enumerate(sent.workers)}
    return by_worker | {f"server-{rank}": count for rank, count in enumerate(sent.servers or (0,) * servers)}
