"""What would run, and what is there to run? Tables for the terminal."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.table import Table

from compose.load import load, question
from ensayo.wording import duration, labels, size
from services.plan import Plan
from services.scenario import Scenario


def plan_table(plans: Sequence[Plan]) -> Table:
    """Each trial with its predicted step; the total is what the whole run takes."""
    table = Table("trial", "strategy", "workers", "swept", box=None, caption_justify="left")
    for column in ("steps", "compute ms", "exchange ms", "step ms", "sent per step", "time"):
        table.add_column(column, justify="right")
    for plan in plans:
        table.add_row(*_row(plan))
    total = sum(plan.estimated_wall_s for plan in plans)
    table.caption = (
        f"{len(plans)} trials, {duration(total)} without starting and evaluating; links, pace and dilation as declared."
    )
    return table


def _row(plan: Plan) -> Iterable[str]:
    predicted = plan.predicted
    times = (f"{1000 * s:.4g}" for s in (predicted.compute_s, predicted.exchange_s, predicted.step_s))
    sent = size(sum(plan.bytes_per_step.values()))
    return (
        *(plan.trial, plan.label, str(plan.workers), labels(plan.labels)),
        *(str(plan.steps), *times, sent, duration(plan.estimated_wall_s)),
    )


def scenario_table(paths: Iterable[Path]) -> Table:
    """Every scenario with the question that it answers."""
    table = Table("scenario", "question", "trials", "strategies", box=None, pad_edge=False)
    for path in paths:
        scenario: Scenario = load(path)
        trials = str(sum(1 for _ in scenario.choices()))
        table.add_row(path.stem, question(path), trials, ", ".join(scenario.strategies))
    return table
