"""Terminal tables of planned trials and of scenarios."""

import os
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.table import Table

from analysis.report.wording import (
    describe_compressed_traffic,
    describe_payload,
    format_bytes,
    format_number,
    format_worker_count,
)
from compose.scenario_files.load import load_scenario, read_first_comment
from compose.scenario_files.problems import SkippedScenarioError
from ensayo.terminal.terminal_text import format_duration, format_step_time, format_sweep_labels, trial_title
from ensayo.unknown_predictions import unknown_bytes_reason, unknown_step_reason
from services.compressors import find_density
from services.plan import Plan, PostSwitchPhasePlan
from services.plan.training.break_even_density import find_break_even_density

PIPED_WIDTH = 1000  # characters per line when stdout is not a terminal: wider than any row, so that none is wrapped


NOT_KNOWN = "not known"


def create_console() -> Console:
    """Return a console with the width of the terminal or of the environment variable COLUMNS.

    In a pipe, every row stays on one line.
    """
    is_piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=PIPED_WIDTH if is_piped else None)


def plan_table(plans: Sequence[Plan]) -> Table:
    """Return a table of planned trials with their predicted step times and wall times.

    The predicted wall time covers training on all samples of the budget.
    """
    table = Table(box=None, pad_edge=False, caption_justify="left")
    table.add_column("#")
    table.add_column("trial", overflow="fold")
    for column in ("compute", "exchange", "step", "sent/step", "steps", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    for plan in plans:
        table.add_row(*_plan_table_row(plan))
        if plan.second_phase:
            table.add_row(*_format_second_phase_row(plan.second_phase))
    total_s = sum(plan.estimated_training_wall_s for plan in plans)
    time = _format_wall_time(total_s) if all(plan.steps for plan in plans) else f"duration {NOT_KNOWN}"
    table.caption = f"{len(plans)} trials: {time}; starting and evaluating not counted"
    return table


def inapplicable_form_lines(plans: Sequence[Plan]) -> Iterable[str]:
    """Yield, for each reason, the trials whose training time no closed form describes."""
    trials_by_reason = defaultdict[str, list[str]](list)
    for plan in plans:
        if plan.training_inapplicable_reason and not unknown_step_reason(plan):
            trials_by_reason[plan.training_inapplicable_reason].append(plan.trial[:3])
    for reason, trials in trials_by_reason.items():
        yield f"no closed form for {', '.join(trials)}: {reason}; their times are estimates"


def compute_speed_lines(plans: Sequence[Plan]) -> Iterable[str]:
    """Yield one line for each declared compute speed: the workers, the speed and the keys from which it follows."""
    ranks_by_speed = defaultdict[tuple[float, str], set[int]](set)
    for node in (node for plan in plans for node in plan.node_plans_of_role("worker")):
        if node.throughput is not None:
            ranks_by_speed[node.throughput, node.throughput_derivation].add(node.rank)
    for (samples_per_s, derivation), ranks in ranks_by_speed.items():
        yield f"{_format_ranks(sorted(ranks))}: {samples_per_s:,.6g} samples/s = {derivation}"


def balance_lines(plans: Sequence[Plan]) -> Iterable[str]:
    """Yield one line for each trial with load balancing: the shares, and the step time that they give."""
    for plan in plans:
        if plan.balance is None:
            continue
        balance, name = plan.balance, f"#{plan.trial[:3]} load balancing at the declared speeds"
        if balance.shares is None or balance.equal_compute_s is None or balance.balanced_compute_s is None:
            number = plan.trial[:3]
            yield f"#{number} load balancing: shares follow measured speeds, and not every worker declares its speed"
            continue
        times = [format_step_time(seconds) for seconds in (balance.balanced_compute_s, balance.equal_compute_s)]
        step_s = balance.balanced_compute_s + plan.predicted.exchange_s
        speedup = balance.equal_compute_s / balance.balanced_compute_s
        yield (
            f"{name}: {describe_shares(balance.shares)} samples per step; compute {times[0]} instead of {times[1]} "
            f"with equal shares, {speedup:.2f} times as fast (at most {balance.speedup_bound:.2f}); step "
            f"{format_step_time(step_s)}"
        )


def describe_shares(shares: Sequence[int]) -> str:
    """Return shares of a batch by rank as text; runs of equal shares are written once, such as `7 x 68, 34`."""
    runs = [(share, len(list(group))) for share, group in groupby(shares)]
    return ", ".join(f"{count} x {share}" if count > 1 else f"{share}" for share, count in runs)


def _format_ranks(ranks: Sequence[int]) -> str:
    """Return the names of workers as text; three or more consecutive ranks become a range."""
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:  # noqa: PLR2004 - two are listed
        return f"worker-{ranks[0]} to worker-{ranks[-1]}"
    return ", ".join(f"worker-{rank}" for rank in ranks)


def payload_lines(plans: Sequence[Plan]) -> Iterable[str]:
    """Yield one line for each declared payload of the trials."""
    return dict.fromkeys(describe_payload(plan.payload) for plan in plans if plan.payload)


def compressed_traffic_lines(plans: Sequence[Plan]) -> Iterable[str]:
    """Yield one line for each strategy and number of workers whose all-reduce is compressed, on its traffic.

    There is one line for each combination of swept values if the traffic differs.
    """
    traffic = defaultdict[tuple[str, int], dict[float, list[str]]](dict)  # strategy, workers -> ratio -> swept values
    for plan in plans:
        for phase, suffix in ((plan, ""), (plan.second_phase, " after the switch")):
            if phase is not None and (ratio := phase.compressed_traffic_ratio) is not None:
                traffic[f"{plan.label}{suffix}", plan.workers].setdefault(ratio, []).append(
                    format_sweep_labels(plan.labels)
                )
    for (name, workers), swept_values_by_ratio in traffic.items():
        for ratio, swept_values in swept_values_by_ratio.items():
            condition = "" if len(swept_values_by_ratio) == 1 else f" ({'; '.join(dict.fromkeys(swept_values))})"
            yield describe_compressed_traffic(f"{name}{condition}", workers, ratio)


def break_even_density_lines(plans: Sequence[Plan]) -> Iterable[str]:
    """Yield a line for each sparse strategy and number of workers: the density up to which a step is shorter.

    There is one line for each combination of swept values if the densities differ.
    """
    lines = defaultdict[str, dict[str, list[str]]](dict)  # name of a strategy -> text about densities -> swept values
    for plan in plans:
        for name, text in _describe_break_even_densities(plan):
            lines[name].setdefault(text, []).append(format_sweep_labels(plan.labels))
    for name, swept_values_by_text in lines.items():
        for text, swept_values in swept_values_by_text.items():
            condition = "" if len(swept_values_by_text) == 1 else "; ".join(dict.fromkeys(swept_values))
            yield f"{', '.join(filter(None, [name, condition]))}: {text}"


def _describe_break_even_densities(plan: Plan) -> Iterable[tuple[str, str]]:
    """Yield the name of each sparse training phase of a trial, and a text about densities. Repeats yield nothing."""
    if plan.repeat or unknown_step_reason(plan):
        return
    for strategy, suffix in zip(plan.strategy.training_phases(), ("", " after the switch"), strict=False):
        density = find_density(strategy.describe_worker_exchange().compressor)
        break_even = find_break_even_density(strategy, plan.step_cost_model)
        if density is not None and break_even is not None:
            name = f"{plan.label}{suffix} on {format_worker_count(plan.workers)}"
            yield name, describe_break_even_density(density, break_even)


def describe_break_even_density(density: float, break_even_density: float) -> str:
    """Return up to which density, a share of the entries, sparse messages shorten the predicted step of a trial."""
    declared = f"(declared: {_format_density(density)})"
    if not break_even_density:
        return f"at no density, sparse messages shorten the step {declared}"
    if break_even_density == 1:
        return f"at every density, sparse messages shorten the step {declared}"
    text = f"sparse messages shorten the step up to a density of {_format_density(break_even_density)} {declared}"
    return f"{text}, so they do not pay" if density > break_even_density else text


def _format_density(density: float) -> str:
    return f"{format_number(100 * density)} %"


def _plan_table_row(plan: Plan) -> Iterable[str]:
    predicted = plan.predicted
    yield from (plan.trial[:3], trial_title(plan))
    times = (predicted.compute_s, predicted.exchange_s, predicted.step_s)
    yield from (NOT_KNOWN if unknown_step_reason(plan) else format_step_time(seconds) for seconds in times)
    sent = NOT_KNOWN if unknown_bytes_reason(plan) else format_bytes(sum(plan.bytes_per_step.values()))
    if not plan.steps:  # of a user's command, which is not known before its end
        yield from (sent, NOT_KNOWN, NOT_KNOWN)
        return
    yield from (sent, str(plan.steps), _format_wall_time(plan.estimated_training_wall_s))


def _format_second_phase_row(second_phase: PostSwitchPhasePlan) -> Iterable[str]:
    """Yield the table cells of the training phase after a strategy switch.

    The cells contain times and bytes, and the first step of the phase if the plan sets it.
    """
    predicted = second_phase.predicted
    yield from ("", "after the switch")
    yield from (format_step_time(seconds) for seconds in (predicted.compute_s, predicted.exchange_s, predicted.step_s))
    sent = format_bytes(sum(second_phase.bytes_per_step.values()))
    yield from (sent, "" if second_phase.planned_step is None else f"from {second_phase.planned_step}", "")


def _format_wall_time(wall_s: float) -> str:
    """Return a wall time as text.

    0, the wall time of trials in virtual time (not predicted), becomes `virtual`.
    """
    return format_duration(wall_s) if wall_s else "virtual"


def scenario_table(scenario_paths: Iterable[Path]) -> Table:
    """Return a table of scenarios: the question, the strategies and the number of trials of each.

    A scenario whose packages are missing on this host has the reason in place of its strategies.
    """
    table = Table("scenario", "question", "trials", "strategies", box=None, pad_edge=False)
    for path in scenario_paths:
        try:
            scenario = load_scenario(path)
        except SkippedScenarioError:
            table.add_row(path.stem, read_first_comment(path), "0", "needs packages that this host lacks")
            continue
        trials = str(sum(1 for _ in scenario.all_trial_identities()))
        table.add_row(path.stem, read_first_comment(path), trials, ", ".join(scenario.strategies))
    return table
