"""Results page of the benchmark of recovery."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev

from benchmarks.markdown import markdown_table
from benchmarks.recovery.cases import (
    ABSENCE_S,
    HEARTBEAT_TIMEOUT,
    KILL_STEP,
    MEAN_GAP_S,
    RESTART_DELAY,
    SCHEDULE_SEED,
    SEEDS,
)
from benchmarks.recovery.gates import Gate, describe_seconds, list_gates
from benchmarks.recovery.measurements import LongTrial, RecoveryMeasurements
from benchmarks.recovery.trials import MeasuredTrial

RESULTS_PAGE = Path(__file__).parents[2] / "docs" / "results" / "recovery.md"
MIB = 1 << 20


def format_gates(gates: Sequence[Gate]) -> str:
    """Return the table of the gates in Markdown; a missed limit is marked."""
    rows = ((gate.description, gate.measured, _mark(gate)) for gate in gates)
    return "\n".join(markdown_table(("measurement", "measured", "limit"), rows))


def _mark(gate: Gate) -> str:
    return gate.limit if gate.is_met else f"{gate.limit} (**not met**)"


def format_page(measured: RecoveryMeasurements, long: LongTrial, engine: str, origin: str) -> str:
    """Return the results page; `origin` has the machine and the commit."""
    introduction = (
        f"`make bench-recovery` on {origin}. Engine `{engine}`. Seconds are those of the trials; no trial is dilated. "
        "A range is from the smallest to the largest value."
    )
    sections = [
        f"# Recovery from kills\n\n{introduction}",
        format_gates(list(list_gates(measured))),
        f"## One of four workers is killed\n\n{_format_phases(measured)}",
        f"## {long.declared_kills} kills in one training of eight workers\n\n{_format_long_trial(long)}",
        f"## Memory and file descriptors\n\n{_format_growth(long)}",
        f"## Verdicts\n\n{_format_verdicts(measured, long)}",
        f"## Method\n\n{_rules(long)}",
    ]
    return "\n\n".join(sections) + "\n"


def _format_phases(measured: RecoveryMeasurements) -> str:
    header = (
        "policy",
        "trials",
        "kill to end of the process seen",
        "kill to loss known",
        "kill to last worker that continues",
        "kill to membership of four",
        "kill to first step of all four",
    )
    rows = (
        _phase_row(name, trials) for name, trials in (("continue", measured.continued), ("rejoin", measured.rejoined))
    )
    return "\n".join(markdown_table(header, rows))


def _phase_row(policy: str, trials: Sequence[MeasuredTrial]) -> tuple[str, ...]:
    outcomes = [outcome for trial in trials for outcome in trial.outcomes]
    phases: tuple[Sequence[float | None], ...] = (
        [outcome.ended_s - outcome.killed_s for outcome in outcomes],
        [outcome.detection_s for outcome in outcomes],
        [outcome.recovery_s for outcome in outcomes],
        [outcome.absence_s for outcome in outcomes],
        [outcome.return_s for outcome in outcomes],
    )
    return f"`{policy}`", str(len(trials)), *map(describe_seconds, phases)


def _format_long_trial(long: LongTrial) -> str:
    header = ("training", "seconds", "goodput", "lost steps", "detection", "recovery", "absence", "other", "final loss")
    rows = [
        _training_row(f"{long.declared_kills} kills", long.trial),
        _training_row("costs of a kill", long.cost_trial),
    ]
    return "\n\n".join(["\n".join(markdown_table(header, rows)), *_describe_costs(long), *_describe_losses(long)])


def _training_row(name: str, trial: MeasuredTrial) -> tuple[str, ...]:
    goodput, seconds = trial.result.goodput, trial.result.seconds
    shares = (goodput.share, goodput.lost_steps, goodput.detection, goodput.recovery, goodput.absence, goodput.other)
    cells = ("–" if share is None else f"{share:.4f}" for share in shares)
    loss = trial.result.final.get("loss")
    return name, "–" if seconds is None else f"{seconds:.1f}", *cells, "–" if loss is None else f"{loss:.6f}"


def _describe_costs(long: LongTrial) -> Iterator[str]:
    costs, expected = long.costs, long.expected
    yield (
        f"Costs of one kill, means of {len(long.cost_trial.outcomes)} kills in a trial of their own: detection D = "
        f"{costs.detection_s:.2f} s, recovery R = {costs.recovery_s:.2f} s, absence A = {costs.absence_s:.2f} s, join "
        f"J = {costs.join_s:.2f} s; a step takes S = {costs.step_s:.3f} s. With them, the closed form predicts a "
        f"goodput of {expected.goodput:.4f} and {expected.seconds:.0f} s."
    )
    losses = sum((loss.detection_s or 0.0) > 0 for loss in long.trial.result.node_losses)  # 0: started again before
    yield (
        f"In the training with {long.declared_kills} kills, the coordinator found {losses} losses. It finds no loss "
        "where the worker joins again before the timeout, and it may find losses without a kill where the host is "
        "overloaded."
    )


def _describe_losses(long: LongTrial) -> Iterator[str]:
    if not long.trial.result.is_finished:
        return
    losses = [trial.result.final["loss"] for trial in long.undisturbed]
    difference = long.trial.result.final["loss"] - losses[0]
    yield (
        f"Final losses of {len(losses)} undisturbed trainings: mean {mean(losses):.6f}, standard deviation "
        f"{stdev(losses):.6f}, range {min(losses):.6f} – {max(losses):.6f}. With the seed of the disturbed training, "
        f"the loss without kills is {losses[0]:.6f}: the kills changed it by {difference:+.1e}."
    )


def _format_growth(long: LongTrial) -> str:
    if not long.growth_by_node:
        return "Not measured: no process of a node could be read in `/proc`."
    header = ("node", "wall seconds", "resident memory, MiB", "open file descriptors")
    rows = (
        (
            node,
            f"{growth.seconds:.0f}",
            f"{growth.resident_bytes[0] / MIB:.1f} → {growth.resident_bytes[1] / MIB:.1f}",
            f"{growth.descriptors[0]} → {growth.descriptors[1]}",
        )
        for node, growth in sorted(long.growth_by_node.items())
    )
    table = "\n".join(markdown_table(header, rows))
    return (
        "The process of each node that lived longest in the training with many kills: 10 s after its first sample, and "
        f"at its last one. The coordinator is never killed.\n\n{table}"
    )


def _format_verdicts(measured: RecoveryMeasurements, long: LongTrial) -> str:
    """Return the verdict of each trial with kills, as the report of a run gives it, with its reasons."""
    groups = {
        "`continue`": measured.continued,
        "`rejoin`": measured.rejoined,
        "costs of a kill": (long.cost_trial,),
        f"{long.declared_kills} kills": (long.trial,),
    }
    rows = (
        (name, trial.result.verdict, "; ".join(trial.result.reasons))
        for name, trials in groups.items()
        for trial in trials
    )
    return "\n".join(markdown_table(("trial", "verdict", "reasons"), rows))


def _rules(long: LongTrial) -> str:
    return f"""\
- **Kills.** The engine sends SIGKILL to all processes of the node. A time begins when the kill is due, shortly before \
the signal, and includes the delay of the engine.
- **One kill.** Four workers, steps of 200 ms, worker-2 is killed at step {KILL_STEP}, with the default \
`heartbeat_timeout` (2 s) and `restart_delay` (1 s). Under `rejoin`, the restarted worker may join before its loss is \
known; the loss then has no time.
- **Many kills.** Eight workers, steps of 500 ms, `rejoin` with a `heartbeat_timeout` of {HEARTBEAT_TIMEOUT} and a \
`restart_delay` of {RESTART_DELAY}. Each worker is killed after \
exponential gaps with a mean of {MEAN_GAP_S:g} s, and not in the {ABSENCE_S:g} s after its last kill, so that each \
kill ends a process. The schedule has the seed {SCHEDULE_SEED}. The number of epochs follows from the expected \
goodput, so that training goes on a little after the last kill.
- **Closed form.** Eight workers have 8·T seconds. With K kills, a worker trains for M = 8·T/K - A between two kills. \
The goodput g(M) is the formula of `rejoin` in [statistics.md](../statistics.md#goodput-under-failures), and T = W/g, \
where W is the time of all samples without kills. D, R, A, J and S come from another trial, in which \
{len(long.cost_trial.outcomes)} kills do not overlap; nothing is fitted.
- **Loss.** The limit was fixed before the first measurement. The {SEEDS} undisturbed trainings run in virtual time: \
synchronous training has the same bits on all engines.
- **No trial is repeated**, and no kill is left out. Missed limits stay on the page, and the command ends with exit \
code 1."""
