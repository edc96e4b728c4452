"""Formatting of numbers and names in reports, tables and figures."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from services.scenario.payload import PlannedPayload

MAX_TITLE_LENGTH = 140  # two lines of a report
SEMICOLON_OUTSIDE_BRACKETS = re.compile(r"; (?![^(]*\))")
MAX_LISTED_TRIALS = 3  # in a cell of a table
NO_VALUE = "\N{EN DASH}"
TIMES_SIGN = "\N{MULTIPLICATION SIGN}"
WAITS_FOR_EXCHANGE = "waits for the exchange for"  # where a strategy hides a part of its communication
SIGNIFICANT_DIGITS = 3
EFFICIENCY_DIGITS = 1  # decimals of the efficiency of a strategy, in sentences and tables
MIN_DECIMAL = 1e-5  # smaller numbers are written with a power of ten, since zeros are hard to count
DIGITS_PER_PREFIX = 3
UNIT_PREFIXES = {-2: "\N{MICRO SIGN}", -1: "m", 0: "", 1: "k", 2: "M", 3: "G"}  # power of 1000 -> prefix


def format_number(value: float | None) -> str:
    """Return a number with three significant digits: "2.10", "12.3", "1,180", "1.02e-12"; a dash for no number."""
    if value is None or not math.isfinite(value):
        return NO_VALUE
    if value == 0:
        return "0"
    if abs(value) < MIN_DECIMAL:
        return f"{value:.{SIGNIFICANT_DIGITS - 1}e}"
    magnitude = math.floor(math.log10(abs(value)))
    return f"{value:,.{max(0, SIGNIFICANT_DIGITS - 1 - magnitude)}f}"


def format_interval(interval: tuple[float, float] | None) -> str:
    """Return a 95 % interval with a leading space: " [1.30, 1.50]"; empty without an interval."""
    return f" [{format_number(interval[0])}, {format_number(interval[1])}]" if interval else ""


def format_percentage_interval(interval: tuple[float, float] | None, digits: int = 0) -> str:
    """Return a 95 % interval of fractions with a leading space: " [30%, 50%]"; empty without an interval."""
    return f" [{', '.join(format_percentage(limit, digits) for limit in interval)}]" if interval else ""


def format_percentage(value: float | None, digits: int = 0) -> str:
    """Return a fraction as a percentage, for example "48%" for 0.48.

    None gives a dash.
    """
    return NO_VALUE if value is None else f"{value:.{digits}%}"


def format_signed_percentage(value: float | None) -> str:
    """Return a fraction as a percentage with its sign, for example "+4.2%" for 0.042.

    None gives a dash.
    """
    return NO_VALUE if value is None else f"{round(value, 3) + 0.0:+.1%}"  # + 0.0 turns -0.0 into 0.0


def format_milliseconds(seconds: float | None) -> str:
    """Return seconds as a number of milliseconds without unit, for example "12.3" for 0.0123.

    None gives a dash.
    """
    return format_number(None if seconds is None else 1000 * seconds)


def format_minutes(minutes: float | None) -> str:
    """Return minutes with two decimals, as MLPerf publishes results: "366.19", "0.12".

    A dash for no number.
    """
    return NO_VALUE if minutes is None or not math.isfinite(minutes) else f"{minutes:,.2f}"


def format_bytes(byte_count: float) -> str:
    """Return a number of bytes in the decimal unit that fits: "19.1 MB"."""
    units = ["B", "kB", "MB", "GB", "TB"]
    power = min(len(units) - 1, int(math.log10(byte_count) // DIGITS_PER_PREFIX)) if byte_count >= 1 else 0
    return f"{format_number(byte_count / 1000**power)} {units[power]}" if power else f"{byte_count:.3g} B"


def describe_payload(payload: PlannedPayload) -> str:
    """Return the sizes of a declared payload: the model that messages are as large as, and the trained model."""
    declared = f"{payload.parameters:,} parameters in {payload.number_format}, {format_bytes(payload.size_bytes)}"
    return (
        f"messages as large as those of {payload.model_name or 'a model'} ({declared}); the trained model has "
        f"{payload.trained_parameters:,} parameters ({format_bytes(payload.trained_bytes)})"
    )


def describe_compressed_traffic(strategy: str, worker_count: int, traffic_ratio: float) -> str:
    """Return how many bytes a compressed all-reduce sends, and whether compression saves any.

    `traffic_ratio` is the number of bytes divided by that of a ring all-reduce without compression.
    """
    bytes_sent = f"{format_number(traffic_ratio)} times the bytes of a ring all-reduce without compression"
    text = f"{strategy} on {format_worker_count(worker_count)} sends {bytes_sent}"
    return f"{text}, so compression does not pay" if traffic_ratio >= 1 else text


def format_trial_names(trial_names: Sequence[str], trial_count: int) -> str:
    """Return the names of some of the `trial_count` trials of a run, for a cell of a table.

    The text is "all", up to three names, or the first name and the number of the others.
    """
    if len(trial_names) == trial_count > 1:
        return "all"
    if len(trial_names) <= MAX_LISTED_TRIALS:
        return ", ".join(trial_names)
    return f"{trial_names[0]} and {len(trial_names) - 1} others"


def format_quantity(value: float | None, unit: str) -> str:
    """Return a quantity with a unit prefix: 1e8 bit/s is "100 Mbit/s", 0.005 s is "5.00 ms", 0.01 in % is "1.00%"."""
    if unit == "%":
        return NO_VALUE if value is None else f"{format_number(100 * value)}%"
    if not value or not math.isfinite(value):
        return f"0 {unit}" if value == 0 else NO_VALUE
    power = min(max(math.floor(math.log10(abs(value)) / DIGITS_PER_PREFIX), min(UNIT_PREFIXES)), max(UNIT_PREFIXES))
    return f"{format_number(value / 1000**power)} {UNIT_PREFIXES[power]}{unit}"


def format_worker_count(count: int) -> str:
    """Return a number of workers with its noun: "1 worker", "4 workers"."""
    return f"{count} worker{'s' * (count != 1)}"


def format_count(count: int, noun: str) -> str:
    """Return a count with its noun in singular or plural: "1 result", "1,309 results"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def format_failure_count(count: int) -> str:
    """Return a number of failures in words: "no failure", "1 failure", "12 failures"."""
    return format_count(count, "failure") if count else "no failure"


def describe_free_recovery(engine: str) -> str:
    """Return a sentence on parts of a recovery that take no virtual time on an engine; empty if they take time."""
    if engine != "simulated":
        return ""
    return (
        "on the engine simulated, starting a node again and reading or writing a checkpoint take no virtual time, so "
        "the goodput does not include these costs"
    )


def join_names(names: Iterable[str]) -> str:
    """Return names as a list in a sentence: "a", "a and b", "a, b and c"."""
    *others, last = [*names] or [""]
    return f"{', '.join(others)} and {last}" if others else last


def shorten_list(names: Sequence[str], max_named: int, separator: str) -> str:
    """Join names with a separator, and shorten long lists.

    Of more than `max_named` names, show the first and the number of the others.
    """
    return separator.join(names) if len(names) <= max_named else f"{names[0]} and {len(names) - 1} others"


def capitalise_first_letter(text: str) -> str:
    """Return the text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def split_long_sentence(sentence: str) -> tuple[str, str]:
    """Split a sentence at a semicolon, so that the first part can be the title of a page.

    Returns:
        As many clauses as fit into MAX_TITLE_LENGTH characters, at least one, and the others; each as a sentence. The
        second is empty where all fit. Brackets are not split.
    """
    clauses = SEMICOLON_OUTSIDE_BRACKETS.split(sentence.removesuffix("."))
    lengths = accumulate(len(clause) + len("; ") for clause in clauses)
    fitting = max(1, sum(length <= MAX_TITLE_LENGTH for length in lengths))
    first, rest = "; ".join(clauses[:fitting]), "; ".join(clauses[fitting:])
    return f"{first}.", f"{capitalise_first_letter(rest)}." if rest else ""


def describe_continued_trials(trials: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield one sentence per trial that continues an earlier training, or that could not.

    The trials are those of summary.json.
    """
    for trial in trials:
        if continued := trial.get("continued"):  # missing in summaries of older versions
            unused = "; ".join(continued["unused_checkpoints"])
            yield f"{trial['id']}: {_describe_continuation(continued)}{unused and f' (not used: {unused})'}"


def _describe_continuation(continued: Mapping[str, Any]) -> str:
    step, folder = continued["step"], continued["folder"]
    if not step:
        return "the trial was interrupted, and began anew"
    if continued["is_attempt"]:
        return (
            f"the trial was interrupted, and continued from the checkpoint after step {step}; its times and steps "
            f"before the checkpoint are those of {folder}"
        )
    return (
        f"training continued from the checkpoint after step {step} of {folder}, which has "
        f"{format_count(continued['workers'], 'worker')}; times and steps count from the checkpoint, samples of "
        "evaluations from the start of the earlier training"
    )


def describe_repeated_trials(trials: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield one sentence per trial that was repeated: how many attempts this host may have disturbed, and how.

    The trials are those of summary.json.
    """
    for trial in trials:
        if disturbances := trial["disturbed_attempts"]:
            attempts = f"{format_count(len(disturbances), 'earlier attempt')} ({'; '.join(disturbances)})"
            yield f"{trial['id']}: this host may have disturbed {attempts}; the last attempt counts"
