"""Search over many seeds on all cores, and the text of its findings."""

import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from analysis.reading.parallel import ProcessPool
from compose.scenario_files.load import find_scenario, load_scenario
from compose.scenario_files.yaml_document import parse_yaml, write_yaml
from ensayo.fault_search.fault_schedule import FaultSchedule
from ensayo.fault_search.invariants import Violation, find_violation
from ensayo.fault_search.schedule_draw import draw_schedule
from ensayo.fault_search.shrinking import shrink_schedule
from ensayo.fault_search.strategy_table import STRATEGY_TABLE, StrategyDocument
from services.scenario.scenario import Scenario
from services.schema.errors import UserError

SEEDS_PER_TASK = 25
MAX_SHRUNK = 3  # failing seeds whose schedules are shrunk, which takes up to 200 simulations each


class SeedFailure(NamedTuple):
    """Seed whose schedule violates an invariant."""

    seed: int
    violation: Violation


@dataclass(frozen=True)
class SearchResult:
    """Findings of a search over seeds."""

    schedule_count: int
    failures: tuple[SeedFailure, ...]
    seconds: float

    @property
    def summary(self) -> str:
        """One sentence with the number of schedules, their rate and the number of failures."""
        found = f"{len(self.failures)} violate an invariant" if self.failures else "all invariants hold"
        rate = self.schedule_count / max(self.seconds, 1e-9)
        return f"{self.schedule_count} fault schedules in {self.seconds:.1f} s ({rate:.1f}/s): {found}"


def choose_strategies(scenario: str | None, label: str | None) -> dict[str, StrategyDocument]:
    """Return the strategies to disturb: of a scenario, or of the default table; one of them if a label is given.

    Raises:
        UserError: there is no such strategy, or the scenario has a strategy that the search can't simulate.
    """
    strategies = STRATEGY_TABLE if scenario is None else _strategies_of_scenario(scenario)
    if label is None:
        return strategies
    if label not in strategies:
        raise UserError(f"--strategy {label}: there is no such strategy; strategies are {', '.join(strategies)}")
    return {label: strategies[label]}


def _strategies_of_scenario(scenario: str) -> dict[str, StrategyDocument]:
    strategies = load_scenario(find_scenario(scenario)).strategies
    for label, strategy in strategies.items():
        if strategy.kind in ("auto", "command"):
            raise UserError(
                f"{scenario}: strategies.{label}: the fault search can't simulate the kind {strategy.kind}; name "
                "another strategy of the scenario with --strategy, or remove this one"
            )
    return {label: strategy.model_dump(mode="json") for label, strategy in strategies.items()}


def parse_seeds(text: str) -> range:
    """Return the seeds of a text such as `17` or `0-999`, both ends included.

    Raises:
        UserError: the text is no number and no range of numbers.
    """
    match = re.fullmatch(r"([0-9]+)(?:-([0-9]+))?", text)
    seeds = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
    if not seeds:
        raise UserError(f"--seeds {text}: write one seed, such as 17, or a range, such as 0-999")
    return seeds


def search_seeds(
    seeds: Sequence[int], strategies: Mapping[str, StrategyDocument], *, single_process: bool = False
) -> SearchResult:
    """Simulate the fault schedules of all seeds, and return the seeds that violate an invariant."""
    started_s = time.monotonic()
    tasks = [seeds[k : k + SEEDS_PER_TASK] for k in range(0, len(seeds), SEEDS_PER_TASK)]
    with ProcessPool(single_process=single_process or len(tasks) == 1) as pool:
        results = pool.map(partial(_search_some_seeds, strategies=strategies), tasks)
    failures = tuple(failure for result in results for failure in result)
    return SearchResult(len(seeds), failures, time.monotonic() - started_s)


def _search_some_seeds(seeds: Sequence[int], strategies: Mapping[str, StrategyDocument]) -> list[SeedFailure]:
    violations = ((seed, find_violation(draw_schedule(seed, strategies))) for seed in seeds)
    return [SeedFailure(seed, violation) for seed, violation in violations if violation is not None]


def describe_failures(
    search_result: SearchResult,
    strategies: Mapping[str, StrategyDocument],
    scenario: str | None = None,
    label: str | None = None,
) -> Iterator[str]:
    """Yield texts on each failing seed: the violated invariant with a command that replays the seed.

    For the first failing seeds, a smaller schedule that violates the invariant follows.
    """
    choice = [*([scenario] if scenario else ()), *(("--strategy", label) if label else ())]
    for number, (seed, violation) in enumerate(search_result.failures):
        command = shlex.join(["ensayo", "search-faults", *choice, "--seeds", str(seed)])
        yield f"seed {seed} violates {violation.invariant}: {violation.explanation}\n  replay: {command}"
        if number < MAX_SHRUNK:
            shrunk = shrink_schedule(draw_schedule(seed, strategies), violation)
            yield (
                "  smallest schedule found that violates it; save it and replay it with "
                f"ensayo search-faults --replay FILE:\n{write_schedule(shrunk)}"
            )


def write_schedule(schedule: FaultSchedule) -> str:
    """Return a schedule as YAML."""
    return write_yaml(schedule.model_dump(mode="json", exclude_none=True), "fault schedule")


def read_schedule(path: Path) -> FaultSchedule:
    """Return the schedule of a YAML file.

    Raises:
        UserError: the file can't be read, or is no schedule that can be simulated.
    """
    try:
        schedule = FaultSchedule.model_validate(parse_yaml(path.read_text(encoding="utf-8"), str(path)).data)
        Scenario.decode(schedule.to_scenario_document())
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror}") from error
    except (ValidationError, ValueError) as error:
        raise UserError(f"{path}: not a valid fault schedule: {error}") from error
    return schedule
