"""What would run, and what is there to run? Tables for the terminal."""

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from compose.scenario_files.load import load_scenario, read_question
from ensayo.terminal_text import duration, size, title
from services.plan import Plan, SecondPhase

PIPED = 1000  # columns of what is no terminal: wider than any row, so that none breaks inside a word


def console() -> Console:
    """As wide as the terminal, or as COLUMNS says; what is piped keeps each row on one line."""
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(width=PIPED if piped else None)


def plan_table(plans: Sequence[Plan]) -> Table:
    """Each trial with its predicted step, and the wall time that its whole budget takes."""
    table = Table(box=None, pad_edge=False, caption_justify="left")
    table.add_column("#")
    table.add_column("trial", overflow="fold")
    for column in ("compute", "exchange", "step", "sent/step", "steps", "time"):
        table.add_column(column, justify="right", no_wrap=True)
    for plan in plans:
        table.add_row(*_row(plan))
        if plan.second_phase:
            table.add_row(*_after(plan.second_phase))
    total_s = sum(plan.estimated_wall_s for plan in plans)
    table.caption = f"{len(plans)} trials: {_wall(total_s)}; starting and evaluating not counted"
    return table


def _row(plan: Plan) -> Iterable[str]:
    predicted = plan.predicted
    yield from (plan.trial[:3], title(plan))
    yield from (f"{1000 * seconds:.3g} ms" for seconds in (predicted.compute_s, predicted.exchange_s, predicted.step_s))
    yield from (size(sum(plan.bytes_per_step.values())), str(plan.steps), _wall(plan.estimated_wall_s))


def _after(after: SecondPhase) -> Iterable[str]:
    """What a step costs once another strategy has taken over, and when that is, where it is known."""
    predicted = after.predicted
    yield from ("", "after the switch")
    yield from (f"{1000 * seconds:.3g} ms" for seconds in (predicted.compute_s, predicted.exchange_s, predicted.step_s))
    yield from (
        size(sum(after.bytes_per_step.values())),
        "" if after.planned_step is None else f"from {after.planned_step}",
        "",
    )


def _wall(seconds: float) -> str:
    """A trial in virtual time waits for nothing; how long its mathematics takes is not predicted."""
    return duration(seconds) if seconds else "virtual"


def scenario_table(paths: Iterable[Path]) -> Table:
    """Every scenario with the question that it answers."""
    table = Table("scenario", "question", "trials", "strategies", box=None, pad_edge=False)
    for path in paths:
        scenario = load_scenario(path)
        trials = str(sum(1 for _ in scenario.trial_choices()))
        table.add_row(path.stem, read_question(path), trials, ", ".join(scenario.strategies))
    return table
