"""Results page of strategy `auto`: the ratio of its step to that of the best fixed candidate, by case."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis.report.wording import format_number
from benchmarks.auto.cases import STEPS_BY_GUARD, AutoCase
from benchmarks.markdown import markdown_table
from services.plan import StrategyChoice

RESULTS_PAGE = Path(__file__).parents[2] / "docs" / "results" / "auto.md"
CLOSE_RATIO, LEAST_CLOSE_SHARE, LARGEST_RATIO = 1.1, 0.8, 1.5
INTRODUCTION = f"""# Strategy `auto` against the best fixed strategy

`make bench-auto ARGS=--write` writes this page. [docs/auto.md](../auto.md) describes the strategy.

- Each case is one scenario in virtual time: a cluster, a model and a quality guard that were not used to build the
  strategy (`benchmarks/auto/cases.py`).
- **Chosen**: mean step of a trial with `kind: auto` and its default keys, of {STEPS_BY_GUARD["exact"]} steps, or of
  {STEPS_BY_GUARD["lossy"]} with `lossy`. Probes run before the trial and are not part of it.
- **Best**: least mean step of the same trial under each candidate of the default list, declared as a fixed strategy.
- **Ratio**: chosen / best. **By prediction**: the same ratio for the candidate with the least predicted step, which
  would be chosen without probes.
- All candidates are compared by the time of a step, also with `lossy`: samples to a target are not measured here."""


@dataclass(frozen=True)
class MeasuredCase:
    """Measured steps of one case. Times are virtual seconds, means over all workers and steps."""

    case: AutoCase
    choice: StrategyChoice  # with the results of probes
    predicted_number: int  # of the candidate that is chosen by prediction
    chosen_step_s: float  # of the trial with strategy `auto`
    step_s: Mapping[int, float]  # of each possible candidate by number, declared as a fixed strategy

    @property
    def best_number(self) -> int:
        """Number of the candidate with the least mean step."""
        return min(self.step_s, key=self.step_s.__getitem__)

    @property
    def ratio(self) -> float:
        """Mean step of strategy `auto`, divided by that of the best candidate."""
        return self.chosen_step_s / self.step_s[self.best_number]

    @property
    def predicted_ratio(self) -> float:
        """Mean step of the candidate chosen by prediction, divided by that of the best candidate."""
        return self.step_s[self.predicted_number] / self.step_s[self.best_number]


@dataclass(frozen=True)
class Outcome:
    """Outcome of all cases: lines of text, and whether the gate is met."""

    lines: tuple[str, ...]
    is_gate_met: bool


def describe_outcome(measured: Sequence[MeasuredCase]) -> Outcome:
    """Return the share of cases in which the choice is close to the best candidate, and the worst ratio."""
    lines, flags = [], []
    for title, ratios in (
        ("with probes", [case.ratio for case in measured]),
        ("by prediction", [case.predicted_ratio for case in measured]),
    ):
        close = sum(ratio <= CLOSE_RATIO for ratio in ratios)
        lines.append(
            f"- {title}: within 10 % of the best candidate in {close} of {len(ratios)} cases, worst ratio "
            f"{max(ratios):.3f}"
        )
        flags.append(close >= LEAST_CLOSE_SHARE * len(ratios) and max(ratios) <= LARGEST_RATIO)
    gate = f"at most {CLOSE_RATIO} in {LEAST_CLOSE_SHARE:.0%} of the cases, at most {LARGEST_RATIO} in all"
    lines.append(f"- limit for the choice with probes ({gate}): {'met' if flags[0] else 'missed'}")
    return Outcome(tuple(lines), flags[0])


def format_cases_table(measured: Sequence[MeasuredCase]) -> Iterator[str]:
    """Yield the lines of the table of all cases."""
    header = ("case", "guard", "candidates", "probed", "chosen", "ms", "best", "ms", "ratio", "by prediction")
    yield from markdown_table(header, map(_format_row, measured))


def _format_row(measured: MeasuredCase) -> tuple[str, ...]:
    candidates = measured.choice.candidates
    best = measured.best_number
    return (
        measured.case.name,
        measured.case.guard,
        str(len(measured.step_s)),
        str(sum(candidate.was_probed for candidate in candidates)),
        measured.choice.chosen_candidate.name,
        format_number(1e3 * measured.chosen_step_s),
        candidates[best].name,
        format_number(1e3 * measured.step_s[best]),
        f"{measured.ratio:.3f}",
        f"{measured.predicted_ratio:.3f}",
    )


def render_page(measured: Sequence[MeasuredCase], commit: str) -> str:
    """Return the results page of all cases, measured with a commit."""
    outcome = ["## Outcome", "", *describe_outcome(measured).lines, f"- commit {commit}"]
    cases = ["## Cases", "", *(f"- `{each.case.name}`: {_describe_case(each.case)}" for each in measured)]
    return "\n".join([INTRODUCTION, "", *outcome, "", *format_cases_table(measured), "", *cases, ""])


def _describe_case(case: AutoCase) -> str:
    """Return the cluster and the model of a case as text."""
    layers = " x ".join(map(str, case.hidden))
    parts = [f"{case.workers} workers ({_describe_keys(case.worker)})", f"layers {layers}"]
    if case.servers:
        parts.append(f"up to {case.servers} servers ({_describe_keys(case.server)})")
    parts += [f"{key} {_describe_keys(value)}" for key, value in case.cluster.items()]
    return f"{'; '.join(parts)}; seed {case.seed}"


def _describe_keys(value: Any) -> str:
    """Return nested keys of a scenario as text."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_describe_keys(each)}" for key, each in value.items())
    return " and ".join(map(_describe_keys, value)) if isinstance(value, list) else str(value)
