"""Results page of the rehearsed cluster: table of all runs, which aims are met, and sizes of the remaining effects."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median

from analysis.report.wording import format_number, format_percentage, format_signed_percentage
from benchmarks.markdown import markdown_table
from benchmarks.real_cluster.comparison import (
    MAX_MEAN_ERRORS,
    ComparedRun,
    find_changed_orders,
    limited_rate_bps,
)
from benchmarks.real_cluster.measured_runs import plain_compute_s
from benchmarks.real_cluster.rehearsal import LINK_RATES, STRATEGY_KINDS, case_of
from benchmarks.real_cluster.remainder import describe_remainder
from services.cluster.links.ethernet import FRAME_BYTES, PAYLOAD_BYTES

RESULTS_PAGE = Path(__file__).parents[2] / "docs" / "results" / "four-l40s.md"
CONTAINERS_PAGE = RESULTS_PAGE.with_name("four-l40s-containers.md")  # on engines in real time
AIMED_UTILISATION = 0.95
INTRODUCTION = """# A real cluster, rehearsed

Step times that were measured on four machines with one NVIDIA L40S each, beside those that the scenario `four-l40s`
has in virtual time. `make bench-real-cluster` computes this page; it needs no GPU and no container.

[benchmarks/real_cluster/README.md](../../benchmarks/real_cluster/README.md) names the source and the licence of the
measured values, and describes the cluster."""
COMPUTE_ORIGIN = """\
DiLoCo exchanges the same vectors in the same steps as local SGD, and its outer optimiser takes less than half a
millisecond (whole step - compute - blocked). The compute time of a step can be measured on one machine. Here it comes
from the same runs as the measured values: the file has no other runs."""
TABLE_RULES = """## All runs

- **mean step**: mean over all counted steps of a run. The rehearsed mean is over as many steps with and without an
  exchange as the run counted, for example 17 exchanges in 140 steps with H = 8.
- **blocked**: time that an exchange blocks, median there.
- **compute utilisation**: mean compute time / mean step time ([definition](../reports.md#compute-utilisation)).
- **error**: rehearsed / measured - 1.
- **error, typical steps**: against the mean of the run's median steps, in which one long exchange has no weight. For
  H = 128, with one counted exchange, the median exchange is that of the other periods of the same repeat."""


def render_page(rows: Sequence[ComparedRun]) -> str:
    """Return the page of a rehearsal of all runs in virtual time."""
    sections = [
        INTRODUCTION,
        "\n".join(["## What enters the prediction", "", *_prediction_lines(rows)]),
        "\n".join(["## Outcome", "", *_outcome_lines(rows)]),
        "\n".join([TABLE_RULES, "", *format_runs_table(rows)]),
        "\n".join(["## Where the remainder comes from", "", *describe_remainder([row.measured for row in rows])]),
        "\n".join([f"## Bandwidth for {AIMED_UTILISATION:.0%} utilisation", "", *_bandwidth_lines(rows)]),
    ]
    return "\n\n".join(sections) + "\n"


def render_real_time_page(rows: Sequence[ComparedRun], engine_name: str, origin: str) -> str:
    """Return the page of a rehearsal of some runs on an engine in real time."""
    verdicts = {
        f"- {case_of(row.measured).name}: dilation {row.rehearsed.dilation:g}, "
        f"{row.rehearsed.verdict_reasons or 'verdict valid'}"
        for row in rows
    }
    head = f"# The real cluster, rehearsed on the engine `{engine_name}`\n\nMeasured on {origin}."
    link = "[four-l40s.md](four-l40s.md) explains the columns and has all runs in virtual time."
    return "\n".join([f"{head} {link}", "", *sorted(verdicts), "", *format_runs_table(rows)]) + "\n"


def format_runs_table(rows: Iterable[ComparedRun]) -> Iterator[str]:
    """Yield the lines of the table of all runs."""
    header = (
        *("algorithm", "H", "uplink", "repeat", "mean step there, ms", "rehearsed here, ms", "error"),
        *("error, typical steps", "blocked there, ms", "here, ms", "error"),
        *("compute utilisation there", "here"),
    )
    yield from markdown_table(header, map(_run_cells, rows))


def _run_cells(row: ComparedRun) -> tuple[str, ...]:
    run = row.measured
    return (
        *(run.algorithm, f"{run.period_steps}", LINK_RATES[run.bandwidth], f"{run.repeat}"),
        *(f"{run.mean_wall_ms_step:,.1f}", f"{row.mean_step_ms:,.1f}", format_signed_percentage(row.mean_error)),
        format_signed_percentage(row.typical_error),
        *(f"{run.blocked_ms_exchange:,.0f}", f"{row.rehearsed.blocked_ms_exchange:,.0f}"),
        format_signed_percentage(row.exchange_error),
        *(format_percentage(share, 1) for share in (run.compute_utilisation, row.compute_utilisation)),
    )


def _prediction_lines(rows: Sequence[ComparedRun]) -> Iterator[str]:
    """Yield which values enter the prediction, and where they come from."""
    yield "Only what is known before a run on the cluster. No value is fitted to measured exchanges or mean step times."
    yield ""
    runs = [row.measured for row in rows]
    compute = ", ".join(f"{name} {1e3 * plain_compute_s(runs, name):.2f} ms" for name in _algorithms(rows))
    values = (
        (
            f"{runs[0].nodes} workers, {runs[0].parameters:,} parameters in fp32, exchanges every H steps by a ring",
            "the training program",
        ),
        (
            f"strategies: {', '.join(f'{name} as `{STRATEGY_KINDS[name]}`' for name in _algorithms(rows))}",
            "which vectors are exchanged in which steps",
        ),
        ("uplinks of 200 Mbit/s or 5 Gbit/s", "the limits of the shaper"),
        (f"{PAYLOAD_BYTES} of {FRAME_BYTES} bytes of a frame are payload", "Ethernet with an MTU of 1500"),
        ("downlinks of 9.96 Gbit/s", "9.53 Gbit/s of payload between two machines without a limit"),
        (f"compute of a step: {compute}", "median step without an exchange, over all runs of the program"),
        ("numbers of steps and exchanges in a mean", "the plan of the experiment"),
    )
    yield from markdown_table(("value", "source"), values)
    yield ""
    yield COMPUTE_ORIGIN


def _outcome_lines(rows: Sequence[ComparedRun]) -> Iterator[str]:
    """Yield which aims for the mean step time are met, and whether the order of the runs is kept."""
    for bandwidth, limit in MAX_MEAN_ERRORS.items():
        at_rate = [row for row in rows if row.measured.bandwidth == bandwidth]
        met = [row for row in at_rate if row.meets_aim]
        missed_periods = sorted({row.measured.period_steps for row in at_rate if not row.meets_aim})
        missed = f"; missed with H = {' and '.join(map(str, missed_periods))}" if missed_periods else ""
        yield (
            f"- **{LINK_RATES[bandwidth]}**: {len(met)} of {len(at_rate)} runs are within {limit:.0%} in the mean step "
            f"time (errors {_error_range(at_rate, lambda row: row.mean_error)}{missed}). Against typical steps, all "
            f"errors are {_error_range(at_rate, lambda row: row.typical_error)}."
        )
    changed = find_changed_orders(rows)
    pairs = "; ".join(f"{first.measured.name} and {second.measured.name}" for first, second in changed)
    order = f"differs for {len(changed)} pairs: {pairs}" if changed else "is kept for every pair of different cases"
    yield f"- **Order**: within each algorithm, the order of the mean step times {order}."
    yield _describe_order_of_algorithms(rows)
    yield from _utilisation_lines(rows)


def _describe_order_of_algorithms(rows: Sequence[ComparedRun]) -> str:
    """Return for which periods and rates the rehearsal has the other algorithm as the faster one."""
    first, second = _algorithms(rows)
    changed = []
    for bandwidth, period in dict.fromkeys((row.measured.bandwidth, row.measured.period_steps) for row in rows):
        there_ms, here_ms = (
            _median_difference_ms(rows, bandwidth, period, value_of)
            for value_of in (lambda row: row.measured.mean_wall_ms_step, lambda row: row.mean_step_ms)
        )
        if (there_ms < 0) != (here_ms < 0):
            changed.append(
                f"H = {period} at {LINK_RATES[bandwidth]} ({there_ms:+.1f} ms there, {here_ms:+.1f} ms here)"
            )
    return (
        f"- **Between the algorithms**: the sign of the difference (median mean step of {second} - that of {first}) is "
        f"another one for {', '.join(changed) or 'no case'}."
    )


def _median_difference_ms(
    rows: Sequence[ComparedRun], bandwidth: str, period: int, value_of: Callable[[ComparedRun], float]
) -> float:
    """Return the median over the runs of the second algorithm with this period, less that of the first."""
    first_ms, second_ms = (
        median(
            value_of(row)
            for row in rows
            if (row.measured.algorithm, row.measured.bandwidth, row.measured.period_steps)
            == (algorithm, bandwidth, period)
        )
        for algorithm in _algorithms(rows)
    )
    return second_ms - first_ms


def _utilisation_lines(rows: Sequence[ComparedRun]) -> Iterator[str]:
    """Yield the errors of the compute utilisation, of runs that meet the aim and of the others."""
    points = {
        meets_aim: [
            100 * (row.compute_utilisation - row.measured.compute_utilisation)
            for row in rows
            if row.meets_aim is meets_aim
        ]
        for meets_aim in (True, False)
    }
    ranges = [f"{min(errors):+.1f} to {max(errors):+.1f}" for errors in points.values() if errors]
    others = f", of the other runs {ranges[1]} percentage points" if points[False] else ""
    yield f"- **Compute utilisation**: the error of runs within the aim is {ranges[0]} percentage points{others}."


def _bandwidth_lines(rows: Sequence[ComparedRun]) -> Iterator[str]:
    """Yield the uplink at which the rehearsal computes for 95 % of a step, for each period of one algorithm."""
    first = rows[0].measured.algorithm
    periods = {row.measured.period_steps: row for row in rows if row.measured.algorithm == first}
    yield (
        f"Computed for {first}: the time of an exchange in the rehearsal is proportional to 1 / uplink. On average, a "
        "step has 1 / H exchanges. The published cluster is slower by the errors above."
    )
    yield ""
    cells = ((f"{period}", f"{format_number(_needed_gbps(row))} Gbit/s") for period, row in sorted(periods.items()))
    yield from markdown_table(("H", "uplink"), cells)


def _needed_gbps(row: ComparedRun) -> float:
    """Return the uplink in Gbit/s at which compute takes AIMED_UTILISATION of a mean step."""
    rate_gbps = limited_rate_bps(row.measured.bandwidth) / 1e9
    allowed_ms = row.measured.period_steps * row.rehearsed.compute_ms * (1 / AIMED_UTILISATION - 1)
    return rate_gbps * row.rehearsed.blocked_ms_exchange / allowed_ms


def _algorithms(rows: Iterable[ComparedRun]) -> list[str]:
    return list(dict.fromkeys(row.measured.algorithm for row in rows))


def _error_range(rows: Iterable[ComparedRun], error_of: Callable[[ComparedRun], float]) -> str:
    errors = [error_of(row) for row in rows]
    return f"{format_signed_percentage(min(errors))} to {format_signed_percentage(max(errors))}"
