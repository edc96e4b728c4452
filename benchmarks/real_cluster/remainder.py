"""Sizes of the effects that the rehearsal of the real cluster leaves out, as sentences of the results page."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from benchmarks.real_cluster.comparison import (
    MIN_TYPICAL_EXCHANGES,
    achieved_rate_share,
    constant_time_of_exchange_s,
    jumbo_frame_factor,
    sent_bytes_per_exchange,
)
from benchmarks.real_cluster.measured_runs import MeasuredRun, plain_compute_s
from benchmarks.real_cluster.rehearsal import LINK_RATES
from services.cluster.links.ethernet import FRAME_BYTES, PAYLOAD_BYTES

FAST = "5g"  # bandwidth at which the first exchange is a large part of a mean


def describe_remainder(runs: Sequence[MeasuredRun]) -> Iterator[str]:
    """Yield one item of a list per effect, with its size in the measured runs."""
    yield from _rate_lines(runs)
    constant_ms = 1e3 * constant_time_of_exchange_s(runs)
    sign = "negative" if constant_ms < 0 else "positive"
    yield (
        f"- **Constant cost of an exchange.** If an exchange took a + b / rate, a would be {sign}: {constant_ms:.0f} "
        "ms. Round trips, the start of a ring, or the outer optimiser would make it positive; by the closed form, a "
        "delay of 1 ms between any two machines adds 1 ms to an exchange. So the loss grows with "
        "the time of the transfer, and more at the lower rate. The file does not show its cause. One candidate is "
        "packets that the shaper drops and TCP sends again. The number of channels or sockets of NCCL does not change "
        "the bytes."
    )
    yield (
        "- **Size of packets.** The MTU is not known. With an MTU of 9001, exchanges of the rehearsal would be "
        f"{1 - jumbo_frame_factor():.1%} shorter, so the error would be larger."
    )
    yield from _long_exchange_lines(runs)
    yield from _compute_lines(runs)


def _rate_lines(runs: Sequence[MeasuredRun]) -> Iterator[str]:
    """Yield which share of the limited rate the exchanges reach."""
    for bandwidth, rate in LINK_RATES.items():
        shares = [
            achieved_rate_share(run)
            for run in runs
            if run.bandwidth == bandwidth and run.exchanges >= MIN_TYPICAL_EXCHANGES
        ]
        yield (
            f"- **Rate at {rate}.** Exchanges transfer {sent_bytes_per_exchange(runs[0]) / 1e6:.1f} MB of payload per "
            f"machine at {min(shares):.1%} to {max(shares):.1%} of the limited rate (medians of runs with several "
            f"exchanges). The rehearsal has {PAYLOAD_BYTES / FRAME_BYTES:.1%}. The check with iperf3 allowed 10 %."
        )


def _long_exchange_lines(runs: Sequence[MeasuredRun]) -> Iterator[str]:
    """Yield the cost of one long exchange, which runs with a long period count."""
    fast = sorted((run for run in runs if run.bandwidth == FAST), key=lambda run: run.algorithm)
    for algorithm, grouped in groupby(fast, key=lambda run: run.algorithm):
        members = list(grouped)
        with_8, with_32, with_128 = ([run for run in members if run.period_steps == period] for period in (8, 32, 128))
        typical_ms = {run.repeat: run.wall_ms_exchange_step for run in with_8}
        extra_ms = [run.wall_ms_exchange_step - typical_ms[run.repeat] for run in with_128]
        longer = [100 * (run.wall_ms_exchange_step / typical_ms[run.repeat] - 1) for run in with_32]
        yield (
            f"- **One long exchange, {algorithm}.** At {LINK_RATES[FAST]} with H = 32, a run takes "
            f"{_range(run.unexplained_ms for run in with_32)} ms more than its median steps, with H = 8 only "
            f"{_range(run.unexplained_ms for run in with_8)} ms. With H = 128, the only counted exchange takes "
            f"{_range(extra_ms)} ms longer than the median with H = 8. The median exchange with H = 32 is "
            f"{_range(longer)} % longer than with H = 8, so the pause between exchanges is not the cause."
        )
    yield (
        "- **Likely the first exchange.** The counts of steps and exchanges allow a warm-up of 8 to 19 steps. The "
        "first exchange then falls into the warm-up with H = 1 and 8, and is counted with H = 32 and 128. NCCL "
        "connects the machines and loads its kernels in the first call. A user can measure a first exchange before a "
        "run. The file has no such measurement, so it is not part of the prediction."
    )


def _compute_lines(runs: Sequence[MeasuredRun]) -> Iterator[str]:
    """Yield the sizes of the differences in compute, and of what is neither compute nor blocked."""
    plain = [run for run in runs if run.compute_ms_plain_step is not None]
    extra_ms = [run.compute_ms_exchange_step - (run.compute_ms_plain_step or 0.0) for run in plain]
    other_ms = [run.wall_ms_exchange_step - run.compute_ms_exchange_step - run.blocked_ms_exchange for run in runs]
    algorithms = sorted({run.algorithm for run in plain})
    times_ms = [[run.compute_ms_plain_step or 0.0 for run in plain if run.algorithm == name] for name in algorithms]
    spread = max(max(times) / min(times) - 1 for times in times_ms)
    always_ms = [
        run.compute_ms_exchange_step - 1e3 * plain_compute_s(runs, run.algorithm)
        for run in runs
        if run.compute_ms_plain_step is None
    ]
    yield (
        f"- **Compute and outer optimiser.** A step with an exchange computes {min(extra_ms):+.2f} to "
        f"{max(extra_ms):+.2f} ms longer than a plain step, with H = 1 {min(always_ms):+.2f} to "
        f"{max(always_ms):+.2f} ms longer than plain steps of other periods. What is neither compute nor blocked "
        f"takes {max(other_ms):.2f} ms or less (difference of medians). The compute of plain steps differs by up to "
        f"{spread:.1%} between the runs of a program, which matters with long periods at 5 Gbit/s only."
    )


def _range(values: Iterable[float]) -> str:
    """Return the range of numbers, rounded to whole numbers, or the only one."""
    ascending = sorted(round(value) for value in values)
    low, high = ascending[0], ascending[-1]
    return f"{low}" if low == high else f"{low} to {high}"
