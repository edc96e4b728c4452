"""Table, results page and saved results of the kill matrix."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from benchmarks.faults.cell_result import LIMIT_S, SAMPLE_BUDGET, CellResult, find_defects
from benchmarks.faults.cells import (
    CELLS,
    DILATION,
    HEARTBEAT_TIMEOUT_S,
    KILL_STEP,
    PERIOD,
    PHASES,
    RESTART_DELAY_S,
    STEPS,
    STRATEGIES,
    SWITCH_STEP,
    WORKERS,
    MatrixCell,
)
from benchmarks.fidelity.provenance import MeasurementOrigin
from benchmarks.markdown import markdown_table

RESULTS_PAGE = Path(__file__).parents[2] / "docs" / "results" / "faults.md"
NO_CELL, NOT_RUN, NOT_MET = "–", "not run", "not met"
DETAILS_HEADER = (
    "cell",
    "killed in phase after",
    "detected after",
    "ended after",
    "samples",
    "tries",
    "load",
    "outcome",
)


def read_results(path: Path, origin: MeasurementOrigin) -> dict[str, CellResult]:
    """Return the saved results that the current commit measured on this host, by name of the cell.

    The result is empty if the file is missing or not valid.
    """
    try:
        results = [CellResult.model_validate(document) for document in json.loads(path.read_text(encoding="utf-8"))]
    except (OSError, ValueError):
        return {}
    return {each.cell: each for each in results if each.cell in CELLS and each.origin.is_comparable(origin)}


def save_results(path: Path, results: Iterable[CellResult]) -> None:
    """Write results to a file, which is replaced at once, so that an interruption keeps the earlier content."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps([result.model_dump(mode="json") for result in results], indent=1) + "\n")
    unfinished.replace(path)


def format_matrix(results: Mapping[str, CellResult]) -> Iterator[str]:
    """Yield the lines of the matrix: a row per strategy, policy and role, a column per phase."""
    rows = (
        (
            strategy.name,
            policy,
            role,
            *(_format_cell(f"{strategy.name}:{policy}:{role}:{phase}", results) for phase in PHASES),
        )
        for strategy in STRATEGIES
        for policy in strategy.policies
        for role in strategy.roles
    )
    return markdown_table(("strategy", "policy", "killed", *PHASES), rows)


def _format_cell(name: str, results: Mapping[str, CellResult]) -> str:
    if name not in CELLS:
        return NO_CELL
    return describe_result(CELLS[name], results[name]) if name in results else NOT_RUN


def describe_result(cell: MatrixCell, result: CellResult) -> str:
    """Return what happened in a cell, such as `goes on, 3.2 s`, and whether this is not what its policy requires."""
    if result.is_hanging:
        return f"hangs ({NOT_MET})"
    happened = "goes on" if result.status == "success" else "fails"
    seconds = "" if result.end_s is None else f", {result.end_s:.1f} s"
    return f"{happened}{seconds}" + (f" ({NOT_MET})" if any(find_defects(cell, result)) else "")


def format_defects(results: Mapping[str, CellResult]) -> Iterator[str]:
    """Yield a line for each cell that did not end by its policy, and one with the number of cells that did."""
    defects = {name: [*find_defects(CELLS[name], result)] for name, result in results.items()}
    met = sum(not texts for texts in defects.values())
    yield f"- {met} of {len(results)} cells that were run ended by their policy within {LIMIT_S:g} virtual seconds."
    if missing := len(CELLS) - len(results):
        yield f"- {missing} of {len(CELLS)} cells were not run."
    for name, texts in defects.items():
        if texts:
            yield f"- `{name}`: {'; '.join(texts)}"


def format_page(results: Mapping[str, CellResult], machine: str, origin: MeasurementOrigin) -> str:
    """Return the results page.

    Args:
        results: results of one commit on one host, by name of the cell; at least one.
        machine: name of this host, for the page.
        origin: commit and host of the results.
    """
    ordered = {name: results[name] for name in CELLS if name in results}
    dates = [result.origin.date for result in ordered.values()]
    minutes = sum(result.wall_s for result in ordered.values()) / 60
    host = f"{origin.host.cpu}, {origin.host.cores} cores, Linux {origin.host.kernel}, Docker {origin.host.engine}"
    measured = (
        f"Machine: {machine} ({host}). All cells were measured by commit {origin.commit}, from {min(dates)} to "
        f"{max(dates)} (UTC); measuring took {minutes:.0f} minutes."
    )
    lines = [
        *("# Kill matrix", "", f"`make bench-faults` printed this page. {measured}", "", INTRODUCTION, ""),
        *("## Outcome", "", *format_defects(ordered), "", *format_matrix(ordered), ""),
        *("## Cells", "", *markdown_table(DETAILS_HEADER, map(_format_details, ordered.values())), ""),
        *("## Phases", "", *_describe_phases(), ""),
    ]
    return "\n".join(lines)


def _format_details(result: CellResult) -> tuple[str, ...]:
    seconds = [
        "–" if each is None else f"{each:.2f} s" for each in (result.kill_offset_s, result.detection_s, result.end_s)
    ]
    samples = "–" if result.samples is None else str(result.samples)
    outcome = (result.reason or result.status).replace("|", "/").replace("\n", " ")
    return f"`{result.cell}`", *seconds, samples, str(result.tries), f"{result.host_load:.1f}", outcome


def _describe_phases() -> Iterator[str]:
    """Yield the rows of the table of phases: the begin of each, and how it is observed from outside."""
    yield from markdown_table(
        ("phase", "begin", "end"),
        (
            ("gate", "the coordinator logs that the node has joined", "training starts"),
            ("compute", f"the coordinator logs that step {KILL_STEP} begins", "the declared time of the compute"),
            ("exchange", "the end of this compute, by the declared time", "the predicted time of the exchange"),
            ("evaluation", "the coordinator logs that it evaluates", "the coordinator logs the result"),
            ("switch", f"all nodes have stopped for the switch before step {SWITCH_STEP}", "the switch is committed"),
            ("checkpoint", "the folder of the first checkpoint exists", "the coordinator logs that it is complete"),
            ("teardown", "the coordinator logs that the node has left", "the node ends"),
        ),
    )


INTRODUCTION = f"""\
Each cell is one trial in containers: {WORKERS} workers (and one server) with links that `tc` shapes, {STEPS} steps, a \
budget of {SAMPLE_BUDGET} samples. One node is killed with SIGKILL by the Docker daemon, not by an event of the \
scenario, while it is in the phase. `dilation` is {DILATION}, `heartbeat_timeout` {HEARTBEAT_TIMEOUT_S:g} s, \
`restart_delay` {RESTART_DELAY_S:g} s, and checkpoints are written every {PERIOD} steps.

- **fails**: the trial failed, and its reason names the killed node first. The seconds are those from the kill to the \
end of the trial, when all containers and networks are removed.
- **goes on**: the trial ended with success, and the samples that the coordinator counted equal the budget \
(asynchronous servers: at most one batch more). The seconds are those from the detection to the end of the first step \
after the last change of the membership; without a change, those to the end of the trial.
- **not met**: this differs from what the policy requires, or took more than {LIMIT_S:g} virtual seconds. Policies are \
those of [failures.md](../failures.md). A node that is killed before training starts fails the trial under each policy.
- **{NO_CELL}**: the strategy has no such phase or node. `abort` and the strongest policy that the strategy allows are \
measured.
- A kill that missed its phase does not count: the trial is run again, at most twice. The column "tries" has the \
number of trials. No trial is repeated for its outcome.
- The column "load" has the number of processes of this host that ran or waited, as a mean over the last minute. Above \
the number of cores, containers start and restart later.

In an evaluation, the worker whose parameters are evaluated is killed, and in other phases another worker. \
`residuals` is a ring with `top_k` and `error_feedback`, and `switch` is one from a ring to an asynchronous server."""
